"""The 22 macros of the paper's ``data_generated.tex`` (5 numbers and 17 table bodies), and our own tables.

A table of our own is an :class:`~experiments.analysis.tables.OwnTable` at the top level of a file here, or in ``tables/``
of a folder that $NGN_PLUGINS names. To give a row of the paper its runs, set ``runs=Selection.of(...)`` in the row;
nothing else changes.
"""

from __future__ import annotations

from experiments.analysis.tables import OwnTable, Table
from experiments.plugins import discover_values
from experiments.tables import one_d, peft, pruning, transfer, vae

MACROS: tuple[Table, ...] = (
    *one_d.NUMBERS,
    *pruning.NUMBERS,
    one_d.FOUR,
    one_d.FOUR_FULL,
    one_d.SEVEN,
    one_d.SEVEN_FULL,
    one_d.DECAY,
    transfer.EIGHT,
    transfer.EIGHT_FULL,
    transfer.NINE,
    transfer.TEN,
    peft.LORA,
    peft.ADAPTER,
    peft.DIAGNOSTICS,
    peft.BASELINES,
    pruning.THIRTEEN,
    pruning.FOURTEEN,
    vae.FIFTEEN,
    vae.FIFTEEN_FULL,
)
"""In the order of the paper's file."""
OWN = discover_values(__name__, __path__, OwnTable)
"""Name → table that the paper does not have, in the order of the report."""


def macro(name: str) -> Table:
    """Return the macro of that name.

    Raises:
        KeyError: if there is none; the message lists the names.
    """
    for table in MACROS:
        if table.name == name:
            return table
    raise KeyError(f"there is no macro '{name}'; there are: {', '.join(table.name for table in MACROS)}")
