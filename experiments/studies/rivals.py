"""NGN beside other ways to make a finished module smaller: same data, batches and number of steps.

``python scripts/rivals.py`` prints the tables of its records. Means over seeds have half of Student's interval of 95 %;
differences are of equal seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from experiments.analysis import estimates
from experiments.analysis.selection import Selection
from experiments.core.needs import Needs
from experiments.core.paths import RESULTS
from experiments.store.records import Store, read_record
from experiments.studies.model import Study

FOLDER = RESULTS / "rivals"
"""The study's records. Those of before 2026-11-28 were converted once from files of a benchmark, and say so."""
SHARES = (25, 50, 75)
LEVEL = 0.05


@dataclass(frozen=True)
class RivalWork:
    """A module to make smaller, and the length of its training.

    Attributes:
        title, scale: what the table calls it.
        choices, overrides: its configuration.
        steps: steps of a training of equal steps; other lengths are of equal processor time.
        score, unit, better: the key of the score, its unit, and 1 if more is better, else -1.
        samples, held: what is scored, and how many of them.
        small: differences within which two methods are called equal.
        digits: digits of a score behind the point.
        shares, seeds: planned runs.
        settings: method → its own settings, the best on validation data.
        timed: (method, share) → the steps that take the processor time of the dense model.
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
    "as given": ("given", {}),
}
"""Method in the tables → the method of the suite, and its settings."""
SCRATCH = "NGN's sizes from scratch"
"""The second phase of NGN."""
WHOLE = ("dense", "as given")
OWN = ("NGN", "NGN, sizes fixed early")
"""Our methods. Each that was run has a column: by how much it is better than the others."""
LIMITS = {"parameters": "parameters", "macs": "multiply-adds"}
_NETWORK = ("NGN", "NGN's sizes from scratch", "NGN, sizes fixed early", "even sizes, cut half-way", "magnitude",
            "Torch-Pruning", "Torch-Pruning, local", "Torch-Pruning, sparsity", "MorphNet", "BAR")  # fmt: skip
_FRESH = ("NGN", "NGN's sizes from scratch", "shrunk to even sizes", "uniform width", "even sizes",
          "even sizes, cut half-way", "magnitude", "Torch-Pruning")  # fmt: skip
_OWN = {
    "dense": {"train.lr": 1e-3}, "MorphNet": {"train.lr": 1e-2}, "BAR": {"train.lr_boundary": 0.2},
}  # fmt: skip
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
        "Transformer on TinyStories", "full", _STORIES, 10_000, 1_000_000, _FRESH, (50,), 3, {"task.held": 1_000_000},
        {"Torch-Pruning": {"method.at": 0.25}, "magnitude": {"method.at": 0.1}, "uniform width": {"train.lr": 0.045}},
        {("NGN", 50): 14842, ("Torch-Pruning", 50): 14397}, **_TEXT,
    ),
    "transformer_small": RivalWork(
        "Transformer on TinyStories", "small", _STORIES, 400, 200_000, _FRESH, SHARES, 3,
        {"task.held": 200_000, "train.batch": 16, "train.lr": 3e-2, "train.lr_boundary": 0.4, "schedule.commit": 0.5},
        **_TEXT,
    ),
    "smollm2": RivalWork(
        "SmolLM2-135M, trained, on WikiText-2, shares of its feed-forward parameters", "full", {"task": "wikitext2"},
        60, 16_384, ("NGN", "NGN, sizes fixed early", "magnitude", "Wanda, even", "Minitron", "Sheared-LLaMA's masks"),
        (75,), 3, settings={"Sheared-LLaMA's masks": {"train.lr_boundary": 0.2}}, limited="parameters", score="loss",
        unit="nats per token", better=-1, samples="tokens", small=0.01,
        digits=3,
    ),
}  # fmt: skip


def selection(work: RivalWork, method: str, share: int, seeds: Iterable[int], **changes: Any) -> Selection:
    """Select the runs of a method at a share of the limited cost; a whole module ignores the share."""
    name, own = METHODS[method]
    both = {"limit.macs": None, "limit.parameters": None, f"limit.{work.limited}": f"{share}%"}
    more = work.settings.get(method, {})
    overrides = {**both, "train.steps": work.steps, **work.overrides, **own, **more, **changes}
    return Selection.of({**work.choices, "method": name}, overrides, seeds)


def _make() -> list[Selection]:
    found = []
    for work in WORKS.values():
        seeds = range(work.seeds)
        found += [selection(work, "dense", 100, seeds)]
        found += [
            selection(work, method, share, seeds)
            for share in work.shares
            for method in work.methods
            if method != SCRATCH
        ]
        for (method, share), steps in work.timed.items():
            found.append(selection(work, method, share, seeds, **{"train.steps": steps, "phases": ("grown",)}))
        if "model" in work.choices or work.choices["task"] == "wikitext2":
            found.append(selection(work, "as given", 100, seeds if work.score == "loss" else range(1)))
    return found


STUDY = Study(
    "rivals",
    "NGN beside other ways to make a finished module smaller (docs/benchmarks.md)",
    _make,
    results=FOLDER,
    rank=520,
    needs=Needs(memory_gb=8),
)


@dataclass(frozen=True)
class Unit:
    """One smaller module of a record, as the table reads it.

    Attributes:
        share: its limit, in % of the whole module's cost; 100 for whole modules.
        part: its cost, in % of the whole module's.
        equal: whether it has the steps of the others ("steps"), or their processor time.
        latency: batch, 16 and 1 sample → time, over that of the whole module.
    """

    work: str
    method: str
    share: int
    seed: int
    part: float
    score: float
    equal: str
    latency: Mapping[str, float]
    seconds: float
    peak: float | None
    cpu: str
    batch: int
    steps: int


def units(records: Iterable[Mapping[str, Any]]) -> Iterator[Unit]:
    """Return the units of those records that score test data, one for each phase."""
    for record in records:
        config = record["config"]
        if record["status"] != "complete" or config["task"]["split"] != "test" or config["profile"] != "full":
            continue
        if (name := _work_of(config)) is None:
            continue
        for phase, result in record["phases"].items():
            method = _method_of(config, phase)
            yield Unit(
                name,
                method,
                100 if method in WHOLE else _share(config["limit"]),
                config["seed"]["value"],
                100.0 if method in WHOLE else _part(result),
                result["truncated"][WORKS[name].score],
                "steps" if method in WHOLE or result["steps"] == WORKS[name].steps else "processor time",
                result["cost"].get("ratios", {}),
                result["seconds"],
                result.get("peak_memory_mib"),
                record["hardware"]["cpu"],
                config["train"]["batch"],
                result["steps"],
            )


def _share(limit: Mapping[str, Any]) -> int:
    return int(float(str(limit["macs"] or limit["parameters"]).rstrip("%")))


def _part(result: Mapping[str, Any]) -> float:
    """The cost of a smaller module, in % of the whole one's."""
    budget = result["budget"]
    if budget["kind"] == "macs":
        costs = result["cost"]["multiply_adds"]
        return float(100 * costs["deployed"] / costs["candidate"])
    outside = budget.get("outside", 0)
    return float(100 * (budget["cost"] - outside) / (result["parameters"]["candidate"] - outside))


