"""What a claim is: numbers that records must give, where it wants each of them, and the verdict that follows.

A predicate returns an :class:`Outcome`, whose parts do the judging: a part agrees if its whole interval lies where the
claim wants it, and disagrees if all of a wider interval lies elsewhere. The wider one is of Bonferroni, since any part
can refute a claim; all of them have to agree, which needs no correction (Berger, 1982).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from experiments.analysis.collect import Reader
from experiments.analysis.estimates import Estimator, exact
from experiments.analysis.evidence import Evidence, Untested
from experiments.analysis.statistics import count_interval
from experiments.analysis.tables import StandIn
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES, LEVEL, overall, shares_are_near
from experiments.core.plugins import LAST

if TYPE_CHECKING:
    from experiments.analysis.compare import Comparison

BY_CONSTRUCTION, UNTESTED = "holds by construction", "untested"

BEFORE = "before results"
"""When a threshold was chosen; else a date behind ``after results``."""

TWINS = 50
"""Distance of the ranks of claims on a model that stands in from those of the paper's."""

ABOVE = math.ulp(0.0)
"""The least number above zero, where a claim wants more than none."""


@dataclass(frozen=True)
class Finding:
    """One judged number of a claim.

    Attributes:
        low, high: its interval, of the kind ``how``.
        wanted: where the claim wants it, in words.
        inside: whether the number itself lies there.
    """

    what: str
    value: float
    low: float
    high: float
    wanted: str
    how: str
    word: str
    inside: bool
    spec: str = ".3g"

    @property
    def text(self) -> str:
        """The number, its interval, and where the claim wants it."""
        value, low, high = (
            f"{number:{self.spec if math.isfinite(number) else '.0f'}}".replace("inf", "∞")
            for number in (self.value, self.low, self.high)
        )
        ends = f" [{low}, {high}]" if self.low < self.high else ""
        return f"{self.what} {value}{ends}, wanted {self.wanted}"


def _wanted(least: float, most: float, spec: str) -> str:
    low, high = (f"{bound:{spec}}" for bound in (least, most))
    if least == ABOVE:
        return "more than 0"
    if most == -ABOVE:
        return "less than 0"
    if not math.isfinite(most):
        return f"at least {low}"
    return f"{low} to {high}" if math.isfinite(least) else f"at most {high}"


@dataclass(frozen=True)
class Estimate:
    """A number that a claim wants between two bounds; ``spec`` formats it."""

    what: str
    estimator: Estimator
    least: float = -math.inf
    most: float = math.inf
    spec: str = ".3g"

    def judge(self, agree: float, disagree: float) -> Finding:
        """Compare the intervals with the bounds."""
        found, wide = self.estimator.at(agree), self.estimator.at(disagree)
        if self.least <= found.low and found.high <= self.most:
            word = AGREES
        else:
            word = DISAGREES if wide.high < self.least or wide.low > self.most else CANNOT_TELL
        wanted = _wanted(self.least, self.most, self.spec)
        inside = self.least <= found.value <= self.most
        return Finding(self.what, *found, wanted, self.estimator.how, word, inside, self.spec)


def none(what: str, breaking: int) -> Estimate:
    """Want that nothing breaks a claim: a single run that does is a counterexample."""
    return Estimate(what, exact(breaking), most=0, spec=".0f")


@dataclass(frozen=True)
class Published:
    """A count that the paper states, beside ours, judged as the rates of cells are."""

    what: str
    ours: int
    seeds: int
    published: int
    published_seeds: int

    def judge(self, agree: float, disagree: float) -> Finding:
        """Return our share with the published shares that Fisher's test does not reject."""
        (low, high), (least, most) = (
            count_interval(self.ours, self.seeds, self.published_seeds, level) for level in (agree, disagree)
        )
        near = shares_are_near(self.ours, self.seeds, self.published, self.published_seeds)
        word = (AGREES if near else CANNOT_TELL) if least <= self.published <= most else DISAGREES
        ends = low / self.published_seeds, high / self.published_seeds
        wanted = f"{self.published} of {self.published_seeds}, as published"
        inside = self.ours * self.published_seeds == self.published * self.seeds
        return Finding(self.what, self.ours / self.seeds, *ends, wanted, "Fisher", word, inside, ".1%")


def _judged(parts: Sequence[Part], least: int, agree: float, disagree: float) -> list[Finding]:
    """Judge parts of which at least ``least`` of n have to hold, so that a false word on them has its level.

    If fewer hold, at least n - least + 1 do not, and one of these has to agree falsely. If ``least`` do, one of them
    has to disagree falsely.
    """
    return [part.judge(agree / (len(parts) - least + 1), disagree / least) for part in parts]


