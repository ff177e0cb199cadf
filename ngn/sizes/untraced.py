"""Sizes that no trace finds: the number of layers of a residual stack, and ranks of terms beside linear layers."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from ngn.components.low_rank import attach_low_rank
from ngn.cuts import Cut, kind_of
from ngn.methods.ngn import COMMIT, CountGate
from ngn.sizes.base import ByImportance, Maker, Size


def _last_but_one_first(name: str, K: int) -> list[int]:
    """Order layers by importance: the last one, then from the first on."""
    return [K - 1, *range(K - 1)]


_OF_LAYERS = ("layer_types", "mlp_layer_types", "no_rope_layers", "attention_layers")
"""Configuration keys of transformers that list one entry per layer."""


class Depth(Size):
    """The layers h → h + F(h) of a residual stack, each computed as h → h + g_k F(h).

    By default the second last layer goes first, then those before it; the last layer always stays. In pretrained
    stacks, late layers matter least, except the last.

    Args:
        by_importance, gate: see :class:`Size`; the ordering weights w_k must be one.

    >>> import torch, ngn
    >>> class Layer(torch.nn.Linear):
    ...     def forward(self, x): return x + super().forward(x)
    >>> class Stack(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layers = torch.nn.ModuleList(Layer(4, 4) for _ in range(6))
    ...     def forward(self, x):
    ...         for layer in self.layers: x = layer(x)
    ...         return x
    >>> stack, x = Stack(), torch.randn(2, 4)
    >>> kept = ngn.learn_sizes(stack, {"layers": ngn.Depth(t0=2.0)}, example=x).deploy(example=x).layers
    >>> [n for n, layer in enumerate(stack.layers) if any(torch.equal(layer.weight, k.weight) for k in kept)]
    [0, 1, 5]
    """

    unit = "layers"

    def __init__(self, by_importance: ByImportance = None, **gate: Any) -> None:
        super().__init__(None, _last_but_one_first if by_importance is None else by_importance, **gate)

    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        layers = model.get_submodule(name)
        if not isinstance(layers, nn.ModuleList) or not name or not len(layers):
            raise ValueError(f"{name or 'the model'} is a {kind_of(layers)}, not an nn.ModuleList of layers")
        held = [part for part in model.modules() if part is not layers and {*part.children()} & {*layers}]
        if held:
            raise ValueError(f"{name}: a {type(held[0]).__name__} also holds these layers and would keep all of them")
        if len({id(layer) for layer in layers}) < len(layers):
            raise ValueError(f"{name} holds the same layer several times, so no single place of it can be removed")
        above, _, last = name.rpartition(".")
        parent = model.get_submodule(above)
        config = getattr(parent, "config", None)
        side = next((part for part in ("decoder", "encoder") if part in name.split(".")), "")
        known = (f"{side}_layers", f"num_{side}_layers", "num_hidden_layers")
        counted = next((each for each in known if getattr(config, each, None) == len(layers)), None)
        counts = [] if counted is None else [(config, counted)]
        own = [each for each in _OF_LAYERS if not isinstance(getattr(type(config), each, None), property)]
        lists = [each for each in own if isinstance(getattr(config, each, None), (list, tuple))]
        counts += [(config, each) for each in lists if len(getattr(config, each)) == len(layers)]
        axis = self.axis(name, len(layers), make, [Cut(parent, last, 0)], counts=counts)
        if not axis.capacity.all_or_nothing:
            raise ValueError(
                f"{name}: a {type(axis.capacity).__name__} scales layers, but a layer is either kept or removed"
            )
        if not bool((axis.capacity.weights() == 1).all()):
            raise ValueError(f"{name}: layers need ordering weights of one: set r=1")
        parent.add_module(f"size_of_{last}", axis)
        for number, layer in enumerate(layers):
            layer.register_forward_pre_hook(axis.before_layer, with_kwargs=True)
            layer.register_forward_hook(partial(axis.after_layer, number), with_kwargs=True)


class Rank(Size):
    """``K`` new low-rank terms next to a linear layer (:class:`~ngn.components.low_rank.LowRankLinear`).

    The boundary starts at 0.1, with delta = -1/2. A layer may end without terms; it is then the original layer.

    Args:
        K, gate: see :class:`Size`.
        seed: seed of the terms.

    >>> import torch, ngn
    >>> model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Linear(6, 3))
    >>> learner = ngn.learn_sizes(model, {"*": ngn.Rank(4, t0=1.8)}, frozen=True)
    >>> learner.names, learner.count().tolist()
    (['0', '1'], [2, 2])
    """

    unit = "terms"
    tried = False  # a layer without terms is the original one

    def __init__(self, K: int, seed: int = 0, **gate: Any) -> None:
        super().__init__(K, **gate)
        self.seed = seed

    def gate(self, K: int, common: dict[str, Any]) -> CountGate:
        return CountGate(K, **({"delta": -0.5, "t0": 0.1, "commit": COMMIT} | common | self.settings))

    def takes(self, module: nn.Module) -> bool:
        return isinstance(module, nn.Linear)

    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        assert self.K is not None
        K = self.K
        attach_low_rank(model, [name], lambda number: make(name, K), self.seed)
        axis: Any = model.get_submodule(name).axis
        axis.name, axis.unit = name, self.unit
