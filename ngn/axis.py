"""An ordered axis: one learned size along a dimension of tensors that other modules own.

K components lie along one dimension of some tensors, ``width`` entries each. They can be heads, slices of a
feed-forward layer, channels, the terms of a low rank, or blocks of a bank. Training multiplies the activation on that
axis by w_k g_k. Truncation (``ngn/truncation.py``) cuts every tensor that has the axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.methods.base import Capacity, Mode

Counts = Sequence[tuple[Any, str]]
GONE = "gone"
"""A child of an axis that has cut layers: the capacities of the axes in them, whose sizes are still reported."""


@dataclass(frozen=True)
class Cut:
    """Name a tensor that has the axis.

    Component k has the entries start + k width ... start + (k + 1) width - 1 of dimension ``dim``.

    Attributes:
        module, name: the tensor is ``module.name``: a parameter, a buffer, or a ``ModuleList`` of K modules.
        dim: the dimension; for a stacked module, the dimension of one replica's tensor.
        width: entries per component.
        start: index at which component 0 begins. A negative start means that the leading components have no entries:
            with -1 and width 1, component 0 (an identity, say) has none.
        fold: truncation multiplies these entries by the components' coefficients, permanently.
        merge: truncation sums the entries over the axis and keeps length 1, as for the output bias of a sum of blocks.

    >>> import torch, ngn
    >>> cut = ngn.Cut(torch.nn.RMSNorm(8), "weight", dim=0, width=2)
    >>> cut.module.weight.shape[cut.dim] // cut.width  # components
    4
    """

    module: nn.Module
    name: str
    dim: int
    width: int = 1
    start: int = 0
    fold: bool = False
    merge: bool = False


def inputs_first(module: nn.Module) -> bool:
    """Whether a weight is [in, out, ...], as in transposed convolutions and ``Conv1D`` (the map of GPT-2)."""
    return bool(getattr(module, "transposed", False)) or is_conv1d(module)


def kind_of(part: object) -> str:
    """The name of the class of ``part``; with its package where torch.nn has another class of this name."""
    kind = type(part)
    return kind.__name__ if getattr(nn, kind.__name__, kind) is kind else f"{kind.__module__}.{kind.__name__}"


def is_conv1d(module: nn.Module) -> bool:
    """Whether a module is the ``Conv1D`` of transformers; checked by name, since transformers may not be installed."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def outputs(module: nn.Module, width: int = 1, start: int = 0, fold: bool = False) -> list[Cut]:
    """Return the cuts of a module whose output has the axis: linear map, convolution, normalisation or embedding.

    ``fold`` multiplies the output of the module by the coefficients. Do not use it before a nonlinear function.

    >>> import torch, ngn
    >>> [(cut.name, cut.dim, cut.width) for cut in ngn.outputs(torch.nn.Linear(3, 8), width=2)]
    [('weight', 0, 2), ('bias', 0, 2)]
    """
    names = ("weight", "bias", "running_mean", "running_var")
    dim = 1 if isinstance(module, nn.Embedding) or inputs_first(module) else 0
    cuts = []
    for name in names:
        value = getattr(module, name, None)
        if isinstance(value, Tensor):
            folds = fold and not name.startswith("running")
            cuts.append(Cut(module, name, dim if name == "weight" else 0, width, start, folds))
    return cuts


