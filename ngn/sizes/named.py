"""Kinds of size: widths, heads and channels, which a trace finds, and layers and ranks, which no trace finds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from math import lcm
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

from ngn.components.low_rank import attach_low_rank
from ngn.cuts import Cut, inputs_first, kind_of
from ngn.methods.ngn import COMMIT, CountGate
from ngn.sizes.base import ByImportance, Indivisible, Maker, Size
from ngn.tracing.found import FoundSizes, SizeGroup, Uncut, listed


class TracedSize(Size):
    """A choice among the groups that :func:`~ngn.sizes.find.find_sizes` finds.

    Modules that can only be cut together share one size; it has the name of the first that is named.
    """

    @abstractmethod
    def of(self, found: FoundSizes, name: str) -> list[SizeGroup]:
        """The groups that belong to the module ``name``."""

    def chosen(self, found: FoundSizes, name: str, left: dict[str, Uncut] | None) -> dict[str, SizeGroup]:
        """The groups of the module ``name`` by their names, each in the components and with the name of this size.

        ``left`` gets the groups that K does not divide; if it is None, they are an error.
        """
        groups, result = self.of(found, name), {}
        for group in groups:
            own = (name if len(groups) == 1 else group.name) or "model"
            entries = self.entries(group)
            try:
                K = self.divided(own, group.length * entries, lcm(self.round_to, entries))
            except Indivisible as fault:
                if left is None:
                    raise
                left[group.name] = Uncut(group.members, group.length, str(fault))
                continue
            wide = (replace(cut, width=cut.width * (group.length // K)) for cut in group.cuts)
            cuts = tuple(sorted(wide, key=lambda cut: cut.fold))  # the first says how many entries a component has
            order = group.order if self.by_importance is None else self.order(own, K)
            made = replace(group, name=own, unit=self.unit, length=K, cuts=cuts, order=order, units=group.length)
            result[group.name] = made
        return result

    def entries(self, group: SizeGroup) -> int:
        """Entries of a unit of ``group``: one, or a block that can only be cut as a whole."""
        return min(cut.width for cut in group.cuts)

    def fits(self, group: SizeGroup) -> bool:
        """Whether a group is of this kind."""
        return True

    def refusal(self, found: FoundSizes, name: str) -> str:
        """Say why the module ``name`` has no such size, and what has one."""
        found = replace(found, groups=tuple(filter(self.fits, found)))
        said = [(fixed.reason, f"{fixed.length} entries", fixed.members) for fixed in found.fixed]
        said += [("they can only be cut together", f"{g.length} {g.unit}", g.members) for g in found]
        inside = {each: [member for member in each[2] if _within(member, name)] for each in said}
        # what is about this module alone says the most, that it reaches an input or output the least
        said.sort(key=lambda each: (each[0].startswith("is that of"), -len(inside[each]) / max(1, len(each[2]))))
        reasons = [f"{what} of {listed(own, 3)}: {reason}" for reason, what, own in said if inside[reason, what, own]]
        why = "; ".join(reasons[:3]) or "the example does not reach it"
        others = f"{self.unit} in {found.listed()}" if len(found) else f"no other {self.unit}"
        return f"{name or 'the model'}: no {self.unit} to cut inside it. {why}. The model has {others}"

    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        raise TypeError("a trace of the whole model finds this size: call ngn.learn_sizes")


def _within(member: str, name: str) -> bool:
    return member == name or not name or member.startswith(f"{name}.")


class Width(TracedSize):
    """The width of a feed-forward layer: ``K`` slices of neighbouring hidden units.

    These are the units between the layers inside a module, its heads aside: of a module with several hidden layers,
    each has a size of its own. For a single layer they are the units that it produces.

    Args:
        K, by_importance, round_to, gate: see :class:`Size`; K = None for single units.

    >>> import torch, ngn
    >>> mlp, x = torch.nn.Sequential(torch.nn.Linear(4, 12), torch.nn.GELU(), torch.nn.Linear(12, 4)), torch.randn(3, 4)
    >>> learner = ngn.learn_sizes(mlp, {"": ngn.Width(6, t0=1.2)}, example=x)
    >>> learner.deploy(example=x, unsettled="allow")
    Sequential(
      (0): Linear(in_features=4, out_features=4, bias=True)
      (1): GELU(approximate='none')
      (2): Linear(in_features=4, out_features=4, bias=True)
    )
    """

    unit = "slices"

    def fits(self, group: SizeGroup) -> bool:
        return group.unit != "heads"

    def of(self, found: FoundSizes, name: str) -> list[SizeGroup]:
        units = [*filter(self.fits, found)]
        inside = [group for group in units if all(_within(member, name) for member in group.members)]
        layer = found.model.get_submodule(name)
        return inside or [group for group in units if layer in group.producers]


class Heads(TracedSize):
    """The heads of an attention layer; with grouped queries, the key-value heads, each with its queries.

    Where layers share something per head, such as a bias by position, their heads are one size.

    Args:
        by_importance, round_to, gate: see :class:`Size`; ``round_to`` counts heads.

    >>> import torch, ngn
    >>> attention, x = torch.nn.MultiheadAttention(8, 4, batch_first=True), torch.randn(2, 5, 8)
    >>> example = {"query": x, "key": x, "value": x, "need_weights": False}
    >>> learner = ngn.learn_sizes(attention, {"": ngn.Heads(t0=1.2)}, example=example)
    >>> learner.deploy(example=example, unsettled="allow").num_heads
    2
    """

    unit = "heads"

    def __init__(self, by_importance: ByImportance = None, **gate: Any) -> None:
        super().__init__(None, by_importance, **gate)

    def fits(self, group: SizeGroup) -> bool:
        return group.unit == "heads"

    def of(self, found: FoundSizes, name: str) -> list[SizeGroup]:
        return [group for group in found if self.fits(group) and any(_within(each, name) for each in group.members)]

    def entries(self, group: SizeGroup) -> int:
        return 1


class Channels(TracedSize):
    """The output channels of a convolution, in ``K`` groups of neighbours.

    Everything with these channels is cut with them: normalisations, depthwise convolutions, squeeze-and-excitation
    blocks and, behind residual sums, the other convolutions that are summed.

    Args:
        K, by_importance, round_to, gate: see :class:`Size`; K = None for single channels, or the smallest blocks that
            can be cut, such as the groups of a group norm.

    >>> import torch, ngn
    >>> convs = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 2, 3)]
    >>> x = torch.randn(1, 3, 9, 9)
    >>> learner = ngn.learn_sizes(torch.nn.Sequential(*convs), {"0": ngn.Channels(4, t0=1.2)}, example=x)
    >>> learner.deploy(example=x, unsettled="allow")[3].in_channels
    4
    """

    unit = "channels"

    def of(self, found: FoundSizes, name: str) -> list[SizeGroup]:
        conv = found.model.get_submodule(name)
        if not isinstance(conv, _ConvNd):
            return []
        place = (conv, "weight", 1 if inputs_first(conv) else 0)
        return [group for group in found if any((cut.module, cut.name, cut.dim) == place for cut in group.cuts)]

    def refusal(self, found: FoundSizes, name: str) -> str:
        conv = found.model.get_submodule(name)
        if not isinstance(conv, _ConvNd):
            return f"{name or 'the model'} is a {kind_of(conv)}; ngn.Channels takes a convolution, such as nn.Conv2d"
        return super().refusal(found, name)


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
        usual = None if by_importance is not None else lambda name, K: [K - 1, *range(K - 1)]
        super().__init__(None, usual or by_importance, **gate)

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
