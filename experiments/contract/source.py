"""The line of a method in the report."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.plugins import LAST


@dataclass(frozen=True)
class Source:
    """The line of a method in the report.

    Attributes:
        name: the method in words.
        paper: the publication that proposes it.
        year: year of this publication.
        claims: keys of the claims about it (``experiments/studies/``).
        rank: its position among the methods.
    """

    name: str
    paper: str
    year: int | None = None
    claims: tuple[str, ...] = ()
    rank: int = LAST
