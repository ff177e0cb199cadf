"""An ordered axis: one learned size along a dimension of tensors that other modules own.

K components lie along one dimension of some tensors, ``width`` entries each: heads, hidden units, channels, ranks, or
blocks of a bank. Training multiplies the activation there by w_k g_k. Truncation (``ngn/cut/truncation.py``) cuts all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.cuts import Counts, Cut, by_place, kind_of, ranks_of
from ngn.methods.base import Capacity, Mode

GONE = "gone"  # a child of an axis that has cut layers: the capacities of the axes in them, whose sizes are reported


class OrderedAxis(nn.Module):
    """Learn the size of one axis of tensors that other modules own.

    The model calls it on the activation that has the axis: h [..., K width, ...] → h c_k. After deployment the capacity
    is None. The axis then multiplies only by coefficients that no cut could take.

    Args:
        capacity: says how many of the K components are in use; None for a model of a given size.
        cuts: all tensors that have the axis.
        counts: (module, attribute) pairs to shrink with the count: an integer that is a multiple of K (``num_heads``),
            or a list of K entries (``layer_types``).
        dim: the dimension of the activation.
        by_importance: places along the axis, the most important first; None if component k is at place k. A
            permutation of 0 ... K - 1 orders the components. One of 0 ... n K - 1 orders units, n to a component: the
            first n places are those of component 0. A component is then no block of neighbours.
        name, unit: what reports call the axis and its components.

    Raises:
        TypeError: if ``capacity`` is neither a Capacity nor None.
        ValueError: if the capacity has replicas, allocates components or normalises them (use :class:`OrderedSum`); if
            ``by_importance`` is not a permutation of 0 ... n K - 1.

    >>> import torch, ngn
    >>> from ngn.cuts import inputs, outputs
    >>> up, down = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)
    >>> axis = ngn.OrderedAxis(ngn.CountGate(4, t0=1.0), [*outputs(up, 2), *inputs(down, 2)])  # the neurons
    >>> learner = ngn.Learner(torch.nn.Sequential(up, torch.nn.Tanh(), axis, down))
    >>> learner.deploy(example=torch.randn(5, 3))[0]
    Linear(in_features=3, out_features=4, bias=True)
    """

    capacity: Capacity
    """None once truncated."""
    scale: Tensor | None
    hooked = False  # whether hooks call the axis (truncation then removes both) and not the forward pass of a module
    cuttable = True  # whether training can go on without components whose coefficient is 0
    normalised = False  # whether norms run over the components, so that no coefficient can stand for a cut

    def __init__(
        self,
        capacity: Capacity | None,
        cuts: Sequence[Cut],
        counts: Counts = (),
        dim: int = -1,
        by_importance: Sequence[int] | None = None,
        name: str = "",
        unit: str = "components",
    ) -> None:
        super().__init__()
        if capacity is not None:
            if not isinstance(capacity, Capacity):
                raise TypeError(
                    "an axis needs a capacity, such as ngn.CountGate(K), from capacity= of learn_sizes, or as in "
                    f"OrderedAxis(capacity, cuts), not {kind_of(capacity)}"
                )
            if capacity.replicas is not None or capacity.rms_eps is not None or capacity.growing:
                raise ValueError("replicas, growth and normalised components need a bank: use OrderedSum")
        self.capacity = capacity  # type: ignore[assignment]
        self._K = 0 if capacity is None else capacity.K
        self.cuts: tuple[Cut, ...] = tuple(cuts)
        """All tensors that have the axis; empty after truncation."""
        self.counts, self.dim, self.name, self.unit = tuple(counts), dim, name, unit
        self.register_buffer("scale", None)
        self.mode: Mode = "soft"
        self.called = False  # whether a forward pass has ever used the axis
        self.whole: Any = None  # the model before its first cut, for reports
        self.per = 1  # places of one component; ``width`` of a cut counts the entries of one place
        self.order = None if capacity is None else torch.arange(capacity.K, device="cpu")
        """``ranks`` before any cut. States have it, in float64 like all of an axis, so that averages by name work."""
        self.ranks: Tensor | None = None
        """The component at each place, int64 [places], on the CPU; None for its own. No buffer: those are averaged."""
        self._ranks: Tensor | None = None  # a copy of ``ranks`` on the device of the last call
        self.chosen = by_importance is not None and capacity is not None  # whether the user gave the order
        if self.chosen:
            self.sort(by_importance)  # type: ignore[arg-type]

    @property
    def K(self) -> int:
        """Number of components that exist."""
        return self._K if self.capacity is None else self.capacity.K

    @property
    def places(self) -> int:
        """Number of places along the axis: K, or that of the units that have an order of their own."""
        return self.K * self.per

    def sort(self, by_importance: Sequence[int]) -> None:
        """Give the components new places, before any training; ``by_importance`` and errors as for the class."""
        ranks = ranks_of(by_importance, self.K)
        per = len(ranks) // max(1, self.K)
        if any(cut.width * self.per % per or (cut.start < 0 and per > 1) for cut in self.cuts):
            raise ValueError(f"{self.name}: by_importance orders {len(ranks)} units, which its tensors do not have")
        self.cuts = tuple(replace(cut, width=cut.width * self.per // per) for cut in self.cuts)
        self.per, self.ranks, self._ranks, self.order = per, ranks, ranks, ranks

    def take_order(self, order: Tensor) -> None:
        """Take over the ``order`` of a state, for components that are not cut yet; a ValueError if it is damaged."""
        order = order.detach().cpu().round().long()
        if self.order is None or torch.equal(order, self.order):
            return
        if bool((order < 0).any()) or len({*order.bincount().tolist()}) != 1:
            raise ValueError(
                f"{self.name or 'an axis'}: the order of its components in this state is damaged. Was the state cast "
                "to half precision, or averaged with the state of another training?"
            )
        if int(order.max()) + 1 >= self.K:  # else the state is of a smaller model: loading names the shapes
            self.sort(order[order < self.K].argsort(stable=True).tolist())
            self.order = order

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.order is not None and self.capacity is not None:
            destination[f"{prefix}order"] = self.order.double()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        if (order := state_dict.pop(f"{prefix}order", None)) is not None and self.capacity is not None:
            self.take_order(order)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return "" if self.capacity is None else f"K={self.K}"

    def in_place(self, values: Tensor) -> Tensor:
        """Reorder values, [*R, K], from the order of components to the places along the axis, [*R, places]."""
        if self.ranks is None:
            return values
        if self._ranks is None or self._ranks.device != values.device:
            self._ranks = self.ranks.to(values.device)
        return values[..., self._ranks]

    def coefficients(self) -> Tensor | None:
        """c_k = w_k g_k in the current mode, [places]; None if all are 1."""
        if self.capacity is None:
            return self.scale
        if not self.called:  # setting an attribute in every pass would recompile a compiled graph
            self.called = True
        if self.capacity.all_open:
            return None
        c = self.capacity.coefficients(self.mode)
        if self.normalised and not bool(c.all()):
            raise ValueError(
                f"{self.name}: norms run over this size, so a smaller one needs slices of tensors, which a compiled, "
                "sharded, quantised or checkpointed model has not: leave residual= of the front out"
            )
        return self.in_place(c if c.shape[-1] == self.K else F.pad(c, (0, self.K - c.shape[-1])))

    def forward(self, h: Tensor) -> Tensor:
        """h [..., K width, ...] → h c_k."""
        return self.scaled(h, self.dim)

    def scaled(self, h: Tensor, dim: int) -> Tensor:
        """``h`` times the coefficients along dimension ``dim``; a ValueError if ``h`` has no components there."""
        factor = self.factor(h, dim)
        return h if factor is None else h * factor

    def factor(self, h: Tensor, dim: int) -> Tensor | None:
        """The coefficients, like ``h``, in the shape that multiplies it along ``dim``; None for ones."""
        c = self.coefficients()
        after = h.dim() - 1 - dim % h.dim()
        return None if c is None else self.repeated(c.to(h), h, dim).view(-1, *[1] * after)

    def repeated(self, values: Tensor, h: Tensor, dim: int) -> Tensor:
        """Values of the places, for each entry of ``h`` along ``dim``."""
        if h.shape[dim] % max(1, len(values)):
            shape = f"dimension {dim} of the activation {list(h.shape)}"
            raise ValueError(f"{self.name}: {shape} must be a multiple of the axis's {len(values)} components")
        return values.repeat_interleave(h.shape[dim] // max(1, len(values)))

    def component_parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of the components, each as [*R, K, ...]; one that several modules hold once."""
        held = ((cut, getattr(cut.module, cut.name)) for cut in self.cuts)
        unique = {(id(p), cut.dim, cut.start): (cut, p) for cut, p in held if isinstance(p, nn.Parameter)}
        for cut, value in unique.values():
            span = by_place(cut, value, self.places)
            span = span if self.ranks is None else span[self.ranks.argsort()]
            yield span.unflatten(0, (self.K, self.per)).flatten(1, 2)

    def before_step(self, step: int | None) -> None:
        """Prepare the forward passes of a step; None: of an evaluation."""
        self.capacity.before_step(step)

    def grow(self, K: int) -> None:
        """Raise a ValueError: only banks can grow."""
        raise ValueError("the tensors of this axis cannot grow: build the model with more components")

    def retained(self) -> tuple[Tensor, Tensor]:
        """Which components truncation keeps, bool [*R, K], and their coefficients, float64 [*R, k <= K]."""
        return self.capacity.kept(), self.capacity.coefficients("hard").detach()

    def shrunk(self, kept: Tensor) -> None:
        """Update the axis after its tensors were cut to the places ``kept``, bool [places]."""
        before, left = len(kept), int(kept.sum())
        for module, name in self.counts:
            value = getattr(module, name)
            if isinstance(value, int):
                setattr(module, name, value // before * left)
            else:
                setattr(module, name, [part for part, stays in zip(value, kept.tolist(), strict=True) if stays])
        self._K = left // self.per
        if self.capacity is not None:
            self.capacity.shrink(self._K)
        self.ranks = self._ranks = None if self.ranks is None else self.ranks[kept]

    def closed(self, scale: Tensor | None) -> None:
        """In a deployed copy without capacity: have no tensors any more, and multiply by ``scale``."""
        self.cuts, self.counts, self.scale, self.ranks = (), (), scale, None
        self._ranks, self.per = None, 1
        self._modules.pop(GONE, None)

    def moved(self) -> None:
        """Renew notes of shapes: tensors of the model were cut in place, those of this axis or of others."""


@contextmanager
def having(axes: Iterable[Any], **values: Callable[[Any], Any]) -> Iterator[None]:
    """Give attributes of each of ``axes``, such as its capacity, other values within the context: functions of it."""
    before = [(axis, {name: getattr(axis, name) for name in values}) for axis in axes]
    try:
        for axis, _ in before:
            for name, value in values.items():
                setattr(axis, name, value(axis))
        yield
    finally:
        for axis, former in before:
            for name, value in former.items():
                setattr(axis, name, value)
