"""NGN beside other ways to make a finished module smaller: same data, batches and number of steps.

``python scripts/rivals.py`` prints the tables of its records. Means over seeds have half of Student's interval of 95 %;
differences are of equal seeds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.analysis import estimates
from experiments.analysis.selection import Selection, selected_runs
from experiments.core.needs import Needs
from experiments.core.paths import RESULTS
from experiments.store.records import Store
from experiments.studies.model import Study

if TYPE_CHECKING:
    import pandas as pd

FOLDER = RESULTS / "rivals"
"""The study's records. Those of before 2026-11-28 were converted once from files of a benchmark, and say so."""
SHARES = (25, 40, 50, 60, 75)
LEVEL = 0.05
LATENCIES = ("batch", "16", "1")


@dataclass(frozen=True)
class RivalWork:
    """A module to make smaller, and the length of its training.

    Attributes:
        title, scale: what the table calls it.
        choices, overrides: its configuration.
        steps: steps of a training of equal steps; other lengths are of equal processor time.
        score, unit, better: the key of the score, its unit, and 1 if more is better, else -1.
        samples, held: what is scored, and how many of them, which can be fewer than the limit ``task.held``.
        small: differences within which two methods are called equal.
        digits: digits of a score behind the point.
        shares, seeds: planned runs.
        settings: method → its own settings, the best on validation data.
        timed: (method, share) → the steps that take the processor time of the dense model.
        together: method of :data:`FRONTS` → the steps with which one training of all sizes takes the processor time of
            a dense model and of one smaller model a share; the last one has a column.
        methods: the methods of :data:`METHODS` that it has.
    """

    title: str
    scale: str
    choices: Mapping[str, str]
    steps: int
    held: int
    methods: tuple[str, ...]
    shares: tuple[int, ...]
    seeds: int
    overrides: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    timed: Mapping[tuple[str, int], int] = field(default_factory=dict)
    limited: str = "macs"
    score: str = "accuracy"
    unit: str = "accuracy, %"
    better: int = 1
    samples: str = "images"
    small: float = 0.3
    digits: int = 2
    together: Mapping[str, int] = field(default_factory=dict)


METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("dense", {}),
    "NGN": ("ngn", {"phases": ("grown", "fixed")}),
    "NGN, sizes fixed early": ("ngn", {"schedule.commit": 0.1}),
    "NGN's sizes from scratch": ("ngn", {"phases": ("grown", "fixed")}),
    "shrunk to even sizes": ("gradual", {}),
    "uniform width": ("width", {}),
    "even sizes": ("even", {"method.at": 0.0}),
    "even sizes, cut half-way": ("even", {}),
    "magnitude": ("magnitude", {}),
    "Torch-Pruning": ("torch_pruning", {}),
    "Torch-Pruning, local": ("torch_pruning", {"method.ranking": "local"}),
    "Torch-Pruning, sparsity": ("torch_pruning", {"method.sparsity": 3.0}),
    "MorphNet": ("morphnet", {"method.strength": 3.0}),
    "BAR": ("bar", {}),
    "Wanda, even": ("wanda", {}),
    "Minitron": ("minitron", {}),
    "Sheared-LLaMA's masks": ("sheared", {}),
    "one training": ("front", {}),
    "one training, equal time": ("front", {}),
    "one training, teacher": ("front", {"method.teacher": True}),
    "one training, residual": ("front", {"method.residual": True}),
    "as given": ("given", {}),
    "dense, cut after training": ("magnitude", {"method.at": 1.0}),
}
"""Method in the tables → the method of the suite, and its settings."""
SCRATCH = "NGN's sizes from scratch"
"""The second phase of NGN."""
WHOLE = ("dense", "as given")
CUT = "dense, cut after training"
"""No step follows the cut, so it has the settings of the dense model."""
FRONTS = ("one training", "one training, equal time", "one training, teacher", "one training, residual")
"""All sizes at once, with the steps of one separate training, or the time of all. A run is a line at several shares."""
OWN = ("NGN", "NGN, sizes fixed early")
"""Our methods. Each that was run has a column: by how much it is better than the others."""
LIMITS = {"parameters": "parameters", "macs": "multiply-adds"}
_NETWORK = ("NGN", "NGN's sizes from scratch", "NGN, sizes fixed early", "even sizes, cut half-way", "magnitude",
            "Torch-Pruning", "Torch-Pruning, local", "Torch-Pruning, sparsity", "MorphNet", "BAR")  # fmt: skip
