"""Every capacity, small enough to test exhaustively."""

import torch

from experiments.methods.gates.awnn import AdaptiveWidth
from experiments.methods.gates.decay import DecayGate
from experiments.methods.gates.l0 import HardConcrete
from experiments.methods.gates.ste import StraightThrough
from experiments.methods.low_rank.sora import SoRA
from ngn.budget import Budget
from ngn.budget.allocation import BudgetLearner
from ngn.learner import Learner
from ngn.methods.fixed import FixedCount, Retained
from ngn.methods.ngn import CountGate
from ngn.methods.orders import Order

K = 4


def scattered(replicas):
    """Make hard-concrete gates whose open gates are not a prefix; one gate is partly open."""
    gate = HardConcrete(K, 3 if replicas is None else [3, 8])
    with torch.no_grad():
        gate.log_alpha.copy_(torch.tensor([-3.0, 0.3, -3.0, 3.0]))
        if replicas is not None:
            gate.log_alpha[1] = torch.tensor([1.0, -3.0, -3.0, -3.0])
    return gate


LEARNERS = {
    "ngn": lambda replicas: CountGate(K, t0=1.7 if replicas is None else [1.7, 0.2], replicas=replicas),
    "ngn-shifted": lambda replicas: CountGate(
        K, t0=1.2 if replicas is None else [1.2, 0.2], delta=-0.5, replicas=replicas
    ),
    "ngn-beyond": lambda replicas: CountGate(K, t0=K + 0.3, replicas=replicas),
    "ngn-matryoshka": lambda replicas: CountGate(K, t0=1.7, order=Order("matryoshka"), replicas=replicas),
    "fixed": lambda replicas: FixedCount(K, replicas=replicas),
    "ste": lambda replicas: StraightThrough(K, t0=1.7 if replicas is None else [1.7, 0.2], replicas=replicas),
    "l0": scattered,
    "awnn": lambda replicas: AdaptiveWidth(K, 11, width=2.5 if replicas is None else [2.5, 0.7], replicas=replicas),
    "decay": lambda replicas: DecayGate(K, t0=1.7 if replicas is None else [1.7, 0.2], replicas=replicas),
    "decay-normalised": lambda replicas: DecayGate(K, learn_r=False, normalise=True, t0=1.7, replicas=replicas),
    "decay-free": lambda replicas: DecayGate(K, boundary=False, normalise=True, r=0.4, replicas=replicas),
}


def under_budget(share, progress):
    """Return a function that makes the learner of a model under a share of its parameters, at ``progress``."""

    def made(model):
        learner = BudgetLearner(model, Budget(parameters=share))
        learner.set_progress(progress)
        return learner

    return made


BUDGETS = {"budget-open": under_budget("100%", 0.3), "budget-committed": under_budget("70%", 0.95)}
"""Learners under a budget, before and after their sizes are committed."""


def shrunk():
    """Make SoRA gates whose open gates are not a prefix; one gate is negative."""
    gate = SoRA(K, 3)
    with torch.no_grad():
        gate.g.copy_(torch.tensor([0.0, 0.3, 0.0, -1.2]))
    return gate


def cut():
    rank = Retained(K)
    rank.left.fill_(3)
    return rank


ALONE = {"sora": shrunk, "retained": cut}
"""Capacities without a replica axis."""


def put_price(learner: Learner, price: float | list[float]) -> None:
    """Give every boundary a price that no constructor allows: a negative price moves it outwards."""
    for axis in learner.axes:
        axis.capacity.lambda0.copy_(torch.as_tensor(price, dtype=torch.float64))
