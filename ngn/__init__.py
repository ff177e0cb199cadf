"""NGN: learn how many ordered components a network needs, as a differentiable count.

What needs torch is loaded when it is first used, so that the configuration, the records and the tables do not.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "CountGate": "ngn.methods.ngn",
    "FixedCount": "ngn.methods.fixed",
    "StraightThrough": "ngn.methods.ste",
    "HardConcrete": "ngn.methods.l0",
    "AdaptiveWidth": "ngn.methods.awnn",
    "DecayGate": "ngn.methods.decay",
    "OrderedSum": "ngn.components.base",
    "MLPBank": "ngn.components.mlp",
    "ConvBank": "ngn.components.conv",
    "GCNBank": "ngn.components.gcn",
    "ParallelModel": "ngn.components.parallel",
    "Bank": "ngn.components.base",
    "TanhBank": "ngn.components.depth",
    "ChainBank": "ngn.components.depth",
    "RankOneBank": "ngn.components.latent",
    "Capacity": "ngn.methods.base",
    "Cut": "ngn.axis",
    "OrderedAxis": "ngn.axis",
    "Stacked": "ngn.axis",
    "inputs": "ngn.axis",
    "outputs": "ngn.axis",
    "deploy": "ngn.truncation",
    "save": "ngn.shapes",
    "load": "ngn.shapes",
    "Learner": "ngn.learner",
    "CapacityLearner": "ngn.learner",
    "Trainer": "ngn.train.trainer",
    "TrainPlan": "ngn.train.trainer",
    "fit": "ngn.train.fit",
}
__all__ = ["__version__", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'ngn' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
