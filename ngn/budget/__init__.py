"""A budget: a limit on the cost of the deployed model (``ngn/budget/allocation.py``). A front: all costs at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from ngn.methods.base import setting

Limit = float | str | Sequence[float | str] | Tensor
"""A number, or a share of the cost of the largest model such as "60%"; or one per replica."""
BUDGET_COMMIT = 0.4
"""When sizes under a budget are fixed. The rest of training is the small model's alone."""


def share(text: str, whole: str) -> float:
    """The number that a share such as "60%" of ``whole`` stands for; a ValueError if it is written otherwise."""
    number = text.strip().removesuffix("%").strip()
    if not text.strip().endswith("%") or not number.replace(".", "", 1).isdigit():
        raise ValueError(f"write a share of {whole} as in '60%', not {text!r}")
    return float(number) / 100


@dataclass(frozen=True)
class Limits:
    """What a :class:`Budget` and a :class:`Front` say: a cost, and how to measure it and keep to it."""

    parameters: Limit | None = None
    macs: Limit | None = None
    milliseconds: Limit | None = None
    example: Any = None
    round_to: int = 1
    significance: float = 3.0
    several: ClassVar[bool] = False
    """Whether every size is trained, any of which can be deployed; else one within the limit is learned."""
    residual: ClassVar[bool] = False
    """Whether sizes that norms run over are trained, too."""

    def __post_init__(self) -> None:
        what = type(self).__name__.lower()
        given = [name for name in ("parameters", "macs", "milliseconds") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a {what} takes one of parameters, macs and milliseconds, not {given or 'nothing'}")
        if self.round_to < 1 or not self.significance > 0:
            raise ValueError(
                f"a {what} needs round_to of 1 or more and a positive significance, "
                f"not {self.round_to} and {self.significance}"
            )

    @property
    def kind(self) -> Literal["parameters", "macs", "milliseconds"]:
        """The name of the limited cost."""
        return "parameters" if self.parameters is not None else "macs" if self.macs is not None else "milliseconds"

    def limit(self, largest: float, replicas: int | None) -> Tensor:
        """The limit, float64 [*R]; ``largest`` is the cost of the whole model. It is a ValueError if it is no limit."""
        given: Any = getattr(self, self.kind)
        each = given if isinstance(given, list | tuple) else [given]
        numbers = [share(one, "the largest model") * largest if isinstance(one, str) else one for one in each]
        value = setting(numbers if each is given else numbers[0], replicas)
        if not bool((value > 0).all()):
            raise ValueError(f"a budget must be positive, not {given}")
        if self.kind != "milliseconds" and bool((value < 1).any()):
            raise ValueError(f"a budget of {given} {self.kind} is below 1: write a share as in '60%'")
        return value


@dataclass(frozen=True)
class Budget(Limits):
    """Limit the cost of the deployed model: give ``parameters``, ``macs`` or ``milliseconds``.

    Attributes:
        parameters: parameters of the deployed model.
        macs: multiply-adds in the matrix products and convolutions of one forward pass on ``example``.
        milliseconds: shortest time of that pass on this machine; on a CPU, processor time of the calling thread.
        example: an input of one model; a tuple for several arguments, a dictionary for named ones. Default: that of
            ``learn_sizes``.
        round_to: counts are multiples of it, or all components.
        significance: standard errors by which the benefit of a component has to differ from that of the others before
            a size parts from the even allocation. ``math.inf`` keeps it even.

    Raises:
        ValueError: if there is not exactly one limit, or a number is out of range.

    >>> import ngn
    >>> ngn.Budget(parameters="60%").kind
    'parameters'
    """


@dataclass(frozen=True)
class Front(Limits):
    """Train all sizes of a model at once: give the cost of the smallest one in place of a budget.

    Attributes:
        parameters, macs, milliseconds: the cost of the smallest member; one of them, as for :class:`Budget`. The
            largest member is the whole model.
        example, round_to: see :class:`Budget`.
        significance: standard errors by which held-out data must prefer sizes by scores to even ones;
            ``math.inf`` keeps them even.
        members: how many sizes training draws from, with evenly spaced costs. Sizes between them can be cut, too.
        ends: how often more than the others the smallest and the largest are drawn; 1 is twice as often.
        seed: of the order in which members are drawn.
        residual: whether what layer and RMS norms run over is narrowed, too: the residual stream of a transformer.

    Raises:
        ValueError: if there is not exactly one cost, or a number is out of range.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    >>> x = torch.randn(64, 2)
    >>> learner = ngn.learn_sizes(model, example=x, budget=ngn.Front(parameters="25%", members=4))
    >>> plan = ngn.TrainPlan(steps=40)
    >>> _ = ngn.fit(learner, x, x.prod(1, keepdim=True), torch.nn.functional.mse_loss, plan, progress="never")
    >>> print(learner.front())
    parameters   share   0
            13   20.0%   3
            29   44.6%   7
            45   69.2%  11
            65  100.0%  16
    >>> learner.deploy(budget="50%")[0]
    Linear(in_features=2, out_features=7, bias=True)
    """

    several = True
    members: int = 8
    ends: int = 0
    seed: int = 0
    residual: bool = False  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 2 or self.ends < 0:
            raise ValueError(f"a front needs 2 members or more, and ends of 0 or more, not {self.members}, {self.ends}")


@dataclass(frozen=True)
class Reach:
    """Costs that a training can reach: of the smallest model, as requested (per replica), and of the largest model."""

    kind: str
    smallest: float
    requested: list[float]
    largest: float

    def __str__(self) -> str:
        requested = [("requested", value) for value in dict.fromkeys(self.requested)]
        digits = 3 if self.kind == "milliseconds" else 0
        lines = [f"{'':10}{self.kind:>14}  of the largest"]
        for name, value in (("smallest", self.smallest), *requested, ("largest", self.largest)):
            lines.append(f"{name:10}{value:14,.{digits}f}{100 * value / self.largest:14.1f} %")
        if min(self.requested) >= self.largest:
            lines.append("the largest model is within the budget")
        return "\n".join(lines)
