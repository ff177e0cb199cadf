"""Learned ranks beside frozen linear maps: y = W x + b + sum_k c_k B_k (A_k x).

The weights of a term are masters in float32 (float64 for a float64 map), whatever the frozen map is in; the products
are in the type of the activation. c_k is multiplied into B, so that one product sums all terms: added one after the
other in bfloat16, those from k = 8 or so would be lost. Saved for the backward pass are A x and x, which all maps that
take it share; a step holds no further tensor of the size of an activation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.axis import Cut, OrderedAxis
from ngn.components.base import uniform
from ngn.methods.base import Capacity
from ngn.streams import generator


class Bottleneck(nn.Module):
    """K ordered terms beside a module, mostly a frozen one; where truncation leaves none, nothing else is left.

    Attributes:
        base: the module, the object that was given. Who does not want it trained freezes it.
        down, up: [K width, in] and [out, K width], ``up`` zero at the start.
        axis: the K components, ``width`` entries each.

    >>> import torch, ngn
    >>> from ngn.components.low_rank import Bottleneck
    >>> issubclass(ngn.LowRankLinear, Bottleneck)
    True
    """

    def __init__(
        self,
        base: nn.Module,
        sizes: tuple[int, int],
        capacity: Capacity,
        seed: int,
        name: str,
        width: int = 1,
    ) -> None:
        super().__init__()
        self.base = base
        like = next(base.parameters())
        dtype = torch.promote_types(like.dtype, torch.float32)
        terms = [uniform((width, sizes[0]), sizes[0], generator(seed, "init", name, k)) for k in range(capacity.K)]
        down = torch.cat([torch.empty(0, sizes[0]), *terms])
        self.down = nn.Parameter(down.to(like.device, dtype))
        self.up = nn.Parameter(torch.zeros(sizes[1], capacity.K * width, device=like.device, dtype=dtype))
        self.axis = OrderedAxis(capacity, [Cut(self, "down", 0, width), Cut(self, "up", 1, width, fold=True)])

    def extra_repr(self) -> str:
        return f"rank={self.down.shape[0]}"

    def lowered(self, x: Tensor) -> Tensor:
        """D x: [..., in] → [..., K width]."""
        return F.linear(x, self.down.to(x.dtype))

    def raised(self, h: Tensor) -> Tensor:
        """sum_k c_k U_k h_k: [..., K width] → [..., out]."""
        c = self.axis.coefficients()
        up: Tensor = self.up
        if c is not None:
            up = up * c.to(up).repeat_interleave(up.shape[1] // max(1, len(c)))
        return F.linear(h, up.to(h.dtype))


class LowRankLinear(Bottleneck):
    """y = W x + b + sum_k c_k B_k (A_k x): a linear map and K learned terms of rank one beside it.

    Args:
        base: W and b.
        capacity: how many of the K terms are in use.
        seed, name: A_k is drawn from them and k alone, uniformly on +-1/sqrt(in) as a linear map's weight; B is zero.

    >>> import torch, ngn
    >>> map_ = ngn.LowRankLinear(torch.nn.Linear(6, 3), ngn.CountGate(4, t0=1.8, delta=-0.5), seed=0, name="q")
    >>> small = ngn.CapacityLearner(map_).deploy(example=torch.randn(5, 6))
    >>> small.down.shape, small.up.shape
    (torch.Size([2, 6]), torch.Size([3, 2]))
    >>> ngn.deploy(ngn.LowRankLinear(torch.nn.Linear(6, 3), ngn.CountGate(4, delta=-0.5), seed=0, name="q"))
    Linear(in_features=6, out_features=3, bias=True)
    """

    def __init__(self, base: nn.Linear, capacity: Capacity, seed: int, name: str) -> None:
        super().__init__(base, (base.in_features, base.out_features), capacity, seed, name)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] → [..., out]"""
        y: Tensor = self.base(x)
        return y + self.raised(self.lowered(x))

    @property
    def weight(self) -> Tensor:
        """W + sum_k c_k B_k A_k in the type of W, [out, in], for what reads a map's weight in place of calling it."""
        own: Any = self.base.weight
        return own + self.raised(self.down.T).T.to(own.dtype)

    @property
    def bias(self) -> Tensor | None:
        """That of the map."""
        own: Any = self.base.bias
        return own

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """One linear map of the weight W + sum_k c_k B_k A_k, summed in float64 and rounded to the type of W.

        Raises:
            ValueError: if the number of terms is still learned.
        """
        if self.axis.capacity is not None:
            raise ValueError("the model has sizes that are still learned: deploy it first")
        base, change = self.base, self.raised(self.down.double().T).T
        like: dict[str, Any] = {"device": base.weight.device, "dtype": base.weight.dtype}
        whole = nn.utils.skip_init(nn.Linear, base.in_features, base.out_features, base.bias is not None, **like)
        whole.weight.copy_(base.weight.double() + change)
        if base.bias is not None:
            whole.bias.copy_(base.bias)
        return whole.requires_grad_(base.weight.requires_grad).train(self.training)