def inputs(module: nn.Module, width: int = 1, start: int = 0, fold: bool = True) -> list[Cut]:
    """Return the cut of a linear map or convolution whose input has the axis; ``fold`` puts the coefficients into it.

    Use ``fold`` if this map is the only one that reads the axis. The bias does not change.

    >>> import torch, ngn
    >>> [(cut.name, cut.dim, cut.fold) for cut in ngn.inputs(torch.nn.Linear(8, 3))]
    [('weight', 1, True)]
    """
    return [Cut(module, "weight", 0 if inputs_first(module) else 1, width, start, fold)]


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

    Example: the neurons between two linear maps.

        >>> import torch, ngn
        >>> up, down = torch.nn.Linear(3, 8), torch.nn.Linear(8, 2)
        >>> axis = ngn.OrderedAxis(ngn.CountGate(4, t0=1.0), [*ngn.outputs(up, 2), *ngn.inputs(down, 2)])
        >>> learner = ngn.CapacityLearner(torch.nn.Sequential(up, torch.nn.Tanh(), axis, down))
        >>> learner.deploy(example=torch.randn(5, 3))[0]
        Linear(in_features=3, out_features=4, bias=True)
    """

    capacity: Capacity
    """None once truncated."""
    scale: Tensor | None
    ranks: Tensor | None = None
    """The component at each place, int64 [places], on the CPU. Not a buffer: averages of models would average it."""
    order: Tensor | None = None
    """``ranks`` before any cut. States have it, in float64 like all of an axis, so that averages by name work."""
    chosen = False
    """Whether the user gave the order."""
    per = 1
    """Places of one component; ``width`` of a cut counts the entries of one place."""
    name, unit = "", "components"
    _ranks: Tensor | None = None
    """A copy of ``ranks`` on the device of the last call."""
    hooked = False
    """Whether hooks call the axis (truncation then removes both) and not the forward pass of a module."""
    called = False
    """Whether a forward pass has ever used the axis."""
    calibrating = False
    """Whether the next forward pass fixes the rms of normalised components."""
    rms: Tensor | None = None
    """The fixed rms of normalised components, [*R, K]."""
    cuttable = True
    """Whether training can go on without components whose coefficient is 0."""
    costs: Mapping[str, Any] = {}
    """By kind, the cost of the model as a function of all sizes; empty if no trace has found them."""
    held: dict[Mode, Tensor] | None = None
    """Coefficients by mode, while sizes do not move; None computes them in every pass."""
    whole: Any = None  # the model before its first cut, for reports

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
            self._K = capacity.K
            self.order = torch.arange(capacity.K, device="cpu")
        self.capacity = capacity  # type: ignore[assignment]
        self._cuts: tuple[Cut, ...] | None = tuple(cuts)
        self.counts, self.dim, self.name, self.unit = tuple(counts), dim, name, unit
        self.mode: Mode = "soft"
        self.register_buffer("scale", None)
        if by_importance is not None and capacity is not None:
            self.sort(by_importance)
            self.chosen = True

    @property
    def K(self) -> int:
        """Number of components that exist."""
        return self._K if self.capacity is None else self.capacity.K

    @property
    def places(self) -> int:
        """Number of places along the axis: K, or that of the units that have an order of their own."""
        return self.K * self.per

    def sort(self, by_importance: Sequence[int]) -> None:
        """Give the components new places, before any training; ``by_importance`` as for the class.

        Raises:
            ValueError: if it is not a permutation of 0 ... n K - 1, or a component's entries are no n equal parts.
        """
        order = [*by_importance]
        per, rest = divmod(len(order), max(1, self.K))
        if rest or sorted(order) != [*range(len(order))] or not order:
            raise ValueError(
                f"by_importance must be a permutation of 0 to K - 1, or of the units of K equal components, not {order}"
            )
        if any(cut.width * self.per % per or (cut.start < 0 and per > 1) for cut in self.cuts):
            raise ValueError(f"{self.name}: by_importance orders {len(order)} units, which its tensors do not have")
        self._cuts = tuple(replace(cut, width=cut.width * self.per // per) for cut in self.cuts)
        self.per, self.ranks = per, torch.tensor(order, device="cpu").argsort() // per
        self._ranks = self.order = self.ranks

    def take_order(self, order: Tensor) -> None:
        """Take over the ``order`` of a state, for the components that are not cut yet.

        Raises:
            ValueError: if ``order`` does not give every component the same number of places.
        """
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

    @property
    def origin(self) -> tuple[str, str | int] | None:
        """The seeds and the name that the components were drawn from; None if their values were given."""
        return None

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """All tensors that have the axis; empty after truncation."""
        return self._cuts or ()

    def extra_repr(self) -> str:
        return "" if self.capacity is None else f"K={self.K}"

    def in_place(self, values: Tensor) -> Tensor:
        """Reorder values, [*R, K], from the order of components to the places along the axis, [*R, places]."""
        ranks = self._ranks_on(values.device)
        return values if ranks is None else values[..., ranks]

    def _ranks_on(self, device: torch.device) -> Tensor | None:
        if self.ranks is not None and (self._ranks is None or self._ranks.device != device):
            self._ranks = self.ranks.to(device)
        return None if self.ranks is None else self._ranks

    def coefficients(self) -> Tensor | None:
        """c_k = w_k g_k in the current mode, [places]; None if all are 1."""
        if self.capacity is None:
            return self.scale
        if not self.called:  # setting an attribute in every pass would recompile a compiled graph
            self.called = True
        if self.capacity.all_open:
            return None
        c = self.of_capacity()
        return self.in_place(c if c.shape[-1] == self.K else F.pad(c, (0, self.K - c.shape[-1])))

    def of_capacity(self) -> Tensor:
        """The capacity's coefficients in the current mode, [*R, k <= K] in the order of components."""
        if self.held is None:
            return self.capacity.coefficients(self.mode)
        if self.mode not in self.held:
            self.held[self.mode] = self.capacity.coefficients(self.mode)
        return self.held[self.mode]

    def forward(self, h: Tensor) -> Tensor:
        """h [..., K width, ...] → h c_k."""
        return self.scaled(h, self.dim)

    def scaled(self, h: Tensor, dim: int) -> Tensor:
        """``h`` times the coefficients along dimension ``dim``.

        Raises:
            ValueError: if ``h`` does not have the components there.
        """
        capacity = self.capacity
        if capacity is not None and capacity.batched(self.mode) and not capacity.all_open:
            self.called = True
            self._width(h, dim, self.places)
            return capacity.scaled(h, dim, self._ranks_on(h.device))
        factor = self.factor(h, dim)
        return h if factor is None else h * factor

    def factor(self, h: Tensor, dim: int) -> Tensor | None:
        """The coefficients, like ``h``, in the shape that multiplies it along ``dim``; None for ones."""
        c = self.coefficients()
        if c is None:
            return None
        after = h.dim() - 1 - dim % h.dim()
        return c.to(h).repeat_interleave(self._width(h, dim, len(c))).view(-1, *[1] * after)

    def _width(self, h: Tensor, dim: int, places: int) -> int:
        if h.shape[dim] % max(1, places):
            shape = f"dimension {dim} of the activation {list(h.shape)}"
            raise ValueError(f"{self.name}: {shape} must be a multiple of the axis's {places} components")
        return int(h.shape[dim] // max(1, places))

    def component_parameters(self) -> Iterator[Tensor]:
        """Yield the parameters of the components, each as [*R, K, ...]; one that several modules hold once."""
        held: set[tuple[int, int, int]] = set()
        for cut in self.cuts:
            value = getattr(cut.module, cut.name)
            place = id(value), cut.dim, cut.start
            if isinstance(value, nn.Parameter) and place not in held:
                held.add(place)
                span = value.narrow(cut.dim, cut.start, self.places * cut.width)
                span = span.movedim(cut.dim, 0).unflatten(0, (self.places, cut.width))
                span = span if self.ranks is None else span[self.ranks.argsort()]
                yield span.unflatten(0, (self.K, self.per)).flatten(1, 2)

    def before_step(self, step: int | None) -> None:
        """Prepare the forward passes of a step; None: of an evaluation."""
        self.capacity.before_step(step)

    def grow(self, K: int) -> None:
        """Grow to K components.

        Raises:
            ValueError: always; only banks can grow.
        """
        raise ValueError("the tensors of this axis cannot grow: build the model with more components")

    def retained(self) -> tuple[Tensor, Tensor]:
        """Which components truncation keeps, bool [*R, K], and their coefficients, float64 [*R, k <= K]."""
        return self.capacity.kept(), self.capacity.coefficients("hard").detach()

    def truncated(self, kept: Tensor, scale: Tensor | None) -> None:
        """Update the deployed copy after its tensors were cut to the places ``kept``, bool [places]."""
        self._count(kept)
        self._cuts, self.counts, self.scale, self.ranks = (), (), scale, None
        self._ranks, self.per = None, 1
        self._modules.pop(GONE, None)

    def shrunk(self, kept: Tensor) -> None:
        """Update the axis after its tensors were cut in place to the places ``kept``, bool [places]."""
        self._count(kept)
        self._K //= self.per
        self.capacity.shrink(self._K)
        self.ranks = self._ranks = None if self.ranks is None else self.ranks[kept]

    def moved(self) -> None:
        """Renew notes of shapes: tensors of the model were cut in place, those of this axis or of others."""

    def _count(self, kept: Tensor) -> None:
        """Update what counts the components."""
        before, self._K = len(kept), int(kept.sum())
        for module, name in self.counts:
            value = getattr(module, name)
            if isinstance(value, int):
                setattr(module, name, value // before * self._K)
            else:
                setattr(module, name, [part for part, stays in zip(value, kept.tolist(), strict=True) if stays])


class Stacked(nn.Module):
    """A module whose parameters have a leading replica axis; deployment selects one replica.

    Attributes:
        replicas: length of the replica axis; None for one model, which has no such axis.

    >>> import torch, ngn
    >>> class Scale(ngn.Stacked):  # a x
    ...     def __init__(self, replicas):
    ...         super().__init__()
    ...         self.replicas, self.a = replicas, torch.nn.Parameter(torch.ones(replicas, 3))
    ...     def forward(self, x): return self.a * x
    >>> Scale(replicas=2)(torch.ones(3)).shape
    torch.Size([2, 3])
    """

    replicas: int | None
