"""When should a budget fix the sizes of a network that is trained already?

    python benchmarks/bench_commit.py [--work transformer resnet20] [--seeds 100 101 102 103 104] [--data-root FOLDER]
    python benchmarks/bench_commit.py --table

The works are those that `bench_rivals.py` trains from scratch. Here each is trained first, for longer, then cut and
fine-tuned in one of several ways of equal length, each scored on validation data. Every (work, share, seed) has one
file, written anew after every training; trainings in it are skipped.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from rivals import methods
from rivals.all import WORKS
from rivals.table import mean
from rivals.work import SCALES, Workload, parameters
from torch import nn
from units import HERE, committed, refuse_others, write, write_between_marks

import ngn
from experiments.data.errors import DataError
from experiments.data.source import data_root
from experiments.store import provenance

PAGE = HERE.parent / "docs" / "benchmarks.md"
SHARES, SEEDS = (50, 25), (100, 101, 102, 103, 104)
USUAL = "fixed at 40 %"
LENGTHS = {"transformer": (2_000, 200), "resnet20": (1_600, 200)}
"""Steps of the first training and of the fine-tuning, which has a third of the other's peak rate."""
PRECISION = {"transformer": "none", "resnet20": "bf16"}


def pretrained(name: str, scale: str, root: Path) -> Workload:
    """The work of fine-tuning a network that this function trains."""
    first, then = LENGTHS[name] if scale != "tiny" else (4, 10)
    work = WORKS[name](scale, root, steps=first, autocast=PRECISION[name])
    whole = methods.dense(work, 0, 0)

    def model(width: float) -> nn.Module:
        if width != 1:
            raise ValueError("trained weights are of the whole width")
        return copy.deepcopy(whole)

    then_on = methods.changed(work, steps=then, lr=work.settings.lr / 3, before=0.0)
    return replace(then_on, model=model, order="magnitude")


def fixed_at(commit: float) -> Callable[[Workload, int, int], nn.Module]:
    """Learn sizes and weights together; sizes are integers from ``commit`` on."""
    return lambda work, seed, limit: methods.learned(methods.changed(work, commit=commit), seed, limit)


def at_once(work: Workload, seed: int, limit: int) -> nn.Module:
    """Cut the trained network to the sizes that the usual way learns; a second training."""
    return methods.scratch(methods.changed(work, commit=ngn.budget.BUDGET_COMMIT), seed, limit)


def rewound(work: Workload, seed: int, limit: int) -> nn.Module:
    """Learn sizes for a fifth of the steps; cut the trained network to them, and train that for the rest.

    Weights go back to where they were, after Renda et al., "Comparing rewinding and fine-tuning in neural network
    pruning", 2020.
    """
    first = work.settings.steps // 5
    found = methods.learner(methods.changed(work, steps=first, commit=0.8), seed, limit)
    small = methods.of_sizes(work, seed, found)
    return methods.train(methods.changed(work, steps=work.settings.steps - first), small, seed)


WAYS: dict[str, Callable[[Workload, int, int], nn.Module]] = {
    USUAL: fixed_at(0.4),
    "its sizes at once (two trainings)": at_once,
    "fixed at 20 %": fixed_at(0.2),
    "fixed at 10 %": fixed_at(0.1),
    "a fifth of the steps, then the trained weights again": rewound,
    "even sizes by magnitude": methods.magnitude,
}


def run(name: str, given: argparse.Namespace, folder: Path) -> None:
    """Train what the files of a work lack; without anything lacking, nothing is trained."""
    cells = {folder / f"{name}-{share}-s{seed}.json": (seed, share) for seed in given.seeds for share in given.shares}
    found = {path: json.loads(path.read_text()) for path in cells if path.exists()}
    if all(path in found and found[path]["ways"].keys() >= WAYS.keys() for path in cells):
        return
    facts: dict[str, Any] = {"work": name, "commit": provenance.code().commit, "machine": provenance.machine()}
    for path, file in found.items():
        refuse_others(path, file, facts)
    work = pretrained(name, given.scale, data_root(given.data_root))
    whole = work.model(1.0).eval()
    most = work.cost(whole)
    with torch.no_grad():
        facts |= {"unit": work.unit, "better": work.better, "dense": work.score(whole, False)}
    for path, (seed, share) in cells.items():
        done = found.get(path, facts | {"parameters": parameters(whole), "share": share, "seed": seed, "ways": {}})
        for way, train in WAYS.items():
            if way in done["ways"]:
                continue
            model = train(work, seed, most * share // 100)
            if (cost := work.cost(model)) > most * share // 100:
                raise RuntimeError(f"{way} left {cost:,} {work.limited}, more than {share} % of {most:,}")
            with torch.no_grad():
                done["ways"][way] = work.score(model, False)
            write(path, done)
            print(f"{path.stem} {way}: {done['ways'][way]:.3f}", flush=True)


def table(files: Sequence[dict[str, Any]]) -> str:
    """One line for each work and share, one column for each way: the mean, and its gain over the usual way, which is
    positive where it is better, with half of Student's interval of 95 %."""
    lines = [f"| work | share | dense | {' | '.join(WAYS)} | seeds |", f"| --- | ---: {'| ---: ' * (len(WAYS) + 2)}|"]
    for name, share in dict.fromkeys((f["work"], f["share"]) for f in files):
        own = [f for f in files if (f["work"], f["share"]) == (name, share) and len(f["ways"]) == len(WAYS)]
        if not own:
            continue
        cells = []
        for way in WAYS:
            score = statistics.fmean(f["ways"][way] for f in own)
            gains = [f["better"] * (f["ways"][way] - f["ways"][USUAL]) for f in own]
            cells.append(f"{score:.3f}" + (f" ({mean(gains, '+.3f')})" if way != USUAL else ""))
        facts = f"{name}, {own[0]['unit']} | {share} % | {statistics.fmean(f['dense'] for f in own):.3f}"
        lines.append(f"| {facts} | {' | '.join(cells)} | {len(own)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES[:2], default="small", help="tiny: synthetic data, to try the program")
    parser.add_argument("--work", nargs="+", choices=[*LENGTHS], default=[*LENGTHS])
    parser.add_argument("--shares", nargs="+", type=int, default=SHARES, help="per cent of the dense parameters")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--data-root")
    parser.add_argument("--folder", type=Path, help="of the files (default: benchmarks/results/commit)")
    parser.add_argument("--table", action="store_true", help="print the table and write it to docs/benchmarks.md")
    given = parser.parse_args(arguments)
    folder = given.folder or HERE / "results" / "commit"
    if given.table:
        text = table([json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))])
        print(text)
        write_between_marks(PAGE, "commit", text)
        return
    if given.folder is None and (given.scale == "tiny" or not committed()):
        parser.error("type --folder FOLDER: the default folder is for committed code and real data")
    torch.set_num_threads(1)
    try:
        for name in given.work:
            run(name, given, folder)
    except DataError as fault:
        parser.exit(2, f"{fault}\n")


if __name__ == "__main__":
    main()
