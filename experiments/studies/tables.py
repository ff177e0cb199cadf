"""The study of every table of the paper that one machine without a large GPU can fill."""

from __future__ import annotations

from experiments.studies.model import Study, selections_of
from experiments.tables import MACROS
from experiments.tables.peft import PEFT
from experiments.tables.pruning import PRUNING

TABLES = Study(
    "tables",
    "every run that a table names today, and the fixed models that belong to them; not of Llama-3-8B or Pythia",
    lambda: selections_of(*(table for table in MACROS if table not in (*PEFT, *PRUNING))),
    rank=401,
    curves=3,
)
