"""The data sets and the terms of their distributors, as the paper's appendix records them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("licences.yaml")
NOT_STATED = "not stated"


@dataclass(frozen=True)
class Licence:
    """One data set; ``terms`` is "not stated" where its distributor gives none, ``url`` None for data made here."""

    name: str
    use: str
    terms: str
    source: str
    url: str | None


def licences() -> tuple[Licence, ...]:
    """All data sets of the paper's studies."""
    entries = yaml.safe_load(FILE.read_text())
    return tuple(Licence(**{**entry, "terms": entry["terms"] or NOT_STATED}) for entry in entries)
