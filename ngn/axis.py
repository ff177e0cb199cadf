"""An ordered axis: a size that is learned along a dimension of tensors that somebody owns.

Heads, slices of a feed-forward layer, channels, the terms of a low rank, blocks of a bank: K components lie along one
dimension of some tensors, ``width`` entries each. Learning how many are needed is multiplying the activation on that
axis by w_k g_k; truncation (``ngn/truncation.py``) cuts every tensor that has the axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ngn.methods.base import Capacity, Mode

Counts = Sequence[tuple[Any, str]]


@dataclass(frozen=True)
class Cut:
    """A tensor that has the axis: component k has entries start + k width ... start + (k + 1) width - 1 of ``dim``.

    Attributes:
        module, name: the tensor is ``module.name``: a parameter, a buffer, or a ``ModuleList`` of K modules.
        dim: which dimension; of a stacked module, that of one replica's tensor.
        width: entries per component.
        start: where component 0 begins. Components that would begin before the tensor does have no entry in it, such as
            an identity: -1 says that component 0 has none.
        fold: truncation multiplies these entries by the components' coefficients, for good.
        merge: truncation sums them over the axis, which stays with length 1: the output bias of a sum of blocks.

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
    """Whether a weight is [in, out, ...]: of transposed convolutions and of ``Conv1D``, transformers' map in GPT-2."""
    return bool(getattr(module, "transposed", False)) or is_conv1d(module)


def is_conv1d(module: nn.Module) -> bool:
    """Whether a module is transformers' ``Conv1D``, a linear map; told by its name, as transformers may be missing."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def outputs(module: nn.Module, width: int = 1, start: int = 0, fold: bool = False) -> list[Cut]:
    """The cuts of a linear map, a convolution, a normalisation or an embedding whose output entries have the axis.

    ``fold`` multiplies what the module gives by the coefficients; wrong for a module that something nonlinear follows.

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
    """The cut of a linear map or a convolution whose input entries have the axis; the coefficients are folded into it.

    Right where nothing but this map lies behind the axis; its bias is left as it is.

    >>> import torch, ngn
    >>> [(cut.name, cut.dim, cut.fold) for cut in ngn.inputs(torch.nn.Linear(8, 3))]
    [('weight', 1, True)]
    """
    return [Cut(module, "weight", 0 if inputs_first(module) else 1, width, start, fold)]


