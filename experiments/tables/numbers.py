"""The numbers of the paper's tables and figures: those in its labels and macros (``tab:data4``, ``\\datafourbody``).

Tables 9 and 10 are printed as one, and the numbers of figure 7 are in macros of the number seven.
"""

from __future__ import annotations

import re

from experiments.analysis.tables import Table
from experiments.tables import MACROS

WORDS = {
    4: "four", 7: "seven", 8: "eight", 9: "nine", 10: "ten",
    11: "eleven", 13: "thirteen", 14: "fourteen", 15: "fifteen",
}  # fmt: skip
"""Number of a table → the word in the names of its macros."""
FIGURES = (1, 2, 3, 5, 6, 7, 13)
"""The numbers of the paper's figures; each is drawn as ``figure<number>``."""


def tables_of(number: int) -> tuple[Table, ...]:
    """Return the macros of a number.

    Raises:
        KeyError: if no table has it; the message says where the number is, if it is a figure's, or lists the numbers.
    """
    if number in WORDS:
        others = "|".join(word for word in WORDS.values() if word != WORDS[number] and word.startswith(WORDS[number]))
        form = re.compile(rf"data{WORDS[number]}{f'(?!{others[len(WORDS[number]) :]})' if others else ''}")
        return tuple(table for table in MACROS if form.match(table.name))
    if number in FIGURES:
        raise KeyError(f"{number} is a figure of the paper: --figure {number}")
    raise KeyError(_listed())


def figure_of(number: int) -> str:
    """Return the name of a figure, as in ``scripts/build_figures.py --only``.

    Raises:
        KeyError: as :func:`tables_of`, the other way around.
    """
    if number in FIGURES:
        return f"figure{number}"
    if number in WORDS:
        raise KeyError(f"{number} is a table of the paper: --table {number}")
    raise KeyError(_listed())


def _listed() -> str:
    tables, figures = (", ".join(map(str, numbers)) for numbers in (WORDS, FIGURES))
    return f"the paper's tables with results are {tables}, and its figures {figures}"
