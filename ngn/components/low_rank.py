"""Learned ranks next to frozen linear maps: y = W x + b + sum_k c_k B_k (A_k x).

Precision: A and B are float32 (float64 for a float64 map), and products have the type of the activation. The factor c_k
is multiplied into B, so that one product sums all terms. Added one by one in bfloat16, terms from about k = 8 on would
be lost to rounding.

Memory: the backward pass keeps A x and x; maps with the same input share x. A step holds no other tensor of the size of
an activation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.components.base import uniform
from ngn.cuts import Cut, kind_of
from ngn.methods.base import Capacity
from ngn.streams import generator


class Bottleneck(nn.Module):
    """K ordered terms next to a module, usually a frozen one; without any term, truncation leaves the module itself.

    ``base`` is the given module, the same object: freeze it if it should not be trained. ``down`` is [K width, in], and
    ``up``, [out, K width], starts at zero. ``axis`` is that of the K components, ``width`` entries each.
    """

    def __init__(
        self, base: nn.Module, sizes: tuple[int, int], capacity: Capacity, seed: int, name: str, width: int = 1
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
        """Return D x: [..., in] → [..., K width]."""
        return F.linear(x, self.down.to(x.dtype))

    def raised(self, h: Tensor) -> Tensor:
        """Return sum_k c_k U_k h_k: [..., K width] → [..., out]."""
        return F.linear(h, self.axis.scaled(self.up, 1).to(h.dtype))


class LowRankLinear(Bottleneck):
    """A linear map with K learned terms of rank one: y = W x + b + sum_k c_k B_k (A_k x).

    Args:
        base: the linear map, W and b.
        capacity: says how many of the K terms are in use.
        seed, name: the address that A_k is drawn from, with k: uniform on +-1/sqrt(in). B starts at zero.

    >>> import torch, ngn
    >>> from ngn.components.low_rank import LowRankLinear
    >>> from ngn.cut.truncation import deploy
    >>> map_ = LowRankLinear(torch.nn.Linear(6, 3), ngn.CountGate(4, t0=1.8, delta=-0.5), seed=0, name="q")
    >>> small = ngn.Learner(map_).deploy(example=torch.randn(5, 6))
    >>> small.down.shape, small.up.shape
    (torch.Size([2, 6]), torch.Size([3, 2]))
    >>> deploy(LowRankLinear(torch.nn.Linear(6, 3), ngn.CountGate(4, delta=-0.5), seed=0, name="q"))
    Linear(in_features=6, out_features=3, bias=True)
    """

    def __init__(self, base: nn.Linear, capacity: Capacity, seed: int, name: str) -> None:
        super().__init__(base, (base.in_features, base.out_features), capacity, seed, name)

    def forward(self, x: Tensor) -> Tensor:
        """Return y: [..., in] → [..., out]."""
        y: Tensor = self.base(x)
        return y + self.raised(self.lowered(x))

    @property
    def weight(self) -> Tensor:
        """W + sum_k c_k B_k A_k in the type of W, [out, in], for code that reads the weight of a map."""
        weight: Any = self.base.weight
        return weight + self.raised(self.down.T).T.to(weight.dtype)

    @property
    def bias(self) -> Tensor | None:
        """The bias of the map."""
        bias: Any = self.base.bias
        return bias

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """One linear map with the weight W + sum_k c_k B_k A_k, summed in float64 and rounded to W's type."""
        if self.axis.capacity is not None:
            raise ValueError("merge takes a deployed model, but this one still learns its sizes: deploy it first")
        base, change = self.base, self.raised(self.down.double().T).T
        like: dict[str, Any] = {"device": base.weight.device, "dtype": base.weight.dtype}
        whole = nn.utils.skip_init(nn.Linear, base.in_features, base.out_features, base.bias is not None, **like)
        whole.weight.copy_(base.weight.double() + change)
        if base.bias is not None:
            whole.bias.copy_(base.bias)
        return whole.requires_grad_(base.weight.requires_grad).train(self.training)


def merge(model: nn.Module) -> nn.Module:
    """Merge the learned terms of a deployed model into their linear maps, in place; return the model, or the merged
    map.

    The result has the classes and shapes of the original model, so that ``save_pretrained`` and other code for that
    model accept it. It is a ValueError if sizes are still learned.

    >>> import torch, ngn
    >>> from ngn.components.low_rank import merge
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    >>> sizes = {name: ngn.Rank(4, t0=2.0) for name in "02"}
    >>> small = ngn.learn_sizes(model, sizes, frozen=True).deploy(unsettled="allow")
    >>> merge(small)[2]
    Linear(in_features=6, out_features=3, bias=True)
    """
    if isinstance(model, LowRankLinear):
        return model.merged()
    for path in [path for path, module in model.named_modules() if isinstance(module, LowRankLinear)]:
        replace(model, path, LowRankLinear.merged)
    return model


def replace(model: nn.Module, name: str, made: Callable[[Any], nn.Module]) -> None:
    """Replace the submodule ``name`` by ``made(module)``, everywhere in ``model``; a ValueError without such a one."""
    if not name:
        raise ValueError("the model itself cannot be replaced: wrap it, as in nn.Sequential(model), and name it '0'")
    try:
        module = model.get_submodule(name)
    except AttributeError:
        raise ValueError(f"the model has no module {name}: its names are those of model.named_modules()") from None
    new = made(module)
    for holder in [*model.modules()]:
        for key, part in holder._modules.items():
            if part is module:
                holder._modules[key] = new


def attach_low_rank(
    model: nn.Module, targets: Sequence[str], capacity: Callable[[int], Capacity], seed: int
) -> list[str]:
    """Add K learned terms to linear maps of ``model``, in place; its parameters do not change.

    Args:
        targets: names of ``nn.Linear`` modules; they are returned. The learner's counts have the order of the model.
        capacity: a function that makes the capacity of target number 0, 1, ...
        seed: seed of the terms' initial values.

    Raises:
        ValueError: if a target is missing, is not a linear map, or already has terms.
    """
    for number, name in enumerate(targets):

        def made(base: Any, number: int = number, name: str = name) -> LowRankLinear:
            if not isinstance(base, nn.Linear):
                raise ValueError(f"{name} is a {kind_of(base)}, not a linear map: name nn.Linear modules")
            return LowRankLinear(base, capacity(number), seed, name)

        replace(model, name, made)
    return list(targets)
