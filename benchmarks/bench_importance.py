"""Which order of importance suits trained weights? Cut trained models by each, on data held back from training.

    python benchmarks/bench_importance.py [--work mlp cnn stories260k] [--seeds 0 1 2] [--data-root FOLDER]
    python benchmarks/bench_importance.py --table

Two networks are trained on MNIST here, one a seed; the language model is the trained one of llama2.c. Each is cut to
the same fraction of every size, without and with a short training afterwards. Then sizes are learned under a budget
from the same weights, and from fresh ones. Loss is cross-entropy in nats on the last part of the training data; test
data is not read. Every work has one file, written anew after every unit. Units in the file are skipped.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from bench_rivals import HERE, PAGE
from torch import Tensor, nn
from units import committed, write, write_between_marks

import ngn
from experiments.data import mnist, stories260k
from experiments.data.source import data_root
from experiments.store import provenance
from ngn.streams import generator

SEEDS, CALIBRATION = (0, 1, 2), 16
Unit = dict[str, Any]


class Mnist:
    """A network for digits, trained for a minute. 55,000 images of the training set train, 5,000 judge."""

    batch, lr, before, after, learning, shares, parameters = 128, 1e-3, 860, 100, 300, (0.5, 0.25), "50%"

    def __init__(self, make: Callable[[], nn.Module], root: Path, few: bool) -> None:
        self.make, data = make, mnist.load_data(root)
        self.sizes: Any = None
        self.ready: tuple[int, nn.Module] | None = None
        x = torch.from_numpy(data.train_images).float() / 255
        y = torch.from_numpy(data.train_labels)
        last = 55_000
        self.train, self.held = (x[:last], y[:last]), (x[last:], y[last:])
        if few:
            self.before, self.after, self.learning = 3, 2, 5
        self.example: Any = x[:2]

    def fresh(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.make()

    def trained(self, seed: int) -> nn.Module:
        if self.ready is None or self.ready[0] != seed:  # the units of a seed come one after the other
            self.ready = seed, self.fit(self.fresh(seed), seed, self.before)
        return self.ready[1]

    def batches(self, seed: int, purpose: str) -> Iterator[Any]:
        x, y = self.train
        while True:
            order = torch.randperm(len(x), generator=generator(seed, purpose))
            for some in order.split(self.batch)[:-1]:
                yield x[some], y[some]

    def fit(self, model: nn.Module, seed: int, steps: int) -> nn.Module:
        """Train with Adam at a constant rate."""
        optimizer = torch.optim.Adam(model.parameters(), lr=self.lr)
        model.train()
        batches = self.batches(seed, f"data {steps}")
        for _ in range(steps):
            optimizer.zero_grad()
            self.loss(model, next(batches)).backward()
            optimizer.step()
        return model.eval()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        x, y = self.held
        parts = zip(x.split(500), y.split(500), strict=True)
        return statistics.fmean(float(self.loss(model.eval(), part)) for part in parts)


class Stories(Mnist):
    """The feed-forward units of a trained language model on TinyStories; seeds give the order of batches."""

    batch, lr, after, learning, shares, parameters = 4, 5e-4, 20, 60, (0.75, 0.5), "75%"

    def __init__(self, make: Callable[[], nn.Module], root: Path, few: bool) -> None:
        self.sizes = {"model.layers.*.mlp": ngn.Width()}
        self.model, tokenizer = stories260k.build_model(stories260k.load_data(root))
        text = (root / "tinystories" / "train.txt").read_text()
        tokens = torch.tensor(tokenizer(text[:3_000_000])["input_ids"])
        windows = tokens[: len(tokens) // 256 * 256].view(-1, 256)
        last = len(windows) - 40
        self.windows, self.held_windows = windows[:last], windows[last:]
        if few:
            self.after, self.learning = 2, 5
        self.example = {"input_ids": windows[:1]}

    def fresh(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return type(self.model)(self.model.config)

    def trained(self, seed: int) -> nn.Module:
        return self.model.eval()

    def batches(self, seed: int, purpose: str) -> Iterator[Any]:
        while True:
            order = torch.randperm(len(self.windows), generator=generator(seed, purpose))
            for some in order.split(self.batch)[:-1]:
                yield self.windows[some]

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        result: Tensor = model(input_ids=batch, labels=batch).loss
        return result

    @torch.no_grad()
    def score(self, model: nn.Module) -> float:
        return statistics.fmean(float(self.loss(model.eval(), some)) for some in self.held_windows.split(10))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def cnn() -> nn.Module:
    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(
        *block(1, 8), *block(8, 16), nn.Flatten(), nn.Linear(16 * 49, 64), nn.ReLU(), nn.Linear(64, 10)
    )


WORKS: dict[str, Callable[[Path, bool], Mnist]] = {
    "mlp": lambda root, few: Mnist(mlp, root, few),
    "cnn": lambda root, few: Mnist(cnn, root, few),
    "stories260k": lambda root, few: Stories(mlp, root, few),
}
TITLES = {"mlp": "MLP, MNIST", "cnn": "CNN, MNIST", "stories260k": "Llama 260K, TinyStories"}


def summed(learner: ngn.CapacityLearner, value: Callable[[Tensor], Tensor]) -> None:
    """Sort units by the sum of a value of their weights, over all members."""
    for axis in learner.axes:
        axis.sort(range(axis.K))
        score = sum(value(getattr(cut.module, cut.name)).narrow(cut.dim, cut.start, axis.K * cut.width)
                    .movedim(cut.dim, 0).reshape(axis.K, -1).sum(1)
                    for cut in axis.cuts if cut.name == "weight")  # fmt: skip
        axis.sort(torch.as_tensor(score).abs().argsort(descending=True).tolist())


def unsorted(work: Mnist, learner: ngn.CapacityLearner, batches: list[Any]) -> None:
    pass


def by_chance(work: Mnist, learner: ngn.CapacityLearner, batches: list[Any]) -> None:
    for axis in learner.axes:
        axis.sort(torch.randperm(axis.K, generator=generator(len(batches), "order", axis.name)).tolist())


def by(name: Any) -> Callable[[Mnist, ngn.CapacityLearner, list[Any]], None]:
    return lambda work, learner, batches: learner.sort(name, batches, work.loss)


def absolute(work: Mnist, learner: ngn.CapacityLearner, batches: list[Any]) -> None:
    summed(learner, lambda weight: weight.detach().abs())


def taylor_of_all(work: Mnist, learner: ngn.CapacityLearner, batches: list[Any]) -> None:
    """|Σ w dL/dw| over all members, with the gradient of all calibration batches together."""
    learner.model.zero_grad()
    for batch in batches:
        work.loss(learner.model, batch).backward()
    summed(learner, lambda weight: weight.detach() * (torch.zeros(()) if weight.grad is None else weight.grad))
    learner.model.zero_grad()


ORDERS: dict[str, Callable[[Mnist, ngn.CapacityLearner, list[Any]], None]] = {
    "none": unsorted,
    "chance": by_chance,
    "magnitude": by("magnitude"),
    "magnitude, L1": absolute,
    "taylor": by("taylor"),
    "taylor, all members": taylor_of_all,
    "wanda": by("wanda"),
}
LEARNED = ("none", "magnitude", "taylor", "wanda")
"""Orders with which sizes are learned."""


def cut(work: Mnist, seed: int, order: str) -> Iterator[Unit]:
    """Cut the trained model to each share of every size; loss at once, and after a short training."""
    model = copy.deepcopy(work.trained(seed))
    learner = ngn.learn_sizes(
        model, work.sizes, example=work.example, by_importance=None, capacity=lambda name, K: ngn.Retained(K)
    )
    stream = work.batches(seed, "calibration")
    ORDERS[order](work, learner, [next(stream) for _ in range(CALIBRATION)])
    for share in work.shares:
        for axis in learner.axes:
            axis.capacity.left.fill_(max(1, round(share * axis.K)))  # type: ignore[operator]
        small = learner.deploy(unsettled="allow")
        at_once = work.score(small)
        yield {"how": f"cut to {share:.0%}", "loss": at_once}
        yield {"how": f"cut to {share:.0%}, trained on", "loss": work.score(work.fit(small, seed, work.after))}


def learn(work: Mnist, seed: int, order: str, fresh: bool) -> Unit:
    """Learn sizes within half of the parameters, then score the small model."""
    model = work.fresh(seed) if fresh else copy.deepcopy(work.trained(seed))
    budget = ngn.Budget(parameters=work.parameters)
    learner = ngn.learn_sizes(model, work.sizes, example=work.example, by_importance=None, budget=budget)
    stream = work.batches(seed, "calibration")
    ORDERS[order](work, learner, [next(stream) for _ in range(CALIBRATION)])
    batches = list(zip(range(work.learning), work.batches(seed, "learning"), strict=False))
    plan = ngn.TrainPlan(steps=work.learning, lr=work.lr)
    ngn.fit(learner, [batch for _, batch in batches], None, work.loss, plan, progress="never")
    return {"how": "learned from fresh weights" if fresh else "learned", "loss": work.score(learner.deploy())}


def units(work: Mnist, seed: int, order: str) -> Iterator[Unit]:
    if order == "none":
        yield {"how": "whole", "loss": work.score(work.trained(seed))}
    yield from cut(work, seed, order)
    if order in LEARNED:
        yield learn(work, seed, order, fresh=False)
    if order in LEARNED[:2]:
        yield learn(work, seed, order, fresh=True)


def run(name: str, seeds: Sequence[int], path: Path, root: Path, few: bool) -> None:
    """Measure what the file lacks.

    Raises:
        SystemExit: if the file is of other code or packages.
    """
    facts: Unit = {"work": name, "commit": provenance.code().commit, "packages": provenance.packages()}
    facts |= {"machine": provenance.machine()}
    found = json.loads(path.read_text()) if path.exists() else facts | {"units": []}
    if changed := [key for key, value in facts.items() if found[key] != value]:
        sys.exit(f"{path} has another {', '.join(changed)}: move it away, or type --folder FOLDER")
    work = WORKS[name](root, few)
    for seed in seeds:
        for order in ORDERS:
            if any((unit["order"], unit["seed"]) == (order, seed) for unit in found["units"]):
                continue
            began = time.process_time()
            found["units"] += [{"order": order, "seed": seed} | unit for unit in units(work, seed, order)]
            write(path, found)
            print(f"{name}, seed {seed}, {order}: {time.process_time() - began:.0f} s", flush=True)


def table(records: list[Unit]) -> str:
    """Means over the seeds that have all orders, and the mean rank of each order over models, cuts and seeds."""
    lines = ["| model | seeds | how | " + " | ".join(ORDERS) + " |", "| --- | --- | --- |" + " ---: |" * len(ORDERS)]
    ranks: dict[str, list[float]] = {order: [] for order in ORDERS}
    for record in records:
        at: dict[tuple[str, str], dict[int, float]] = {}
        of_seed: dict[int, set[str]] = {}
        for unit in record["units"]:
            of_seed.setdefault(unit["seed"], set()).add(unit["order"])
        whole = [seed for seed, orders in of_seed.items() if orders == {*ORDERS}]
        for unit in (unit for unit in record["units"] if unit["seed"] in whole):
            at.setdefault((unit["how"], unit["order"]), {})[unit["seed"]] = unit["loss"]
        for how in dict.fromkeys(how for how, _ in at):
            cells = [
                f"{statistics.fmean(at[how, order].values()):.3f}" if (how, order) in at else "" for order in ORDERS
            ]
            lines.append(f"| {TITLES[record['work']]} | {len(whole)} | {how} | {' | '.join(cells)} |")
            if how.startswith("cut"):
                for seed in at[how, "none"]:
                    by_loss = sorted(ORDERS, key=lambda order: at[how, order][seed])
                    for order in ORDERS:
                        ranks[order].append(1 + by_loss.index(order))
    mean = [f"{statistics.fmean(each):.2f}" if each else "" for each in ranks.values()]
    return "\n".join([*lines, f"| all | | mean rank of the cuts (1 is best) | {' | '.join(mean)} |"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", nargs="+", choices=[*WORKS], default=[*WORKS])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--folder", type=Path, help="of the files (default: benchmarks/results/importance)")
    parser.add_argument("--data-root")
    parser.add_argument("--few", action="store_true", help="a few steps of each training, to try the program")
    parser.add_argument("--table", action="store_true", help="print the table and write it to docs/benchmarks.md")
    given = parser.parse_args(arguments)
    folder = given.folder or HERE / "results" / "importance"
    if given.table:
        paths = [folder / f"{name}.json" for name in WORKS]
        text = table([json.loads(path.read_text()) for path in paths if path.exists()])
        print(text)
        write_between_marks(PAGE, "importance", text)
        return
    if given.folder is None and (given.few or not committed()):
        parser.error("type --folder FOLDER: the default folder is for committed code and whole trainings")
    torch.set_num_threads(1)
    for name in given.work:
        run(name, given.seeds, folder / f"{name}.json", data_root(given.data_root), given.few)


if __name__ == "__main__":
    main()
