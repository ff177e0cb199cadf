"""Claims about intrinsic dimension, other structures and tasks, and depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.analysis.claims import ABOVE, Estimate, Outcome, Published, claim
from experiments.analysis.estimates import median, share, single
from experiments.analysis.evidence import Evidence
from experiments.analysis.selection import Selection
from experiments.analysis.statistics import YES, Array
from experiments.analysis.tables import Table
from experiments.tables.transfer import EIGHT, NINE, TEN

_ROWS = ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn")
_STORIES = ("stories-heads", "stories-ffn", "stories-joint", "stories-mamba")
_DIMENSIONS = (1, 2, 4, 6, 8)


@claim("dimension", "table 15", "published count since 2026-11-25, after results")
def _dimensions(evidence: Evidence) -> Outcome:
    """The kept count is the manifold's dimension in nearly every run."""
    names = [f"datafifteenbody.{d}.exact" for d in _DIMENSIONS]
    rates = {name: evidence.cell(name) for name in names}
    seeds = [evidence.items[name].cell.n for name in names]
    exact = sum(round(rate / 100 * n) for rate, n in zip(rates.values(), seeds, strict=True))
    counts = [evidence.published_count(name) for name in names]
    published, of = (sum(each) for each in zip(*counts, strict=True))
    return Outcome([Published("exact", exact, sum(seeds), published, of)])


def _gained(evidence: Evidence, other: str, far: Callable[[Array], Any], said: str) -> tuple[dict[str, Array], str]:
    """By how many points truncated models are better than ``other``, same seed, by row; and the number of runs that
    are ``far``, which ``said`` puts into words."""
    points = {}
    for key in _ROWS:
        found = evidence.samples(EIGHT.runs[key], ["grown.truncated.accuracy", f"{other}.accuracy"], key)
        points[key] = found["grown.truncated.accuracy"] - found[f"{other}.accuracy"]
    counts = {key: int(far(each).sum()) for key, each in points.items()}
    where = ", ".join(f"{key} {count}" for key, count in counts.items() if count)
    runs = f"{said} in {sum(counts.values())} of {sum(map(len, points.values()))} runs"
    return points, runs + (f" ({where})" if where else "")


@claim("vision_truncation", "table 8", "after results, 2026-11-21")
def _truncation(evidence: Evidence) -> Outcome:
    """Truncation costs little: in the median run at most half a point of accuracy on MNIST, CIFAR-10 and Cora."""
    points, because = _gained(evidence, "grown.soft", lambda each: each <= -0.5, "half a point or more lost")
    parts = [
        Estimate(f"truncated minus soft, points, {key}", median(x), -0.5, spec="+.2f") for key, x in points.items()
    ]
    return Outcome(parts, because)


@claim("vision_fixed", "table 8", "after results, 2026-11-21")
def _fixed(evidence: Evidence) -> Outcome:
    """Learned and fixed models of the same size are within one point of each other, same seed, in the median."""
    points, because = _gained(evidence, "fixed.truncated", lambda each: abs(each) > 1, "more than one point apart")
    parts = [Estimate(f"truncated minus fixed, points, {key}", median(x), -1, 1, "+.2f") for key, x in points.items()]
    return Outcome(parts, because)


@claim("vision_prune", "table 8", "after results, 2026-11-21")
def _not_universal(evidence: Evidence) -> Outcome:
    """Pruning back from a high start is not universal: in some row not every seed does."""
    words = {row: evidence.cell(f"dataeightbody.{row}.prunes_back") for row in _ROWS}
    back = [row for row, word in words.items() if word == YES]
    because = f"every seed prunes back in {len(back)} of {len(words)} rows: {', '.join(back) or 'none'}"
    other = len(words) - len(back)
    return Outcome([Estimate("share of other rows", share(other, len(words)), ABOVE, spec=".0%")], because)


@claim("stories_truncation", "table 8")
def _stories(evidence: Evidence) -> Outcome:
    """Truncation costs at most 5 % in bits per character on TinyStories."""
    return Outcome(
        [
            Estimate(
                f"truncated over soft, {row}",
                single(evidence.cell(f"dataeightbody.{row}.truncated") / evidence.cell(f"dataeightbody.{row}.soft")),
                most=1.05,
                spec=".3f",
            )
            for row in _STORIES
        ]
    )


SEEDS_OF_DEPTH, FIRST_OF_DEPTH = 39, 10
"""Seeds of the depth rows in all, and in the study that came first; each further one counts as soon as it is there."""


def _seeds(table: Table, key: str) -> Selection:
    """The runs of a row of the tables of depth, which print seed 0."""
    return table.runs[key].with_seeds(range(SEEDS_OF_DEPTH))


@claim("depth", "table 9", "after results, 2026-11-23; shares since 2026-11-25")
def _depth(evidence: Evidence) -> Outcome:
    """Depth is learned with both schedules only: constant λ keeps ten layers, both keep fewer (each in at least nine
    seeds of ten), and constant r fits at least twice as badly, same seed, in the median."""
    parts = []
    for key, said in {"const-const": "constant λ and r", "const-inc": "constant λ", "dec-inc": "both"}.items():
        depths = evidence.samples(_seeds(NINE, key), ["grown.depth"], key, FIRST_OF_DEPTH)["grown.depth"]
        wanted = depths < 10 if key == "dec-inc" else depths == 10
        kept = f"{'fewer than ' if key == 'dec-inc' else ''}ten layers, {said}, of {len(depths)} seeds"
        parts.append(Estimate(kept, share(int(wanted.sum()), len(wanted)), 0.9, spec=".0%"))
    rows = _seeds(NINE, "dec-const"), _seeds(NINE, "dec-inc")
    ratio = evidence.ratios(*rows, "grown.truncated.mse", "dec-const and dec-inc", FIRST_OF_DEPTH)
    return Outcome([*parts, Estimate("truncated MSE with constant r over that with both", median(ratio), 2)])


@claim("recursive", "table 9", "after results, 2026-11-23")
def _recursive(evidence: Evidence) -> Outcome:
    """The recursive chain learns a depth below its limit, with truncated error within a factor of two of soft, in at
    least nine of ten seeds."""
    quantities = ["grown.depth", "grown.soft.mse", "grown.truncated.mse"]
    found = evidence.samples(_seeds(TEN, "recursive"), quantities, "recursive", FIRST_OF_DEPTH)
    cost = found["grown.truncated.mse"] / found["grown.soft.mse"]
    good = int(((found["grown.depth"] < 16) & (cost <= 2)).sum())
    because = f"{good} of {len(cost)} seeds; truncated over soft MSE at most {cost.max():.3g}"
    return Outcome([Estimate("share of such seeds", share(good, len(cost)), 0.9, spec=".0%")], because)


CLAIMS = (
    _dimensions,
    _truncation,
    _fixed,
    _not_universal,
    _stories,
    _depth,
    _recursive,
)