def _work_of(config: Mapping[str, Any]) -> str | None:
    """The work of a configuration; None if it is none of this study."""
    task, model, gate = config["task"]["name"], (config.get("model") or {}).get("name"), config["gate"]
    if task == "wikitext2":
        return "smollm2"
    if task == "tinystories" and gate["component"] == "units":
        return "transformer" if config["task"]["held"] == 1_000_000 else "transformer_small"
    if task == "cifar10" and gate["component"] == "channels":
        trained = {"resnet20": "trained20", "resnet56": "trained56"}
        fresh = "resnet20" if gate["shortcuts"] == "maps" else "scratch20"
        return fresh if model is None else trained.get(model)
    return None


def _method_of(config: Mapping[str, Any], phase: str) -> str:
    """The method of a phase, as the tables call it."""
    name, method = config["method"]["name"], config["method"]
    if name == "ngn":
        early = config["schedule"]["commit"] == METHODS[OWN[1]][1]["schedule.commit"]
        return SCRATCH if phase == "fixed" else OWN[early]
    if name == "even":
        return "even sizes" if method["at"] == 0 else "even sizes, cut half-way"
    if name == "torch_pruning":
        local = "Torch-Pruning, local" if method["ranking"] == "local" else "Torch-Pruning"
        return "Torch-Pruning, sparsity" if method["sparsity"] else local
    return next(title for title, (own, _) in METHODS.items() if own == name)