_FRESH = ("NGN", "NGN's sizes from scratch", "shrunk to even sizes", "uniform width", "even sizes",
          "even sizes, cut half-way", "magnitude", "Torch-Pruning")  # fmt: skip
_OWN = {method: {"train.lr": 1e-3} for method in ("dense", CUT)}
_OWN |= {"MorphNet": {"train.lr": 1e-2}, "BAR": {"train.lr_boundary": 0.2}}
_TRAINED = {"train.lr": 3e-3, "train.lr_boundary": 0.6}
_TEXT: dict[str, Any] = {"limited": "parameters", "score": "bits_per_character", "unit": "bits per character",
                         "better": -1, "samples": "characters", "small": 0.02, "digits": 3}  # fmt: skip
_IMAGES = {"task": "cifar10", "gate": "channels"}
_STORIES = {"task": "tinystories", "gate": "units"}
WORKS = {
    "trained20": RivalWork(
        "ResNet-20, trained, on CIFAR-10", "full", _IMAGES | {"model": "resnet20"}, 1053, 10_000, _NETWORK, (25, 50), 5,
        _TRAINED, _OWN,
        {("NGN, sizes fixed early", 25): 1538, ("NGN, sizes fixed early", 50): 1345,
         ("Torch-Pruning, local", 25): 1858, ("Torch-Pruning, local", 50): 1308,
         ("magnitude", 25): 1782, ("magnitude", 50): 1392},
    ),
    "trained56": RivalWork(
        "ResNet-56, trained, on CIFAR-10", "full", _IMAGES | {"model": "resnet56"}, 1053, 10_000, _NETWORK, (25, 50), 3,
        _TRAINED, _OWN,
    ),
    "scratch20": RivalWork("ResNet-20 from scratch on CIFAR-10", "full", _IMAGES, 7020, 10_000, _FRESH, (50,), 3),
    "resnet20": RivalWork(
        "ResNet-20 with maps as shortcuts on CIFAR-10", "small", _IMAGES, 400, 5_000, _FRESH, SHARES, 3,
        {"gate.shortcuts": "maps", "train.batch": 64, "train.lr": 3e-3, "train.weight_decay": 0.0,
         "train.autocast": "none"}, limited="parameters",
    ),
    "transformer": RivalWork(
        "Transformer on TinyStories", "full", _STORIES, 10_000, 793_450, _FRESH, (50,), 3, {"task.held": 1_000_000},
        {"Torch-Pruning": {"method.at": 0.25}, "magnitude": {"method.at": 0.1}, "uniform width": {"train.lr": 0.045}},
        {("NGN", 50): 14842, ("Torch-Pruning", 50): 14397}, **_TEXT,
    ),
    "transformer_small": RivalWork(
        "Transformer on TinyStories", "small", _STORIES, 400, 200_000, _FRESH, SHARES, 3,
        {"task.held": 200_000, "train.batch": 16, "train.lr": 3e-2, "train.lr_boundary": 0.4, "schedule.commit": 0.5},
        **_TEXT,
    ),
    "front_stories": RivalWork(
        "Transformer on TinyStories, from scratch", "front", _STORIES, 3000, 200_000,
        (*FRONTS[:2], FRONTS[3], "even sizes", "uniform width", "NGN", "Torch-Pruning", CUT), (25, 50, 75), 5,
        {"task.held": 200_000, "train.batch": 16}, {"Torch-Pruning": {"method.at": 0.25}},
        together={FRONTS[1]: 12_700, FRONTS[3]: 12_700}, **_TEXT,
    ),
    "front20": RivalWork(
        "ResNet-20, trained, on CIFAR-10", "front", _IMAGES | {"model": "resnet20"}, 1053, 10_000,
        (*FRONTS[:3], "magnitude", "NGN, sizes fixed early", "Torch-Pruning, local", CUT), (25, 50, 75), 5, _TRAINED,
        _OWN,
        together={FRONTS[1]: 3750, FRONTS[2]: 2800},
    ),
    "smollm2": RivalWork(
        "SmolLM2-135M, trained, on WikiText-2, shares of its feed-forward parameters", "full", {"task": "wikitext2"},
        60, 16_384, ("NGN", "NGN, sizes fixed early", "magnitude", "Wanda, even", "Minitron", "Sheared-LLaMA's masks"),
        (75,), 3, settings={"Sheared-LLaMA's masks": {"train.lr_boundary": 0.2}}, limited="parameters", score="loss",
        unit="nats per token", better=-1, samples="tokens", small=0.01, digits=3,
    ),
}  # fmt: skip


