"""Compare NGN with other ways to a smaller model: same work, data, optimiser, batches and number of steps.

    python benchmarks/bench_rivals.py [--scale small] [--work transformer resnet20] [--seeds 0 1 2] [--data-root FOLDER]
    python benchmarks/bench_rivals.py --table
    python benchmarks/bench_rivals.py --validation --set lr_boundary=0.2 --folder FOLDER --shares 50 --seeds 100
    python benchmarks/bench_rivals.py --work trained20 --equal-time    after the same without it
    python benchmarks/bench_rivals.py --work trained20 --peaks

A model may have at most 50, 25 or 75 % of the dense one's parameters, of its multiply-adds (`trained20`), or of its
feed-forward parameters (`smollm2`). The number of steps includes those before and after a cut. Every unit (work,
method, share, seed) writes one file when it ends. Units with a file are skipped, so the program can be stopped and
started again. The final score uses test data. Choose settings with --validation, which scores on data held back from
training; each method then takes the best of its runs in FOLDER/search. Latency is the forward pass on one thread, in
turns with the dense model; the median ratio within a round counts. Peak memory is measured by itself (--peaks): a new
process trains as the unit does, but for a few steps. Torch-Pruning needs the extra `rivals`.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from rivals import settings, table
from rivals.all import METHODS, NEEDS, TRAINED, WHOLE, WORKS, missing
from rivals.clock import CLOCK
from rivals.methods import seeded
from rivals.work import SCALES, Settings, Workload, parameters
from safetensors.torch import save_file
from torch import Tensor, nn
from units import committed, write, write_between_marks

from experiments.data.errors import DataError
from experiments.data.source import data_root
from experiments.runs import host
from experiments.store import provenance

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
SHARES, SEEDS = (50, 25, 75), (0, 1, 2)
ROUNDS, LEAST, LONGEST = 25, 5, 20.0
"""Rounds of a latency; after the first few no more than this many seconds."""
PEAK_STEPS = 20
SEARCH = "search"
"""Folder of the validation runs from which each method's settings follow, in the folder of the results."""


@torch.no_grad()
def latency(dense: nn.Module, small: nn.Module, example: Tensor) -> dict[str, float]:
    """Return the dense model's median forward time in ms, and the median ratio of the other model's time."""

    def seconds(model: nn.Module) -> float:
        began = time.perf_counter()
        model(example)
        return time.perf_counter() - began

    for model in (dense, small):
        seconds(model)
    pairs: list[tuple[float, float]] = []
    began = time.perf_counter()
    while len(pairs) < LEAST or (len(pairs) < ROUNDS and time.perf_counter() - began < LONGEST):
        pairs.append((seconds(dense), seconds(small)))
    ratio = statistics.median(after / before for before, after in pairs)
    return {"dense_ms": 1000 * statistics.median(before for before, _ in pairs), "ratio": ratio}


def allowed(work: Workload, most: int, share: int) -> int:
    """What a model may cost at ``share`` % of the dense model's cost ``most``. What no method cuts is in both."""
    return work.outside + (most - work.outside) * share // 100


def peak(given: argparse.Namespace, name: str, method: str, share: int) -> dict[str, Any]:
    """Train one model for a few steps in this process, and return what memory it had more at its most, MiB."""
    torch.set_num_threads(1)
    work = Works(given)(name, {"steps": PEAK_STEPS})
    limit = allowed(work, work.cost(seeded(work, 0).eval()), share)
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak until now
    before = host.peak_mib()
    METHODS[method](work, 0, limit)
    return {
        "work": name,
        "method": method,
        "share": share,
        "scale": given.scale,
        "peak_mib": round(host.peak_mib() - before),
        "settings": dataclasses.asdict(work.settings),
        "commit": provenance.code().commit,
        "packages": provenance.packages(),
        "machine": provenance.machine(),
    }


def peaks(given: argparse.Namespace, folder: Path) -> None:
    """Measure the peak memory of each method with a unit of seed 0, each in a new process."""
    cells = [
        (one["work"], one["method"], one["share"])
        for one in table.read_results(folder)
        if one["work"] in given.work and one["method"] in given.methods and one["share"] in (100, *given.shares)
        if one["seed"] == 0 and one.get("equal", "steps") == "steps"
    ]
    if not cells:
        print(f"{folder} has no such unit of seed 0: train it first, without --peaks")
    spawn = multiprocessing.get_context("spawn")
    for cell in cells:
        path = folder / table.PEAKS / f"{table.named(*cell)}.json"
        if path.exists():
            continue
        with ProcessPoolExecutor(1, mp_context=spawn) as alone:
            write(path, done := alone.submit(peak, given, *cell).result())
        print(f"{path.stem}: {done['peak_mib']} MiB", flush=True)


def unit(work: Workload, method: str, share: int, seed: int, validation: bool) -> tuple[dict[str, Any], nn.Module]:
    """Train one model, measure it, and return both.

    Raises:
        RuntimeError: if the model exceeds its limit.
    """
    whole = seeded(work, seed).eval()
    most = work.cost(whole)
    limit = allowed(work, most, share)
    CLOCK.start()
    model = METHODS[method](work, seed, limit)
    if (cost := work.cost(model)) > limit:
        raise RuntimeError(f"{method} left {cost:,} {work.limited}, more than {limit:,}")
    spent = CLOCK.seconds()
    with torch.no_grad():
        score = work.score(model, not validation)
    return {
        "work": work.name,
        "method": method,
        "share": share,
        "seed": seed,
        "parameters": parameters(model),
        "dense": parameters(whole),
        "limited": work.limited,
        "cost": cost - work.outside,
        "dense_cost": most - work.outside,
        "score": score,
        "unit": work.unit,
        "better": work.better,
        "scored": "validation" if validation else "test",
        "latency": latency(whole, model, work.example),
        "latency_at": {n: latency(whole, model, work.example[:n])["ratio"] for n in (1, 16)},
        "shapes": {name: list(p.shape) for name, p in model.named_parameters() if p.dim() > 1},
        "processor_seconds": round(spent, 1),
        "settings": dataclasses.asdict(work.settings),
        "data": dataclasses.asdict(work.info),
        "base": dataclasses.asdict(work.base) if work.base else None,
        "commit": provenance.code().commit,
        "packages": provenance.packages() | {p: version(p) for p in NEEDS.values() if find_spec(p)},
        "machine": provenance.machine(),
    }, model


