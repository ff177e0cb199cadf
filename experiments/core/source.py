"""The line of a method in the report."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.core.plugins import LAST


@dataclass(frozen=True)
class Source:
    """The line of a method in the report.

    Attributes:
        name: the method in words.
        paper: the publication that proposes it.
        year: year of this publication.
        rank: its position among the methods.
    """

    name: str
    paper: str
    year: int | None = None
    rank: int = LAST