def tables(found: Sequence[Unit], scale: str) -> str:
    """Format one Markdown table per work and equality, with sizes and seeds; "--" marks what is missing."""
    parts = []
    for name, work in WORKS.items():
        for equal in ("steps", "processor time"):
            these = [unit for unit in found if unit.work == name and unit.equal == equal]
            if not these or work.scale != scale:
                continue
            budget = f"{work.steps:,} steps" if equal == "steps" else "the dense model's processor time, in batches"
            ours = [own for own in OWN if any(unit.method == own for unit in these)]
            better = "".join(f" {own} better by |" for own in ours)
            parts.append(
                f"{work.title}, **{work.scale}** budget: {budget} of {these[0].batch} per method,\n"
                f"{fill(f'{work.held:,} {work.samples} scored, {_processors(these)}', 120)}\n\n"
                f"| {LIMITS[work.limited]} | method | % of dense | {work.unit} |{better} latency x dense: "
                "batch, 16, 1 | training, s | peak, MiB | seeds |\n"
                f"| --- | --- | ---: | ---: |{' --- |' * len(ours)} ---: | ---: | ---: | ---: |"
            )
            parts[-1] += "".join(
                f"\n{_row(work, these, method, share, ours)}"
                for share in (100, *SHARES)
                for method in METHODS
                if any((unit.method, unit.share) == (method, share) for unit in these)
            )
    return "\n\n".join(parts)


def _processors(found: Sequence[Unit]) -> str:
    """Name the kind of processor of most units, and the methods that have units of another, as times depend on it."""
    (most, _), *others = Counter(unit.cpu for unit in found).most_common()
    text = f"one thread of {most}"
    for kind, _ in others:
        these = {(unit.method, unit.share) for unit in found if unit.cpu == kind}
        shares = {method: ", ".join(f"{s}" for m, s in sorted(these) if m == method) for method, _ in sorted(these)}
        text += f"; of {kind} for some or all models of " + "; ".join(
            f"{method} at {of} %" for method, of in shares.items()
        )
    return text


def _row(work: RivalWork, found: Sequence[Unit], method: str, share: int, ours: Iterable[str]) -> str:
    """Format one method at one share of the limited cost: means over seeds and their intervals of 95 %."""
    digits = f".{work.digits}f"

    def of(name: str) -> dict[int, Unit]:
        return {unit.seed: unit for unit in found if (unit.method, unit.share) == (name, share)}

    def better(own: str) -> str:
        other = of(own) if own != method else {}
        apart = [work.better * (other[seed].score - unit.score) for seed, unit in these.items() if seed in other]
        said = verdict(apart, work.small)
        return mean(apart, "+" + digits) + (f", {said}" if said else "")

    these = of(method)
    peaks = [unit.peak for unit in these.values() if unit.peak is not None]
    ratios = [[unit.latency[n] for unit in these.values() if n in unit.latency] for n in ("batch", "16", "1")]
    cells = [
        f"{share} %",
        method,
        mean([unit.part for unit in these.values()], ".1f", spread=False),
        mean([unit.score for unit in these.values()], digits),
        *map(better, ours),
        ", ".join(mean(each, ".2f", spread=False) for each in ratios),
        mean([unit.seconds for unit in these.values()], ".0f", spread=False),
        mean(peaks, ".0f", spread=False),
        str(len(these)),
    ]
    return f"| {' | '.join(cells)} |"


def mean(values: Sequence[float], text: str, spread: bool = True) -> str:
    """Format the mean and, for several values, half of Student's interval of 95 %."""
    if not values:
        return "--"
    middle = format(np.mean(values), text)
    if not spread or len(values) < 2:
        return middle
    interval = estimates.mean(np.array(values)).at(LEVEL)
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


def read(folder: Path) -> list[Unit]:
    """Read the units of a folder of records."""
    store = Store(folder)
    return list(units(read_record(path) for path in sorted(store.paths())))