def merge(model: nn.Module) -> nn.Module:
    """Replace every linear map with learned terms beside it by the one map that both are; ``model``, changed in place.

    What is left has stock classes and the shapes of the model before its terms, so that ``save_pretrained`` and
    everything else that knows that model takes it.

    Args:
        model: what :meth:`~ngn.contract.Learner.deploy` gave.

    Returns:
        The model; of a single map the map that takes its place.

    Raises:
        ValueError: if sizes are still to be learned.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    >>> sizes = {name: ngn.Rank(4, t0=2.0) for name in "02"}
    >>> small = ngn.learn_sizes(model, sizes, frozen=True).deploy(unsettled="allow")
    >>> ngn.merge(small)[2]
    Linear(in_features=6, out_features=3, bias=True)
    """
    if isinstance(model, LowRankLinear):
        return model.merged()
    for path in [path for path, module in model.named_modules() if isinstance(module, LowRankLinear)]:
        replace(model, path, LowRankLinear.merged)
    return model


def replace(model: nn.Module, name: str, made: Callable[[Any], nn.Module]) -> None:
    """Put ``made(module)`` in the place of the submodule ``name``, and wherever else the model has that module.

    Raises:
        ValueError: if there is no such submodule.
    """
    if not name:
        raise ValueError("a model cannot be replaced in itself: put the map into a module, nn.Sequential(map)")
    try:
        module = model.get_submodule(name)
    except AttributeError:
        raise ValueError(f"the model has no module {name}") from None
    new = made(module)
    for holder in [*model.modules()]:
        for key, part in holder._modules.items():
            if part is module:
                holder._modules[key] = new


def attach_low_rank(
    model: nn.Module, targets: Sequence[str], capacity: Callable[[int], Capacity], seed: int
) -> list[str]:
    """Put K learned terms beside linear maps of ``model``, which is changed; its other parameters stay as they are.

    Args:
        targets: names of ``nn.Linear`` modules.
        capacity: makes the capacity of target number 0, 1, ...
        seed: of the terms.

    Returns:
        The targets, in the order of the learner's counts if they are in that of the model.

    Raises:
        ValueError: if a target is missing, or no linear map (any more).

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).requires_grad_(False)
    >>> ngn.attach_low_rank(model, ["0", "2"], lambda number: ngn.CountGate(4, delta=-0.5), seed=0)
    ['0', '2']
    >>> ngn.CapacityLearner(model).count()
    tensor([0, 0])
    """
    for number, name in enumerate(targets):

        def made(base: Any, number: int = number, name: str = name) -> LowRankLinear:
            if not isinstance(base, nn.Linear):
                raise ValueError(f"{name} is a {type(base).__name__}, not a linear map")
            return LowRankLinear(base, capacity(number), seed, name)

        replace(model, name, made)
    return list(targets)
