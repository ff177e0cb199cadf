"""Do learned sizes beat even ones? Controls whose right sizes are known to be uneven, and shuffled targets.

    python benchmarks/bench_allocation.py [--controls branches layers] [--seeds 0 1 2]
    python benchmarks/bench_allocation.py --table

Every training of a control has the same data, batches, rate and number of steps. Each control has one file, written
anew after every training. Trainings in the file are skipped, so the program can be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from allocation.controls import CONTROLS, Control, Samples
from bench_rivals import HERE, PAGE
from rivals.work import parameters
from torch import nn
from units import committed, refuse_others, write, write_between_marks

import ngn
from experiments.store import provenance
from experiments.tasks.base import MiniBatches
from ngn.budget import LimitedLearner
from ngn.confirmation import PARTS
from ngn.schedules import Shape, warmed_up
from ngn.train.batches import Batches, FullBatches, HeldOutParts, Split

SEEDS = (0, 1, 2, 3, 4)
HELD_OUT, TEST, WARMUP, COSINE = 1024, 2048, 0.05, Shape("cosine")
Unit = dict[str, Any]


class Task:
    """A control with the data of one seed.

    Args:
        shuffled: give inputs the targets of others, in the training and held-out data.
    """

    def __init__(self, control: Control, seed: int, steps: int, shuffled: bool = False) -> None:
        self.control, self.seed, self.steps = control, seed, steps
        source = torch.Generator().manual_seed(1000 + seed)

        def draw(count: int, mixed: bool) -> Samples:
            x, y = control.samples(count, source)
            y = y + control.noise * torch.randn(y.shape, generator=source)
            return x, y[torch.randperm(count, generator=source)] if mixed else y

        train, held_out = Split(*draw(control.rows, shuffled)), Split(*draw(HELD_OUT, shuffled))
        self.test = draw(TEST, False)
        self.held_out = HeldOutParts(held_out, PARTS)
        small = control.batch
        self.batches: Batches = FullBatches(train) if small is None else MiniBatches(train, small, seed, lambda x: x)

    def model(self, counts: Sequence[int]) -> nn.Module:
        """A new model; at the same counts always the same."""
        torch.manual_seed(self.seed)
        return self.control.model(counts)

    @property
    def example(self) -> torch.Tensor:
        """Two inputs."""
        return self.test[0][:2]

    @property
    def budget(self) -> ngn.Budget:
        return ngn.Budget(parameters=self.control.share)

    def even(self) -> list[int]:
        """The even sizes within the budget: those of a learner that has seen nothing."""
        learner = ngn.learn_sizes(
            self.model(self.control.most),
            self.control.sizes(),
            example=self.example,
            budget=self.budget,
            by_importance=None,
        )
        learner.set_progress(1.0)
        return self.counts(learner)

    def counts(self, learner: ngn.CapacityLearner) -> list[int]:
        """The counts in the control's order."""
        found = dict(zip(learner.names, learner.count().tolist(), strict=True))
        return [found[name] for name in self.control.sizes()]

    def train(self, model: nn.Module, first: float = 0.0, last: float = 1.0) -> nn.Module:
        """Train a model of fixed sizes by a plain loop, from ``first`` to ``last``, fractions of a training."""
        optimizer = torch.optim.Adam(model.parameters(), lr=self.control.lr, fused=True)
        for step in range(round(first * self.steps), round(last * self.steps)):
            optimizer.param_groups[0]["lr"] = self.control.lr * warmed_up(COSINE, step / self.steps, WARMUP)
            x, y = self.batches.at(step)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model

    def learn(self, learner: LimitedLearner, **settings: Any) -> Unit:
        """Train a learner and its sizes."""
        plan = ngn.TrainPlan(steps=self.steps, lr=self.control.lr, lr_boundary=0.05, lr_shape=COSINE, warmup=WARMUP)
        began = time.process_time()
        ngn.fit(learner, self.batches, None, nn.functional.mse_loss, plan, progress="never", **settings)
        spent = time.process_time() - began
        cost = int(learner.cost.measured(tuple(learner.count().tolist())))
        return self.unit(learner, self.counts(learner), cost, spent)

    def fixed(self, counts: Sequence[int]) -> Unit:
        """Train a model of given sizes from the start."""
        model, began = self.model(counts), time.process_time()
        self.train(model)
        return self.unit(model, counts, parameters(model), time.process_time() - began)

    @torch.no_grad()
    def unit(self, model: nn.Module, counts: Sequence[int], cost: int, spent: float) -> Unit:
        x, y = self.test
        error = float(nn.functional.mse_loss(model(x), y).sqrt())
        return {"sizes": [*counts], "parameters": cost, "error": error, "processor_seconds": round(spent, 4)}