class Works:
    """The works, each made once for its settings."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.root = given, data_root(given.data_root)
        self.made: dict[tuple[Any, ...], Workload] = {}

    def __call__(self, name: str, changes: dict[str, Any]) -> Workload:
        key = (name, *sorted(changes.items()))
        if key not in self.made:
            base = {"base": self.given.base} if self.given.base else {}
            self.made[key] = WORKS[name](self.given.scale, self.root, **base, **changes)
        return self.made[key]


def run(given: argparse.Namespace, folder: Path, changes: dict[str, Any]) -> None:
    """Make the units without a file: for each work and seed the dense model, then each share."""
    works = Works(given)
    for name in given.work:
        methods = [method for method in METHODS if method in given.methods]
        cells = [(100, method) for method in methods if method in WHOLE and not given.equal_time]
        cells += [(share, method) for share in given.shares for method in methods if method not in WHOLE]
        for seed, (share, method) in itertools.product(given.seeds, cells):
            more = changes or ({} if given.validation else settings.chosen(folder / SEARCH, name, method))
            ending = "".join(f"-{key}{value}" for key, value in sorted(changes.items()))
            if given.equal_time:
                if (steps := settings.steps_in_time(folder, name, method, share)) is None:
                    continue
                more, ending = more | {"steps": steps}, "-time"
            path = folder / f"{table.named(name, method, share)}{ending}-s{seed}.json"
            if path.exists() or method in (work := works(name, more)).meaningless:
                continue
            if (package := missing(method)) is not None:
                print(f"{path.stem}: left out, as {package} is not installed", flush=True)
                continue
            done, model = unit(work, method, share, seed, given.validation)
            done |= {"scale": given.scale, "changes": more, "equal": "processor time" if given.equal_time else "steps"}
            write(path, done)
            if given.keep:
                save_file({key: value.contiguous() for key, value in model.state_dict().items()}, given.keep)
            print(f"{path.stem}: {done['score']:.3f} {work.unit}, {done['processor_seconds']:.0f} s", flush=True)


def change(text: str) -> tuple[str, Any]:
    """Parse a setting ``name=value``."""
    name, _, value = text.partition("=")
    kinds: dict[str, Callable[[str], Any]] = {
        f.name: type(f.default) if f.default is not dataclasses.MISSING else int for f in dataclasses.fields(Settings)
    }
    if name not in kinds:
        raise argparse.ArgumentTypeError(f"no setting {name!r}; there are {', '.join(kinds)}")
    return name, value == "True" if kinds[name] is bool else kinds[name](value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="small", help="how much data and how many steps")
    parser.add_argument("--work", nargs="+", choices=[*WORKS], default=[*WORKS])
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], default=[*METHODS])
    parser.add_argument("--shares", nargs="+", type=int, default=SHARES, help="per cent of the dense cost")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--folder", type=Path, help="of the files (default: benchmarks/results/rivals/SCALE)")
    parser.add_argument("--data-root")
    parser.add_argument("--validation", action="store_true", help="score on validation data, to choose settings")
    parser.add_argument("--set", nargs="+", type=change, default=[], metavar="NAME=VALUE", help="with --validation")
    parser.add_argument("--base", type=Path, help="weights instead of the trained ones, with --validation")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the weights of the last model")
    parser.add_argument(
        "--equal-time", action="store_true", help="as many steps as take the dense model's processor time of seed 0"
    )
    parser.add_argument("--peaks", action="store_true", help="measure the peak memory of the methods run (Linux)")
    parser.add_argument("--table", action="store_true", help="print the table, write it to docs/benchmarks.md, draw it")
    given = parser.parse_args(arguments)
    folder = given.folder or HERE / "results" / "rivals" / given.scale
    if given.table:
        from rivals import figure  # it needs matplotlib, and training does not

        text = table.table(table.read_results(folder), sorted(SHARES), table.read_results(folder / table.PEAKS))
        print(text)
        write_between_marks(PAGE, f"rivals {given.scale}", text)
        figure.draw(table.read_results(folder), PAGE.with_name(f"rivals_{given.scale}.svg"))
        return
    if given.set and not given.validation:
        parser.error("--set needs --validation")
    real = [name for name in given.work if name in TRAINED and given.scale != "tiny"]
    if given.validation and real and not given.base:
        parser.error(
            "the trained networks have seen the validation images. Train one that has not, with --work scratch20 "
            "--methods dense --keep FILE, and give it with --base FILE"
        )
    if given.peaks and sys.platform != "linux":
        parser.error("--peaks needs Linux, which alone can forget a peak")
    if given.base and not given.validation:
        parser.error("--base needs --validation")
    if given.folder is None and (given.validation or not committed()):
        parser.error("type --folder FOLDER: the default folder is for committed code and test data only")
    torch.set_num_threads(1)
    try:
        peaks(given, folder) if given.peaks else run(given, folder, dict(given.set))
    except DataError as fault:
        parser.exit(2, f"{fault}\n")


if __name__ == "__main__":
    main()
