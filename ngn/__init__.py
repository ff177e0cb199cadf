"""NGN: learn how many ordered components a network needs, as a differentiable count.

Public names are imported on first use, so that ``import ngn`` alone does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers
    from ngn.allocation import BudgetLearner as BudgetLearner
    from ngn.axis import OrderedAxis as OrderedAxis
    from ngn.budget import Budget as Budget
    from ngn.components.base import Bank as Bank
    from ngn.components.base import OrderedSum as OrderedSum
    from ngn.components.low_rank import LowRankLinear as LowRankLinear
    from ngn.components.low_rank import attach_low_rank as attach_low_rank
    from ngn.components.low_rank import merge as merge
    from ngn.cuts import Cut as Cut
    from ngn.cuts import Stacked as Stacked
    from ngn.cuts import inputs as inputs
    from ngn.cuts import outputs as outputs
    from ngn.front import Front as Front
    from ngn.integrations.peft import to_peft as to_peft
    from ngn.learner import CapacityLearner as CapacityLearner
    from ngn.learner import Learner as Learner
    from ngn.methods.base import Capacity as Capacity
    from ngn.methods.fixed import FixedCount as FixedCount
    from ngn.methods.fixed import Retained as Retained
    from ngn.methods.ngn import CountGate as CountGate
    from ngn.orders import Order as Order
    from ngn.programs import export as export
    from ngn.schedules import Shape as Shape
    from ngn.shapes import load as load
    from ngn.shapes import save as save
    from ngn.sizes.attach import learn_sizes as learn_sizes
    from ngn.sizes.base import Size as Size
    from ngn.sizes.depth import Depth as Depth
    from ngn.sizes.named import Channels as Channels
    from ngn.sizes.named import Heads as Heads
    from ngn.sizes.named import Width as Width
    from ngn.sizes.rank import Rank as Rank
    from ngn.tracing.groups import find_sizes as find_sizes
    from ngn.train.fit import fit as fit
    from ngn.train.losses import Supervised as Supervised
    from ngn.train.plan import TrainPlan as TrainPlan
    from ngn.train.trainer import Trainer as Trainer
    from ngn.truncation import deploy as deploy

__version__ = "0.1.0"

_NAMES = {
    "ngn.methods.ngn": "CountGate",
    "ngn.methods.fixed": "FixedCount Retained",
    "ngn.components.base": "OrderedSum Bank",
    "ngn.components.low_rank": "LowRankLinear attach_low_rank merge",
    "ngn.methods.base": "Capacity",
    "ngn.axis": "OrderedAxis",
    "ngn.cuts": "Cut Stacked inputs outputs",
    "ngn.truncation": "deploy",
    "ngn.sizes.attach": "learn_sizes",
    "ngn.tracing.groups": "find_sizes",
    "ngn.sizes.base": "Size",
    "ngn.sizes.named": "Width Heads Channels",
    "ngn.sizes.rank": "Rank",
    "ngn.sizes.depth": "Depth",
    "ngn.orders": "Order",
    "ngn.schedules": "Shape",
    "ngn.shapes": "save load",
    "ngn.programs": "export",
    "ngn.integrations.peft": "to_peft",
    "ngn.learner": "Learner CapacityLearner",
    "ngn.budget": "Budget",
    "ngn.allocation": "BudgetLearner",
    "ngn.front": "Front",
    "ngn.train.losses": "Supervised",
    "ngn.train.plan": "TrainPlan",
    "ngn.train.trainer": "Trainer",
    "ngn.train.fit": "fit",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_WHERE]


if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _WHERE:
            raise AttributeError(f"module 'ngn' has no attribute {name!r}")
        return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