class OrderedAxis(nn.Module):
    """A capacity over the K components along one axis of tensors that other modules own.

    The model calls it on the activation that has the axis: h [..., K width, ...] → h c_k. Deployed, its capacity is
    None, and it multiplies by what could not be folded, mostly by nothing.

    Args:
        capacity: how many of its K components are in use. None for a model of a given size.
        cuts: all tensors that have the axis.
        counts: (module, attribute) pairs that shrink with the count: integers that are multiples of K (``num_heads``),
            and lists of K entries, of which those of what is kept are left (``layer_types``).
        dim: the dimension of the activation.
        by_importance: places along the axis, that of the most important component first; None: component k is at k.
        name, unit: what reports call the axis and its components.

    Raises:
        TypeError: if ``capacity`` is neither a Capacity nor None.
        ValueError: if the capacity has a replica axis, allocates components or normalises them: that takes a bank; if
            ``by_importance`` is no permutation of 0 ... K - 1.

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
    """Which component lies at each place, int64 [K], on the CPU. No buffer, as averages of models average buffers."""
    name, unit = "", "components"
    _ranks: Tensor | None = None
    """The same, where they were last asked for."""
    hooked = False
    """Whether hooks call the axis, which truncation then removes with them; else a forward pass does."""
    called = False
    """Whether it ever was."""
    guessed: str | None = None
    """What a size took for granted, which only a trial on an example can tell."""
    calibrating = False
    """Whether the next forward pass fixes the rms of normalised components."""
    rms: Tensor | None = None
    """The fixed rms of normalised components, [*R, K]."""

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
                raise TypeError(f"OrderedAxis(capacity, cuts), not ({type(capacity).__name__}, ...)")
            if capacity.replicas is not None or capacity.rms_eps is not None or capacity.growing:
                raise ValueError("replicas, growth and normalised components need a bank: use OrderedSum")
            self._K = capacity.K
        self.capacity = capacity  # type: ignore[assignment]
        self._cuts: tuple[Cut, ...] | None = tuple(cuts)
        self.counts, self.dim, self.name, self.unit = tuple(counts), dim, name, unit
        self.mode: Mode = "soft"
        self.register_buffer("scale", None)
        order = by_importance
        if order is not None and sorted(order) != [*range(len(order) if capacity is None else self.K)]:
            raise ValueError(f"by_importance must be a permutation of 0 to K - 1, not {list(order)}")
        self.ranks = None if order is None or capacity is None else torch.tensor(order).argsort()
        self._ranks = self.ranks

    @property
    def K(self) -> int:
        """Components that exist."""
        return self._K

    @property
    def origin(self) -> tuple[str, str | int] | None:
        """Seeds and name from which the components were drawn; None where they were given."""
        return None

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """All tensors that have the axis; none once truncated."""
        return self._cuts or ()

    def extra_repr(self) -> str:
        return "" if self.capacity is None else f"K={self.K}"

    def in_place(self, values: Tensor) -> Tensor:
        """One value per component, [*R, K] → one per place along the axis."""
        if self.ranks is None:
            return values
        if self._ranks is None or self._ranks.device != values.device:
            self._ranks = self.ranks.to(values.device)
        return values[..., self._ranks]

    def coefficients(self) -> Tensor | None:
        """c_k = w_k g_k in the present mode, [K] in the order of places; None where each component counts as it is."""
        if self.capacity is None:
            return self.scale
        if not self.called:  # a compiled graph would be made anew for an attribute that is set in every pass
            self.called = True
        c = self.capacity.coefficients(self.mode)
        return self.in_place(F.pad(c, (0, self.K - c.shape[-1])))

    def forward(self, h: Tensor) -> Tensor:
        """h [..., K width, ...] → h c_k."""
        return self._scaled(h, self.dim)

    def _scaled(self, h: Tensor, dim: int) -> Tensor:
        c = self.coefficients()
        if c is None:
            return h
        if h.shape[dim] % max(1, len(c)):
            what = f"{h.shape[dim]} entries along dimension {dim} of {list(h.shape)}"
            raise ValueError(f"{self.name}: {what} are no multiple of its {len(c)} components")
        width = h.shape[dim] // max(1, len(c))
        after = h.dim() - 1 - dim % h.dim()
        return h * c.to(h.dtype).repeat_interleave(width).view(-1, *[1] * after)


    def component_parameters(self) -> Iterator[Tensor]:
        """The components' parameters, each as [*R, K, ...]."""
        for cut in self.cuts:
            value = getattr(cut.module, cut.name)
            if isinstance(value, nn.Parameter):
                span = value.narrow(cut.dim, cut.start, self.K * cut.width)
                span = span.movedim(cut.dim, 0).unflatten(0, (self.K, cut.width))
                yield span if self.ranks is None else span[self.ranks.argsort()]

    def activity_penalty(self) -> Tensor | None:
        """What the last forward pass adds to the task loss by what it computed: [*R], None for nothing."""
        return None

    def before_step(self, step: int | None) -> None:
        """Called before the forward passes of a step; with None before the trained model is evaluated."""
        self.capacity.before_step(step)

    def grow(self, K: int) -> None:
        """Go on with K components.

        Raises:
            ValueError: for tensors that somebody else owns.
        """
        raise ValueError("the tensors of this axis cannot grow: build the model with more components")

    def retained(self) -> tuple[Tensor, Tensor]:
        """Which components truncation leaves, bool [*R, K], and what each is multiplied by, float64 [*R, k <= K]."""
        return self.capacity.kept(), self.capacity.coefficients("hard").detach()

    def truncated(self, kept: Tensor, scale: Tensor | None) -> None:
        """Called on the deployed copy when its tensors have been cut: leave the places ``kept``, bool [K]."""
        before, self._K = self.K, int(kept.sum())
        for module, name in self.counts:
            value = getattr(module, name)
            if isinstance(value, int):
                setattr(module, name, value // before * self._K)
            else:
                setattr(module, name, [part for part, stays in zip(value, kept.tolist(), strict=True) if stays])
        self._cuts, self.counts, self.scale, self.ranks = (), (), scale, None
        self._ranks = None


class Stacked(nn.Module):
    """A module whose parameters have a leading replica axis, of which deployment takes one entry.

    Attributes:
        replicas: its length; None for one model, without the axis.

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