def learned(task: Task) -> Unit:
    learner = ngn.learn_sizes(
        task.model(task.control.most),
        task.control.sizes(),
        example=task.example,
        budget=task.budget,
        by_importance=None,
    )
    assert isinstance(learner, ngn.BudgetLearner)
    return task.learn(learner, held_out=task.held_out)


def cut(task: Task) -> Unit:
    """Train the largest model for half of the steps, keep the first components, and train on."""
    model, began = task.model(task.control.most), time.process_time()
    task.train(model, last=0.5)
    keeper = ngn.learn_sizes(
        model,
        task.control.sizes(),
        example=task.example,
        by_importance=None,
        capacity=lambda name, K: ngn.Retained(K),
    )
    counts = dict(zip(task.control.sizes(), task.even(), strict=True))
    for name, axis in zip(keeper.names, keeper.axes, strict=True):
        kept: Any = axis.capacity
        kept.left.fill_(counts[name])
    small = keeper.deploy(unsettled="allow")
    task.train(small, first=0.5)
    return task.unit(small, [*counts.values()], parameters(small), time.process_time() - began)


ROWS: dict[str, Callable[[Task, list[int]], Unit]] = {
    "even": lambda task, sizes: task.fixed(task.even()),
    "learned": lambda task, sizes: learned(task),
    "scratch": lambda task, sizes: task.fixed(sizes),
    "by hand": lambda task, sizes: task.fixed(task.control.by_hand),
    "cut": lambda task, sizes: cut(task),
    "all": lambda task, sizes: task.fixed(task.control.most),
    "shuffled": lambda task, sizes: learned(task),
}
"""Each trains a model, given the task and the learned sizes of the same seed."""
NAMES = {
    "even": "even sizes from scratch",
    "learned": "**learned on evidence**",
    "scratch": "its sizes from scratch",
    "by hand": "sizes by hand from scratch",
    "cut": "all components for half of the steps, then even sizes",
    "all": "all components",
    "shuffled": "learned from shuffled targets",
}


def run(name: str, seeds: Sequence[int], path: Path, steps: int | None) -> None:
    """Train what the file lacks.

    Raises:
        SystemExit: if the file is of other code, packages, machine or steps.
        RuntimeError: if a model exceeds the budget.
    """
    control = CONTROLS[name]
    facts: Unit = {
        "control": name,
        "steps": steps or control.steps,
        "share": control.share,
        "commit": provenance.code().commit,
        "packages": provenance.packages(),
        "machine": provenance.machine(),
    }
    found = json.loads(path.read_text()) if path.exists() else facts | {"units": []}
    refuse_others(path, found, facts)
    units: list[Unit] = found["units"]
    most = parameters(control.model(control.most))
    for first in (ROWS["by hand"], ROWS["learned"]):
        first(Task(control, 0, 2), [])  # what torch imports late is no part of a training's time
    for seed in seeds:
        own = {unit["row"]: unit for unit in units if unit["seed"] == seed}
        for row, train in ROWS.items():
            if row in own:
                continue
            task = Task(control, seed, facts["steps"], shuffled=row == "shuffled")
            own[row] = {"row": row, "seed": seed} | train(task, own["learned"]["sizes"] if "learned" in own else [])
            if row != "all" and own[row]["parameters"] > float(control.share[:-1]) / 100 * most:
                raise RuntimeError(f"{name}, {row}: {own[row]['parameters']:,} parameters are above {control.share}")
            units.append(own[row])
            write(path, found)
            print(f"{name} {own[row]}", flush=True)


