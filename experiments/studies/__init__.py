"""Studies by subject: a file has the runs, the tables, the figures and the statements (claims) of one question.

``python scripts/sweep.py plan NAME`` lists the missing runs of a study. Of a file here, or in ``studies/`` of a folder
that $NGN_PLUGINS names, these values at the top level belong to the suite, alone or in tuples:

- :class:`~experiments.studies.model.Study`: runs. If the rows of a table already name them, the study takes them from
  there, so that the two always agree.
- :class:`~experiments.analysis.tables.Table`: a table of the paper, listed in :data:`_FILES`;
  :class:`~experiments.analysis.tables.OwnTable`: another. To give a row its runs, set ``runs=Selection.of(...)`` in it.
- :class:`~experiments.analysis.figures.Spec`: a figure, drawn from records alone.
- :class:`~experiments.analysis.claims.Claim`: a statement and a predicate over records. Its threshold is ours and
  stands in the sentence. Where runs are paired, as two schedules from one seed are, pairs are compared. Claims on
  commits, budgets and orders are not the paper's: they say what was expected.
"""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Iterable
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from experiments.analysis.claims import Claim, Judged, judge_claim
from experiments.analysis.collect import Reader
from experiments.analysis.figures import Spec
from experiments.analysis.tables import OwnTable, Table
from experiments.config.compose import nearest
from experiments.core.plugins import discover_values, values_of
from experiments.studies.model import Study

if TYPE_CHECKING:
    from experiments.analysis.compare import Comparison

Part = TypeVar("Part", Study, Spec, Claim, OwnTable)


class Discovered(UserDict[str, Part]):
    """Name → part, in the order of the ranks. The files of all studies are imported when it is first read."""

    def __init__(self, kind: type[Part]) -> None:
        self._kind: type[Part] = kind

    @cached_property
    def data(self) -> dict[str, Part]:  # type: ignore[override]
        """What a UserDict holds."""
        return discover_values(__name__, __path__, self._kind)


STUDIES = Discovered(Study)
FIGURES = Discovered(Spec)
"""By file name, the paper's figures by number (missing numbers are tables), then those beyond the paper."""
CLAIMS = Discovered(Claim)
OWN = Discovered(OwnTable)
"""Tables that the paper does not have, in the order of the report."""
_FILES = {
    **dict.fromkeys(("stdT", "stdSoftMSE", "stdHardMSE"), "one_d"),
    **dict.fromkeys(("datafourteenintrate", "datafourteenmixintrate"), "pruning"),
    **dict.fromkeys(("datafourbody", "datafourfullbody"), "schedules"),
    **dict.fromkeys(("datasevenbody", "datasevenfullbody"), "learners"),
    "decayablationbody": "learners",
    **dict.fromkeys(("dataeightbody", "dataeightfullbody"), "vision"),
    **dict.fromkeys(("dataninebody", "datatenbody"), "depth"),
    **dict.fromkeys(
        ("dataelevenlorabody", "dataelevenadapterbody", "dataelevenbody", "dataelevenbaselinesbody"), "peft"
    ),
    **dict.fromkeys(("datathirteenbody", "datafourteenbody"), "pruning"),
    **dict.fromkeys(("datafifteenbody", "datafifteenfullbody"), "manifold"),
}
"""The 22 macros of the paper's ``data_generated.tex`` (5 numbers and 17 table bodies), in the order of the file, and
the file that each is in."""


def study(name: str) -> Study:
    """Return the study of that name.

    Raises:
        KeyError: if there is none; the message lists the names and gives the nearest.
    """
    if name not in STUDIES:
        raise KeyError(f"no study '{name}'.{nearest(name, list(STUDIES))} The studies are: {', '.join(STUDIES)}")
    return STUDIES[name]


def macro(name: str) -> Table:
    """Return the macro of that name. It imports the file of its study alone.

    Raises:
        KeyError: if there is none; the message lists the names.
    """
    if name not in _FILES:
        raise KeyError(f"there is no macro '{name}'; there are: {', '.join(_FILES)}")
    module = import_module(f"{__name__}.{_FILES[name]}")
    return next(table for table in values_of(module, Table) if table.name == name)


@cache
def macros() -> tuple[Table, ...]:
    """Return all macros."""
    return tuple(map(macro, _FILES))


def judge_all(reader: Reader, items: Iterable[Comparison]) -> tuple[Judged, ...]:
    """Return the verdicts on all claims, in their order; of two ``items`` of one cell the last one counts."""
    items = list(items)
    return tuple(judge_claim(claim, reader, items) for claim in CLAIMS.values())


NUMBERED = (1, 2, 3, 5, 6, 7, 13)
"""The numbers of the paper's figures; each is drawn as ``figure<number>``."""


def _number(table: Table) -> int:
    """Return a table's number in the paper, 0 without; 9 and 10 are printed as one, figure 7 has tables."""
    found = re.search(r"(?:Table|figure) (\d+)", table.title)
    return int(found[1]) if found else 0


def tables_of(number: int) -> tuple[Table, ...]:
    """Return the macros of a number.

    Raises:
        KeyError: if no table has it; the message says where the number is, if it is a figure's, or lists the numbers.
    """
    found = tuple(table for table in macros() if _number(table) == (9 if number == 10 else number))
    if not found:
        raise KeyError(f"{number} is a figure of the paper: --figure {number}" if number in NUMBERED else _listed())
    return found


def figure_of(number: int) -> str:
    """Return the name of a figure, as in ``scripts/build_figures.py --only``.

    Raises:
        KeyError: as :func:`tables_of`, the other way around.
    """
    if number not in NUMBERED:
        is_table = number in map(_number, macros())
        raise KeyError(f"{number} is a table of the paper: --table {number}" if is_table else _listed())
    return f"figure{number}"


def _listed() -> str:
    numbered = sorted({number for number in map(_number, macros()) if number})
    tables, figures = (", ".join(map(str, numbers)) for numbers in (numbered, NUMBERED))
    return f"the paper's tables with results are {tables}, and its figures {figures}"