@dataclass(frozen=True)
class Tally:
    """How many of several parts hold: at least those that agree, at most those that do not disagree."""

    what: str
    parts: tuple[Part, ...]
    least: int

    def judge(self, agree: float, disagree: float) -> Finding:
        """Judge the parts together."""
        found = _judged(self.parts, self.least, agree, disagree)
        sure = sum(finding.word == AGREES for finding in found)
        possible = len(found) - sum(finding.word == DISAGREES for finding in found)
        word = AGREES if sure >= self.least else DISAGREES if possible < self.least else CANNOT_TELL
        inside = sum(finding.inside for finding in found)
        wanted = f"at least {self.least} of {len(found)}"
        return Finding(self.what, inside, sure, possible, wanted, "tally", word, inside >= self.least, ".0f")


Part = Estimate | Published | Tally
"""One number that a claim is about. ``judge(agree, disagree)`` says at level ``agree`` whether it agrees, and at level
``disagree`` whether it disagrees. The interval that is shown has confidence 1 - ``agree``."""


@dataclass(frozen=True)
class Outcome:
    """What a predicate found.

    Attributes:
        parts: the numbers that decide.
        because: further numbers, in words.
        premises: what has to hold in our runs for the claim to be about them. If one does not, they cannot tell.
    """

    parts: Sequence[Part]
    because: str = ""
    premises: Sequence[Estimate] = ()

    def judge(self) -> tuple[str, tuple[Finding, ...]]:
        """Return the verdict and the judged numbers, premises first."""
        found = _judged(self.parts, len(self.parts), LEVEL, LEVEL)
        premises = [replace(part.judge(LEVEL, LEVEL), what=f"premise: {part.what}") for part in self.premises]
        met = all(finding.word == AGREES for finding in premises)
        return overall(finding.word for finding in found) if met else CANNOT_TELL, (*premises, *found)


Predicate = Callable[[Evidence], Outcome]


@dataclass(frozen=True)
class Claim:
    """A statement: a sentence, where it stands, and the predicate.

    Attributes:
        name: its key in the report.
        rank: position among the claims.
        threshold: when its threshold and its statistic were chosen: before the results were known or after.
        by_construction: whether it follows from how the code works, so that runs only confirm the code.
        stand_in: name of the stand-ins that it is about; empty for the rows' own runs.
    """

    name: str
    text: str
    where: str
    predicate: Predicate
    rank: int = LAST
    threshold: str = BEFORE
    by_construction: bool = False
    stand_in: str = ""


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Attributes:
        word: agrees, disagrees, cannot tell, holds by construction, or untested.
        because: further numbers, or what is missing.
        findings: the judged numbers with their intervals; empty if untested.
        runs: ids of the runs behind it.
    """

    key: str
    text: str
    where: str
    threshold: str
    word: str
    because: str
    findings: tuple[Finding, ...] = ()
    runs: tuple[str, ...] = ()

    @property
    def interval(self) -> str:
        """The judged numbers with their intervals and where the claim wants them, in words."""
        return "; ".join(finding.text for finding in self.findings)


class Claims:
    """Makes the claims of one file, which keep their order. ``rank``: position of the first among all claims."""

    def __init__(self, rank: int = LAST) -> None:
        self._ranks = count(rank)

    def __call__(
        self, name: str, where: str, threshold: str = BEFORE, *, text: str = "", by_construction: bool = False
    ) -> Callable[[Predicate], Claim]:
        """Make a claim of its predicate, whose docstring is the sentence unless ``text`` is."""

        def made(predicate: Predicate) -> Claim:
            sentence = " ".join((text or predicate.__doc__ or "").split())
            return Claim(name, sentence, where, predicate, next(self._ranks), threshold, by_construction)

        return made

    def twice(
        self, name: str, where: str, threshold: str, stand_in: StandIn, *, text: str = "", limitation: bool = False
    ) -> Callable[[Predicate], tuple[Claim, Claim]]:
        """Make a claim, and the same claim on the model that stands in here; of both the paper's come first.

        Args:
            limitation: whether the paper says so in its limitations. Then ``where`` is what that is about.
        """
        model, _, how = stand_in.name.partition(", ")

        def made(predicate: Predicate) -> tuple[Claim, Claim]:
            claim = self(name, "limitations" if limitation else where, threshold, text=text)(predicate)
            stated, place = f"{claim.text} Here on {model} at {how}.", f"{where}, on {model}"
            rank, of = claim.rank + TWINS, stand_in.name
            return claim, replace(claim, name=f"{name}_small", text=stated, where=place, rank=rank, stand_in=of)

        return made


def judge_claim(claim: Claim, reader: Reader, items: Iterable[Comparison]) -> Judged:
    """Return the verdict on a claim.

    Args:
        items: the comparison of every cell of the tables, and of their stand-ins.
    """
    evidence = Evidence(reader, items, claim.stand_in)
    about = claim.name, claim.text, claim.where, claim.threshold
    try:
        outcome = claim.predicate(evidence)
    except Untested as lack:
        return Judged(*about, UNTESTED, str(lack))
    word, findings = outcome.judge()
    if claim.by_construction and word == AGREES:
        word = BY_CONSTRUCTION
    return Judged(*about, word, outcome.because, findings, tuple(dict.fromkeys(evidence.used)))