def selection(work: RivalWork, method: str, share: int, seeds: Iterable[int], **changes: Any) -> Selection:
    """Select the runs of a method at a share of the limited cost; a whole module ignores the share."""
    name, own = METHODS[method]
    both = {"limit.macs": None, "limit.parameters": None, f"limit.{work.limited}": f"{share}%"}
    overrides = {**both, "train.steps": work.steps, **work.overrides, **own, **work.settings.get(method, {}), **changes}
    return Selection.of({**work.choices, "method": name}, overrides, seeds)


def _planned() -> Iterator[tuple[str, str, int, str, Selection]]:
    """Yield (work, method, share, whether it has the steps of the others or their processor time, runs)."""
    for name, work in WORKS.items():
        seeds = range(work.seeds)
        yield name, "dense", 100, "steps", selection(work, "dense", 100, seeds)
        for share, method in itertools.product(work.shares, work.methods):
            if method != SCRATCH and (method not in FRONTS or share == min(work.shares)):
                steps = work.together.get(method, work.steps)
                yield name, method, share, "steps", selection(work, method, share, seeds, **{"train.steps": steps})
        for (method, share), steps in work.timed.items():
            longer = selection(work, method, share, seeds, **{"train.steps": steps, "phases": ("grown",)})
            yield name, method, share, "processor time", longer
        if "model" in work.choices or work.choices["task"] == "wikitext2":
            given = selection(work, "as given", 100, seeds if work.score == "loss" else range(1))
            yield name, "as given", 100, "steps", given


STUDY = Study(
    "rivals",
    "NGN beside other ways to make a finished module smaller (docs/benchmarks.md)",
    lambda: [runs for *_, runs in _planned()],
    results=FOLDER,
    rank=520,
    needs=Needs(memory_gb=8),
)


