"""NGN: learn how many ordered components a network needs, as a differentiable count.

Public names are imported on first use, so that ``import ngn`` alone does not load torch.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers
    from ngn.axis import OrderedAxis as OrderedAxis
    from ngn.budget import Budget as Budget
    from ngn.budget import Front as Front
    from ngn.components.base import Bank as Bank
    from ngn.components.base import OrderedSum as OrderedSum
    from ngn.integrations.peft import to_peft as to_peft
    from ngn.learner import Learner as Learner
    from ngn.methods.base import Capacity as Capacity
    from ngn.methods.ngn import CountGate as CountGate
    from ngn.programs import export as export
    from ngn.shapes import load as load
    from ngn.shapes import save as save
    from ngn.sizes.attach import learn_sizes as learn_sizes
    from ngn.sizes.base import Size as Size
    from ngn.sizes.find import find_sizes as find_sizes
    from ngn.sizes.named import Channels as Channels
    from ngn.sizes.named import Depth as Depth
    from ngn.sizes.named import Heads as Heads
    from ngn.sizes.named import Rank as Rank
    from ngn.sizes.named import Width as Width
    from ngn.train.fit import fit as fit
    from ngn.train.plan import TrainPlan as TrainPlan

__version__ = "0.1.0"

_NAMES = {
    "ngn.sizes.find": "find_sizes",
    "ngn.sizes.attach": "learn_sizes",
    "ngn.sizes.base": "Size",
    "ngn.sizes.named": "Width Heads Channels Rank Depth",
    "ngn.budget": "Budget Front",
    "ngn.learner": "Learner",
    "ngn.train.fit": "fit",
    "ngn.train.plan": "TrainPlan",
    "ngn.shapes": "save load",
    "ngn.programs": "export",
    "ngn.integrations.peft": "to_peft",
    "ngn.axis": "OrderedAxis",
    "ngn.methods.base": "Capacity",
    "ngn.methods.ngn": "CountGate",
    "ngn.components.base": "OrderedSum Bank",
}
_WHERE = {name: to for to, held in _NAMES.items() for name in held.split()}
__all__ = ["__version__", *_WHERE]


if not TYPE_CHECKING:  # with __getattr__, a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            return getattr(importlib.import_module(_WHERE[name]), name)
        if name[0] != "_" and find_spec(f"ngn.{name}"):
            return importlib.import_module(f"ngn.{name}")
        raise AttributeError(f"module 'ngn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
