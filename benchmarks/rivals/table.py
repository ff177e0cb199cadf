"""Make the table of results from the files."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rivals.methods import METHODS

Unit = dict[str, Any]
TITLES = {
    "resnet20": "ResNet-20 on CIFAR-10",
    "trained20": "ResNet-20, trained, on CIFAR-10",
    "transformer": "Transformer on TinyStories",
}
LIMITS = {"parameters": "parameters", "macs": "multiply-adds"}
OWN = "NGN"


def read_results(folder: Path) -> list[Unit]:
    """Read the files of a folder, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def table(units: list[Unit], shares: Iterable[int]) -> str:
    """Format one Markdown table per work, with sizes and seeds; "--" marks missing units."""
    parts = []
    for name, title in TITLES.items():
        if not (these := [unit for unit in units if unit["work"] == name]):
            continue
        one = these[0]
        settings, limited = one["settings"], LIMITS[one.get("limited", "parameters")]
        parts.append(
            f"{title}, **{one['scale']}** budget: {settings['steps']:,} steps of {settings['batch']} per method, "
            f"{settings['held']:,} {'characters' if name == 'transformer' else 'images'} scored\n\n"
            f"| {limited} | method | % of dense | {one['unit']} | {OWN} better by | latency x dense | seeds |\n"
            "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
        )
        parts[-1] += "".join(
            "\n" + row(these, method, share)
            for share in (100, *shares)
            for method in METHODS
            if (method == "dense") == (share == 100)
        )
    return "\n\n".join(parts)


def row(units: list[Unit], method: str, share: int) -> str:
    """Format one method at one share of the parameters: means over seeds and their standard deviations."""

    def of(name: str) -> dict[int, Unit]:
        return {u["seed"]: u for u in units if (u["method"], u["share"]) == (name, share)}

    these, own = of(method), of(OWN)
    # Units made before 2026-11-26 are limited in parameters and do not say so.
    costs = [{"cost": u["parameters"], "dense_cost": u["dense"]} | u for u in these.values()]
    part = [100 * cost["cost"] / cost["dense_cost"] for cost in costs]
    ratios = [u["latency"]["ratio"] for u in these.values()]
    better = [
        u["better"] * (own[seed]["score"] - u["score"]) for seed, u in these.items() if seed in own and method != OWN
    ]
    cells = [
        f"{share} %",
        method,
        mean(part, "{:.1f}".format, spread=False),
        mean([u["score"] for u in these.values()], "{:.2f}".format),
        mean(better, "{:+.2f}".format),
        mean(ratios, "{:.2f}".format, spread=False),
        str(len(these)),
    ]
    return f"| {' | '.join(cells)} |"


def mean(values: list[float], text: Callable[[float], str], spread: bool = True) -> str:
    """Format the mean and, for several values, the standard deviation."""
    if not values:
        return "--"
    deviation = f" ± {statistics.stdev(values):.2f}" if spread and len(values) > 1 else ""
    return text(statistics.fmean(values)) + deviation


def write_between_marks(page: Path, name: str, text: str) -> None:
    """Write ``text`` between the marks of ``name`` in a page.

    Raises:
        ValueError: if the page has no such marks.
    """
    begin, end = (f"<!-- {name}: {word} -->" for word in ("begin", "end"))
    before = page.read_text()
    after, found = re.subn(f"{begin}.*{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", before, flags=re.DOTALL)
    if not found:
        raise ValueError(f"{page} has no marks {begin}, {end}")
    page.write_text(after)