def mean(values: list[float], text: str, spread: bool = True) -> str:
    """Format the mean and, for several values, the standard deviation."""
    deviation = f" ± {statistics.stdev(values):.2f}" if spread and len(values) > 1 else ""
    return f"{statistics.fmean(values):{text}}{deviation}" if values else "--"


def table(records: list[Unit]) -> str:
    """Say where learned sizes do not beat even ones, then format one table: means over the seeds that have all rows."""
    lost, even, shuffled, rows = [], 0, 0, []
    for record in records:
        at = {(u["row"], u["seed"]): u for u in record["units"]}
        seeds = sorted({seed for _, seed in at if all((row, seed) in at for row in ROWS)})
        if not seeds:
            continue
        title = CONTROLS[record["control"]].title
        heading = f"{title}; {record['share']}, {record['steps']:,} steps"
        for row in NAMES:
            units, base, largest = ([at[name, seed] for seed in seeds] for name in (row, "even", "all"))
            gains = [b["error"] - u["error"] for u, b in zip(units, base, strict=True)]
            times = [u["processor_seconds"] / b["processor_seconds"] for u, b in zip(units, largest, strict=True)]
            if row == "learned" and (won := sum(gain > 0 for gain in gains)) < len(seeds):
                lost.append(f"{record['control']} (better with {won} of {len(seeds)} seeds)")
            if row == "shuffled":
                shuffled += len(seeds)
                even += sum(u["sizes"] == b["sizes"] for u, b in zip(units, base, strict=True))
            cells = [
                heading,
                NAMES[row],
                ", ".join(f"{statistics.fmean(size):.3g}" for size in zip(*(u["sizes"] for u in units), strict=True)),
                mean([u["error"] for u in units] if row != "shuffled" else [], ".3f"),
                mean(gains if row not in ("even", "shuffled") else [], "+.3f"),
                mean(times, ".2f", spread=False),
                str(len(seeds)),
            ]
            rows.append(f"| {' | '.join(cells)} |")
            heading = ""
    beaten = "Learned sizes beat even ones with every seed on every control."
    if lost:
        beaten = f"Learned sizes do not beat even ones with every seed on {'; '.join(lost)}."
    return "\n".join(
        [
            textwrap.fill(
                f"{beaten} From shuffled targets the sizes were the even ones in {even} of {shuffled} trainings.", 120
            ),
            "",
            "| control | how | sizes | error | better than even by | processor time x all | seeds |",
            "| --- | --- | --- | ---: | ---: | ---: | ---: |",
            *rows,
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--controls", nargs="+", choices=[*CONTROLS], default=[*CONTROLS])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, help="other than those of the control, with --folder")
    parser.add_argument("--folder", type=Path, help="of the files (default: benchmarks/results/allocation)")
    parser.add_argument("--table", action="store_true", help="print the table and write it to docs/benchmarks.md")
    given = parser.parse_args(arguments)
    folder = given.folder or HERE / "results" / "allocation"
    if given.table:
        paths = [folder / f"{name}.json" for name in CONTROLS]
        text = table([json.loads(path.read_text()) for path in paths if path.exists()])
        print(text)
        write_between_marks(PAGE, "allocation", text)
        return
    if given.folder is None and (given.steps or not committed()):
        parser.error("type --folder FOLDER: the default folder is for committed code and the steps of the controls")
    torch.set_num_threads(1)
    for name in given.controls:
        run(name, given.seeds, folder / f"{name}.json", given.steps)


if __name__ == "__main__":
    main()
