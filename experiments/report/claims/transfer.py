"""Claims about intrinsic dimension, other structures and tasks, and depth."""

from __future__ import annotations

from experiments.analysis.statistics import YES
from experiments.report.claims.evidence import Claim, Evidence, Outcome

_ROWS = ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn")
_STORIES = ("stories-heads", "stories-ffn", "stories-joint", "stories-mamba")
_DIMENSIONS = (1, 2, 4, 6, 8)


def _dimensions(evidence: Evidence) -> Outcome:
    rates = {d: evidence.cell(f"datafifteenbody.{d}.exact") for d in _DIMENSIONS}
    cells = [evidence.items[f"datafifteenbody.{d}.exact"].cell for d in _DIMENSIONS]
    runs = sum(cell.n for cell in cells)
    exact = sum(round(rate / 100 * cell.n) for rate, cell in zip(rates.values(), cells, strict=True))
    return Outcome(exact >= 0.94 * runs, f"exact in {exact} of {runs} runs")


def _differences(evidence: Evidence, first: str, second: str) -> dict[str, float]:
    return {
        row: evidence.cell(f"dataeightbody.{row}.{first}") - evidence.cell(f"dataeightbody.{row}.{second}")
        for row in _ROWS
    }


def _listed(differences: dict[str, float]) -> str:
    return ", ".join(f"{row} {number:+.2f}" for row, number in differences.items())


def _truncation(evidence: Evidence) -> Outcome:
    found = _differences(evidence, "truncated", "soft")
    return Outcome(all(number >= -0.5 for number in found.values()), f"truncated minus soft, points: {_listed(found)}")


def _fixed(evidence: Evidence) -> Outcome:
    found = _differences(evidence, "truncated", "fixed")
    return Outcome(
        all(abs(number) <= 1 for number in found.values()), f"truncated minus fixed, points: {_listed(found)}"
    )


def _not_universal(evidence: Evidence) -> Outcome:
    words = {row: evidence.cell(f"dataeightbody.{row}.prunes_back") for row in _ROWS}
    back = [row for row, word in words.items() if word == YES]
    return Outcome(
        len(back) < len(words),
        f"every seed prunes back in {len(back)} of {len(words)} rows: {', '.join(back) or 'none'}",
    )


def _stories(evidence: Evidence) -> Outcome:
    found = {
        row: evidence.cell(f"dataeightbody.{row}.truncated") / evidence.cell(f"dataeightbody.{row}.soft")
        for row in _STORIES
    }
    because = "truncated over soft: " + ", ".join(f"{row} {ratio:.3f}" for row, ratio in found.items())
    return Outcome(all(ratio <= 1.05 for ratio in found.values()), because)


def _depth(evidence: Evidence) -> Outcome:
    depth = {row: evidence.cell(f"dataninebody.{row}.depth") for row in ("const-const", "const-inc", "dec-inc")}
    better, worse = (evidence.cell(f"dataninebody.{row}.truncated") for row in ("dec-inc", "dec-const"))
    because = (
        f"depth {depth['const-const']:.0f} and {depth['const-inc']:.0f} with constant λ, {depth['dec-inc']:.0f} with "
        "both; "
        f"truncated MSE {better:.2e} with both, {worse:.2e} with constant r"
    )
    return Outcome(
        min(depth["const-const"], depth["const-inc"]) == 10 > depth["dec-inc"] and better < worse / 2, because
    )


def _recursive(evidence: Evidence) -> Outcome:
    depth, soft, cut = (evidence.cell(f"datatenbody.recursive.{column}") for column in ("depth", "soft", "truncated"))
    return Outcome(depth < 16 and cut <= 2 * soft, f"depth {depth:.0f}, soft {soft:.2e}, truncated {cut:.2e}")


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "dimension",
        "The kept count is the manifold's dimension in nearly every run (published 49 of 50; at least 94 %).",
        "table 15",
        _dimensions,
    ),
    Claim(
        "vision_truncation",
        "Truncation costs little: at most half a point of accuracy on MNIST, CIFAR-10 and Cora.",
        "table 8",
        _truncation,
    ),
    Claim(
        "vision_fixed",
        "Learned and fixed models of the same size are within one point of each other.",
        "table 8",
        _fixed,
    ),
    Claim("vision_prune", "Pruning back from a high start is not universal.", "table 8", _not_universal),
    Claim(
        "stories_truncation", "Truncation costs at most 5 % in bits a character on TinyStories.", "table 8", _stories
    ),
    Claim(
        "depth",
        "Depth is learned with both schedules only: constant λ keeps ten layers, constant r fits at least twice as "
        "badly.",
        "table 9",
        _depth,
    ),
    Claim(
        "recursive",
        "The recursive chain learns a depth below its limit, with truncated error within a factor of two of soft.",
        "table 9",
        _recursive,
    ),
)
