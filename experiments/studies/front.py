"""Statements on one training of every size beside separate ones, from the records of the study of rivals."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from experiments.analysis import estimates
from experiments.analysis.claims import Claims, Estimate, Outcome, judge_claim
from experiments.analysis.collect import Reader
from experiments.analysis.evidence import Evidence, require
from experiments.analysis.verdict import LEAST_SEEDS
from experiments.store.records import Store
from experiments.studies.rivals import FOLDER, FRONTS, WORKS, selection

claim = Claims(1700)
BESIDE = {
    "front_stories": ("front_stories", FRONTS[1], "even sizes"),
    "front_narrow": ("front_stories", FRONTS[3], "uniform width"),
    "front20": ("front20", FRONTS[2], "magnitude"),
}
"""Statement → its work, the one training with the time of all, and the separate trainings that it replaces."""


def _not_behind(evidence: Evidence, statement: str) -> Outcome:
    """Want one training at most the work's small difference behind separate ones, at every share and as a whole."""
    (name, method, separate), parts = BESIDE[statement], []
    work = WORKS[name]
    own = Evidence(Reader(Store(evidence.reader.store.root / FOLDER.name)), ())
    one = selection(work, method, min(work.shares), range(work.seeds), **{"train.steps": work.together[method]})
    seeds = [run.seed for run in own.reader.collect(one).runs]
    require(len(seeds), LEAST_SEEDS, name)
    for share in (*work.shares, 100):
        alone = selection(work, "dense" if share == 100 else separate, share, seeds)
        scores = f"grown.members.{share}.scores.{work.score}", f"{name} at {share} %", f"grown.truncated.{work.score}"
        together, apart = own.pairs(one.with_seeds(seeds), alone, *scores)
        better = estimates.mean(work.better * (together - apart))
        parts.append(Estimate(f"better at {share} %", better, -work.small, spec=f"+.{work.digits}f"))
    evidence.used += own.used
    return Outcome(parts, f"pairs of seeds {', '.join(map(str, seeds))}")


@claim("front_stories", "study rivals", "after results, 2026-11-29")
def _stories(evidence: Evidence) -> Outcome:
    """In their total processor time, one training of a transformer is at most 0.02 bits behind even sizes trained alone
    and the dense model, same seed, in the mean."""
    return _not_behind(evidence, "front_stories")


@claim("front_narrow", "study rivals", "after results, 2026-11-29")
def _narrow(evidence: Evidence) -> Outcome:
    """In their total processor time, one training of a transformer, its residual stream a size, too, is at most 0.02
    bits behind narrower models and the dense model, same seed, in the mean."""
    return _not_behind(evidence, "front_narrow")


@claim("front20", "study rivals", "after results, 2026-11-29")
def _front20(evidence: Evidence) -> Outcome:
    """In their total processor time, one training of a trained ResNet-20, its own teacher, is at most 0.3 points behind
    magnitude and the dense network, same seed, in the mean."""
    return _not_behind(evidence, "front20")


def statements(folder: Path, scale: str) -> str:
    """Return the statements on the works of a scale, with the interval and the verdict of each number, as a list.

    Args:
        folder: the records of the study of rivals.
    """
    told = ""
    for each in (one for one in (_stories, _narrow, _front20) if WORKS[BESIDE[one.name][0]].scale == scale):
        judged = judge_claim(each, Reader(Store(folder.parent)), ())
        numbers = "; ".join(f"{one.text.partition(', wanted ')[0]}, {one.word}" for one in judged.findings)
        text = f"- `{each.name}`, **{judged.word}**: {numbers.replace('; better at', ';') or judged.because}."
        told += f"\n{fill(text, 120, subsequent_indent='  ')}"
    return told and f"\n{told}"
