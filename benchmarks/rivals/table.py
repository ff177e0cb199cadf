"""Make the table of results from the files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from rivals.all import METHODS, WHOLE

from experiments.analysis import estimates

Unit = dict[str, Any]
TITLES = {
    "trained20": "ResNet-20, trained, on CIFAR-10",
    "trained56": "ResNet-56, trained, on CIFAR-10",
    "longer20": "ResNet-20, trained, 15 epochs, on CIFAR-10",
    "longer56": "ResNet-56, trained, 15 epochs, on CIFAR-10",
    "scratch20": "ResNet-20 from scratch on CIFAR-10",
    "resnet20": "ResNet-20 with maps as shortcuts on CIFAR-10",
    "transformer": "Transformer on TinyStories",
    "smollm2": "SmolLM2-135M, trained, on WikiText-2, shares of its feed-forward parameters",
}
LIMITS = {"parameters": "parameters", "macs": "multiply-adds"}
OWN = ("NGN", "NGN, sizes fixed early")
"""Our methods. Each that was run has a column: by how much it is better than the others."""
PEAKS = "peak"
"""Folder of the measured peaks of memory, in the folder of the results."""
LEVEL = 0.05
SMALL = {"transformer": 0.02, "smollm2": 0.01}
"""Differences of scores within which two methods are called equal; 0.3 points for images."""
DIGITS = {"smollm2": 3, "transformer": 3}
"""Digits of a score behind the point; else 2."""
SAMPLES = {"transformer": "characters", "smollm2": "tokens"}


def named(work: str, method: str, share: int) -> str:
    """The beginning of a unit's file name."""
    plain = re.sub(r"[^\w-]+", "_", method)
    return f"{work}-{plain}-{share}"


def read_results(folder: Path) -> list[Unit]:
    """Read the files of a folder, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def table(units: list[Unit], shares: Iterable[int], peaks: Iterable[Unit] = ()) -> str:
    """Format one Markdown table per work and equality, with sizes and seeds; "--" marks what is missing."""
    most = {(peak["work"], peak["method"], peak["share"]): str(peak["peak_mib"]) for peak in peaks}
    parts = []
    for name, title in TITLES.items():
        for equal in ("steps", "processor time"):
            these = [unit for unit in units if unit["work"] == name and unit.get("equal", "steps") == equal]
            if not these:
                continue
            one = these[0]
            settings, limited = one["settings"], LIMITS[one.get("limited", "parameters")]
            budget = (
                f"{settings['steps']:,} steps" if equal == "steps" else "the dense model's processor time, in batches"
            )
            scored = f"{settings['held']:,} {SAMPLES.get(name, 'images')} scored"
            ours = [own for own in OWN if any(u["method"] == own for u in these)]
            better = "".join(f" {own} better by |" for own in ours)
            parts.append(
                f"{title}, **{one['scale']}** budget: {budget} of {settings['batch']} per method,\n"
                f"{fill(f'{scored}, {processors(these)}', 120)}\n\n"
                f"| {limited} | method | % of dense | {one['unit']} |{better} latency x dense: "
                "batch, 16, 1 | training, s | peak, MiB | seeds |\n"
                f"| --- | --- | ---: | ---: |{' --- |' * len(ours)} ---: | ---: | ---: | ---: |"
            )
            parts[-1] += "".join(
                "\n" + row(these, method, share, ours, most.get((name, method, share), "--"))
                for share in (100, *shares)
                for method in METHODS
                if (method in WHOLE) == (share == 100)
                and any((u["method"], u["share"]) == (method, share) for u in these)
            )
    return "\n\n".join(parts)


def processors(units: list[Unit]) -> str:
    """Name the kind of processor of most units, and the methods that have units of another, as times depend on it."""
    (most, _), *others = Counter(unit["machine"]["cpu"] for unit in units).most_common()
    text = f"one thread of {most}"
    for kind, _ in others:
        found = [(u["method"], u["share"]) for u in units if u["machine"]["cpu"] == kind]
        shares = {method: ", ".join(f"{s}" for m, s in sorted({*found}) if m == method) for method, _ in sorted(found)}
        text += f"; of {kind} for some or all models of " + "; ".join(
            f"{method} at {of} %" for method, of in shares.items()
        )
    return text


def row(units: list[Unit], method: str, share: int, ours: Iterable[str], peak: str) -> str:
    """Format one method at one share of the limited cost: means over seeds and their intervals of 95 %."""
    work = units[0]["work"]
    digits = f".{DIGITS.get(work, 2)}f"

    def of(name: str) -> dict[int, Unit]:
        return {u["seed"]: u for u in units if (u["method"], u["share"]) == (name, share)}

    def better(own: str) -> str:
        other = of(own) if own != method else {}
        found = [u["better"] * (other[seed]["score"] - u["score"]) for seed, u in these.items() if seed in other]
        said = verdict(found, SMALL.get(work, 0.3))
        return mean(found, "+" + digits) + (f", {said}" if said else "")

    these = of(method)
    # Units made before 2026-11-26 are limited in parameters and do not say so, and have fewer columns.
    costs = [{"cost": u["parameters"], "dense_cost": u["dense"]} | u for u in these.values()]
    part = [100 * cost["cost"] / cost["dense_cost"] for cost in costs]
    ratios = [[u["latency"]["ratio"] for u in these.values()]]
    ratios += [[u["latency_at"][n] for u in these.values() if "latency_at" in u] for n in ("16", "1")]
    cells = [
        f"{share} %",
        method,
        mean(part, ".1f", spread=False),
        mean([u["score"] for u in these.values()], digits),
        *map(better, ours),
        ", ".join(mean(each, ".2f", spread=False) for each in ratios),
        mean([u["processor_seconds"] for u in these.values()], ".0f", spread=False),
        peak,
        str(len(these)),
    ]
    return f"| {' | '.join(cells)} |"


def mean(values: list[float], text: str, spread: bool = True) -> str:
    """Format the mean and, for several values, half of Student's interval of 95 %."""
    if not values:
        return "--"
    middle = format(np.mean(values), text)
    if not spread or len(values) < 2:
        return middle
    interval = estimates.mean(np.array(values)).at(LEVEL)
    return f"{middle} ± {format(interval.high - interval.value, text.lstrip('+'))}"


def verdict(better: list[float], small: float) -> str:
    """Say where the interval of our advantage lies: ahead, behind, equal (within ``small``) or cannot tell.

    Nothing is said of a single seed.
    """
    if len(better) < 2:
        return ""
    interval = estimates.mean(np.array(better)).at(LEVEL)
    if interval.low > 0 or interval.high < 0:
        return "ahead" if interval.low > 0 else "behind"
    return "equal" if -small <= interval.low and interval.high <= small else "cannot tell"