def fronts(store: Store) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield (work, method, each seed's members by share) of trainings with the time of all separate ones."""
    for name, method, _, _, runs in _planned():
        records = [store.get(run.id) for run in selected_runs(runs)] if method in FRONTS[1:] else []
        if there := [record["phases"]["grown"]["members"] for record in records if record is not None]:
            yield name, method, there


def read(folder: Path) -> pd.DataFrame:
    """Read the smaller modules of a folder of records, one for each phase of a planned run.

    Returns:
        The columns work, method, share (its limit, in % of the whole module's cost; 100 for whole modules), seed, part
        (its cost, in % of the whole module's), score, equal ("steps" or "processor time"), the latencies of a batch,
        16 and 1 sample over those of the whole module, seconds, peak (MiB), cpu and batch_size.
    """
    import pandas as pd  # imported here: it takes longer than most commands need

    # this run was made without its second phase
    alone = selection(WORKS["scratch20"], "NGN", 50, (0,), phases=("grown",))
    store, rows = Store(folder), []
    for name, method, share, equal, runs in (*_planned(), ("scratch20", "NGN", 50, "steps", alone)):
        for run in selected_runs(runs):
            record = store.get(run.id)
            if record is None or record["status"] != "complete":
                continue
            members = {} if method not in FRONTS else record["phases"]["grown"]["members"]
            most = members["100"]["cost"] if members else 0
            for phase, result in record["phases"].items():
                kind = SCRATCH if (METHODS[method][0], phase) == ("ngn", "fixed") else method
                row = {"work": name, "method": kind, "share": share, "seed": run.config.seed.value, "equal": equal}
                row |= {"part": 100.0 if method in (*WHOLE, *FRONTS) else _part(result), "seconds": result["seconds"]}
                row |= {"score": result["truncated"][WORKS[name].score], "peak": result.get("peak_memory_mib")}
                row |= {"cpu": record["hardware"]["cpu"], "batch_size": record["config"]["train"]["batch"]}
                if not members:
                    rows.append(row | {of: result["cost"].get("ratios", {}).get(of) for of in LATENCIES})
                for part, member in members.items():
                    own = {"part": 100 * member["cost"] / most, "score": member["scores"][WORKS[name].score]}
                    rows.append(row | own | {"share": int(part)} | dict.fromkeys(LATENCIES))
    return pd.DataFrame(rows)


def _part(result: Mapping[str, Any]) -> float:
    """The cost of a smaller module, in % of the whole one's."""
    budget = result["budget"]
    if budget["kind"] == "macs":
        costs = result["cost"]["multiply_adds"]
        return float(100 * costs["deployed"] / costs["candidate"])
    outside = budget.get("outside", 0)
    return float(100 * (budget["cost"] - outside) / (result["parameters"]["candidate"] - outside))


def tables(results: pd.DataFrame, scale: str) -> str:
    """Format one Markdown table per work and equality, with sizes and seeds; "--" marks what is missing."""
    parts = []
    for (name, work), equal in itertools.product(WORKS.items(), ("steps", "processor time")):
        these = results[(results.work == name) & (results.equal == equal)]
        if these.empty or work.scale != scale:
            continue
        budget = f"{work.steps:,} steps"
        if equal != "steps":
            budget = "the dense model's processor time, in batches"
        elif work.together:
            budget += f" (equal time: {' or '.join(f'{steps:,}' for steps in dict.fromkeys(work.together.values()))})"
        cells = dict(list(these.set_index("seed").groupby(["share", "method"])))
        ours = [own for own in ([*work.together][-1:] or OWN) if own in set(these.method)]
        better = "".join(f" {own} better by |" for own in ours)
        times = "" if work.together else " latency x dense: batch, 16, 1 | training, s | peak, MiB |"  # shared machine
        there = (at for at in itertools.product((100, *SHARES), METHODS) if at in cells)
        lines = [_row(work, cells, method, share, ours) for share, method in there]
        parts.append(
            f"{work.title}, **{work.scale}** budget: {budget} of {these.batch_size.iloc[0]} per method,\n"
            f"{fill(f'{work.held:,} {work.samples} scored, {_processors(these)}', 120)}\n\n"
            f"| {LIMITS[work.limited]} | method | % of dense | {work.unit} |{better}{times} seeds |\n"
            f"| --- | --- | ---: | ---: |{' --- |' * len(ours)}{' ---: |' * times.count('|')} ---: |\n"
            + "\n".join(lines)
        )
    return "\n\n".join(parts)


def _processors(results: pd.DataFrame) -> str:
    """Name the kind of processor of most units, and the methods that have units of another, as times depend on it."""
    most, *others = results.cpu.value_counts().index
    text = f"one thread of {most}"
    for kind in others:
        shares = results[results.cpu == kind].groupby("method").share.unique()
        models = (f"{method} at {', '.join(map(str, sorted(of)))} %" for method, of in shares.items())
        text += f"; of {kind} for some or all models of {'; '.join(models)}"
    return text


def _row(
    work: RivalWork, cells: Mapping[tuple[int, str], pd.DataFrame], method: str, share: int, ours: Iterable[str]
) -> str:
    """Format one method at one share of the limited cost: means over seeds and their intervals of 95 %."""
    digits, these = f".{work.digits}f", cells[share, method]

    def better(own: str) -> str:
        if own == method or (share, own) not in cells:
            return "--"
        apart = (work.better * (cells[share, own].score - these.score)).dropna()
        word = verdict(apart, work.small)
        return mean(apart, "+" + digits) + (f", {word}" if word else "")

    part = mean(these.part, ".1f", spread=False)
    texts = [f"{share} %", method, part, mean(these.score, digits), *map(better, ours)]
    if not work.together:
        texts.append(", ".join(mean(these[of], ".2f", spread=False) for of in LATENCIES))
        texts += [mean(these[of], ".0f", spread=False) for of in ("seconds", "peak")]
    return f"| {' | '.join([*texts, str(len(these))])} |"


def mean(values: Iterable[float | None], text: str, spread: bool = True) -> str:
    """Format the mean and, for several values, half of Student's interval of 95 %; missing values are left out."""
    there = np.array([value for value in values if value is not None and value == value], dtype=float)
    middle = format(np.mean(there), text) if len(there) else "--"
    if not spread or len(there) < 2:
        return middle
    interval = estimates.mean(there).at(LEVEL)
    return f"{middle} ± {format(interval.high - interval.value, text.lstrip('+'))}"


def verdict(better: Sequence[float], small: float) -> str:
    """Say where the interval of our advantage lies: ahead, behind, equal (within ``small``) or cannot tell.

    Nothing is said of a single seed.
    """
    if len(better) < 2:
        return ""
    interval = estimates.mean(np.array(better)).at(LEVEL)
    if interval.low > 0 or interval.high < 0:
        return "ahead" if interval.low > 0 else "behind"
    return "equal" if -small <= interval.low and interval.high <= small else "cannot tell"
