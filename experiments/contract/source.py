"""The line of a method in the report."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.plugins import LAST


@dataclass(frozen=True)
class Source:
    """The line of a method in the report.

    Attributes:
        name: the method in words.
        paper: where it comes from.
        year: of the paper.
        claims: keys of the statements about it (``experiments/report/claims/``).
        rank: its place among the other methods.
    """

    name: str
    paper: str
    year: int | None = None
    claims: tuple[str, ...] = ()
    rank: int = LAST
