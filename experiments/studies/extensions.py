"""Studies on questions that the paper leaves open, and on possible reasons of disagreements."""

from __future__ import annotations

from experiments.studies.model import Study, selections_of
from experiments.tables.budgets import BUDGETS
from experiments.tables.commit import COMMITTED
from experiments.tables.orders import ORDERED
from experiments.tables.precision import BF16
from experiments.tables.suspects import SUSPECTS as ONE_CHANGED
from experiments.tables.tied_alpha import TIED

COMMIT = Study(
    "commit",
    "rows of the paper with boundaries rounded at 90 % of training",
    lambda: selections_of(COMMITTED),
    rank=301,
    curves=1,
)
TIED_ALPHA = Study(
    "tied_alpha",
    "the 1D study with a snapping strength that follows the price",
    lambda: selections_of(TIED),
    rank=302,
    curves=1,
)
BUDGET = Study(
    "budget",
    "sizes under budgets of 3 to 12 components, and fixed models",
    lambda: selections_of(BUDGETS),
    rank=303,
    curves=1,
)
ORDERS = Study(
    "orders",
    "orders of components under one budget: 1D regression and MNIST, ten seeds",
    lambda: selections_of(ORDERED),
    rank=304,
    curves=1,
)
SUSPECTS = Study(
    "suspects",
    "what may explain a disagreement: one setting changed",
    lambda: selections_of(ONE_CHANGED),
    rank=305,
    curves=1,
)
PRECISION = Study(
    "precision",
    "convolutions in bf16: MNIST and CIFAR-10, five seeds",
    lambda: selections_of(BF16),
    rank=306,
)
