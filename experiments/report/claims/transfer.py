"""Claims about intrinsic dimension, other structures and tasks, and depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.analysis.selection import Selection
from experiments.analysis.statistics import YES, Array
from experiments.report.claims.evidence import Evidence, Outcome, claim
from experiments.tables.model import Table
from experiments.tables.transfer import EIGHT, NINE, TEN

_ROWS = ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn")
_STORIES = ("stories-heads", "stories-ffn", "stories-joint", "stories-mamba")
_DIMENSIONS = (1, 2, 4, 6, 8)


@claim("dimension", "table 15")
def _dimensions(evidence: Evidence) -> Outcome:
    """The kept count is the manifold's dimension in nearly every run (published 49 of 50; at least 94 %)."""
    rates = {d: evidence.cell(f"datafifteenbody.{d}.exact") for d in _DIMENSIONS}
    cells = [evidence.items[f"datafifteenbody.{d}.exact"].cell for d in _DIMENSIONS]
    runs = sum(cell.n for cell in cells)
    exact = sum(round(rate / 100 * cell.n) for rate, cell in zip(rates.values(), cells, strict=True))
    return Outcome(exact >= 0.94 * runs, f"exact in {exact} of {runs} runs")


def _gained(evidence: Evidence, other: str, far: Callable[[Array], Any], said: str) -> tuple[list[float], str]:
    """By how many points truncated models are better than ``other``, same seed: the median of each row, and all of it
    in words, with the number of runs that are ``far``, which ``said`` puts into words."""
    points = {}
    for key in _ROWS:
        found = evidence.samples(EIGHT.runs[key], ["grown.truncated.accuracy", f"{other}.accuracy"], key)
        points[key] = found["grown.truncated.accuracy"] - found[f"{other}.accuracy"]
    medians = {key: float(np.median(each)) for key, each in points.items()}
    counts = {key: int(far(each).sum()) for key, each in points.items()}
    listed = ", ".join(f"{key} {median:+.2f}" for key, median in medians.items())
    where = ", ".join(f"{key} {count}" for key, count in counts.items() if count)
    runs = f"{said} in {sum(counts.values())} of {sum(map(len, points.values()))} runs"
    return [*medians.values()], f"points, medians: {listed}; {runs}" + (f" ({where})" if where else "")


@claim("vision_truncation", "table 8")
def _truncation(evidence: Evidence) -> Outcome:
    """Truncation costs little: in the median run at most half a point of accuracy on MNIST, CIFAR-10 and Cora."""
    medians, because = _gained(evidence, "grown.soft", lambda points: points <= -0.5, "half a point or more lost")
    return Outcome(min(medians) >= -0.5, f"truncated minus soft, {because}")


@claim("vision_fixed", "table 8")
def _fixed(evidence: Evidence) -> Outcome:
    """Learned and fixed models of the same size are within one point of each other, same seed, in the median."""
    far = "more than one point apart"
    medians, because = _gained(evidence, "fixed.truncated", lambda points: abs(points) > 1, far)
    return Outcome(max(map(abs, medians)) <= 1, f"truncated minus fixed, {because}")


@claim("vision_prune", "table 8")
def _not_universal(evidence: Evidence) -> Outcome:
    """Pruning back from a high start is not universal."""
    words = {row: evidence.cell(f"dataeightbody.{row}.prunes_back") for row in _ROWS}
    back = [row for row, word in words.items() if word == YES]
    return Outcome(
        len(back) < len(words),
        f"every seed prunes back in {len(back)} of {len(words)} rows: {', '.join(back) or 'none'}",
    )


@claim("stories_truncation", "table 8")
def _stories(evidence: Evidence) -> Outcome:
    """Truncation costs at most 5 % in bits per character on TinyStories."""
    found = {
        row: evidence.cell(f"dataeightbody.{row}.truncated") / evidence.cell(f"dataeightbody.{row}.soft")
        for row in _STORIES
    }
    because = "truncated over soft: " + ", ".join(f"{row} {ratio:.3f}" for row, ratio in found.items())
    return Outcome(all(ratio <= 1.05 for ratio in found.values()), because)


def _ten_seeds(table: Table, key: str) -> Selection:
    """The runs of a row of the tables of depth, which print seed 0."""
    return table.runs[key].with_seeds(range(10))


@claim("depth", "table 9")
def _depth(evidence: Evidence) -> Outcome:
    """Depth is learned with both schedules only: constant λ keeps ten layers in every seed, constant r fits at least
    twice as badly."""
    depths = {
        key: evidence.samples(_ten_seeds(NINE, key), ["grown.depth"], key)["grown.depth"]
        for key in ("const-const", "const-inc", "dec-inc")
    }
    ten = {key: int((depth == 10).sum()) for key, depth in depths.items()}
    both, constant = evidence.pairs(
        _ten_seeds(NINE, "dec-inc"), _ten_seeds(NINE, "dec-const"), "grown.truncated.mse", "dec-inc and dec-const"
    )
    ratio = float(np.median(constant / both))
    because = (
        f"ten layers in {ten['const-const']} and {ten['const-inc']} of {len(depths['const-const'])} seeds with "
        f"constant λ, {ten['dec-inc']} with both; truncated MSE with constant r over that with both, same seed, median "
        f"{ratio:.1f}"
    )
    every = all((depths[key] == 10).all() for key in ("const-const", "const-inc"))
    return Outcome(every and ten["dec-inc"] == 0 and ratio > 2, because)


@claim("recursive", "table 9")
def _recursive(evidence: Evidence) -> Outcome:
    """The recursive chain learns a depth below its limit, with truncated error within a factor of two of soft, in at
    least nine of ten seeds."""
    found = evidence.samples(
        _ten_seeds(TEN, "recursive"), ["grown.depth", "grown.soft.mse", "grown.truncated.mse"], "recursive"
    )
    cost = found["grown.truncated.mse"] / found["grown.soft.mse"]
    good = int(((found["grown.depth"] < 16) & (cost <= 2)).sum())
    because = f"{good} of {len(cost)} seeds; truncated over soft MSE at most {cost.max():.3g}"
    return Outcome(good >= 0.9 * len(cost), because)


CLAIMS = (
    _dimensions,
    _truncation,
    _fixed,
    _not_universal,
    _stories,
    _depth,
    _recursive,
)
