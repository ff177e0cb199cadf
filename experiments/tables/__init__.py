r"""The 22 macros of the paper's ``data_generated.tex``, in its order: 5 numbers and 17 table bodies.

To give a row its runs, set ``runs=Selection.of(...)`` where the row is written; nothing else has to be touched.
"""

from __future__ import annotations

from experiments.tables import one_d, peft, pruning, transfer, vae
from experiments.tables.model import Table

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


def macro(name: str) -> Table:
    """The macro of that name.

    Raises:
        KeyError: if there is none; the message lists the names.
    """
    for table in MACROS:
        if table.name == name:
            return table
    raise KeyError(f"there is no macro '{name}'; there are: {', '.join(table.name for table in MACROS)}")
