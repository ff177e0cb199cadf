"""The cost of a model at given counts, measured on truncated copies: parameters, multiply-adds, milliseconds.

    C(n) = C(K) + sum_g s_g [T_g(n_g) - C(K)] + sum_{g,h} s_g B_gh (1 - u_g)(1 - u_h)
    u_g  = (n_g - low_g) / (K_g - low_g)

T_g is measured with all other axes at full size, at counts 0, 1, 2, 4, 8, ..., K, and is linear in between. B_gh
corrects for two axes that share a tensor, such as the channels on both sides of a map. Together they save less than one
by one.

The factor s_g is 1, except for an axis within layer k of a stack whose depth n_d is learned. There it is the part of
the layer that stays, n_d - k in [0, 1], since an axis in a removed layer saves nothing.

Where all sizes are of terms beside a frozen base, as with LoRA, parameters are those that are trained.

For parameters and multiply-adds this is exact if at most two axes share a tensor or lie within one layer. Times of
parts do not add up to the time of the whole, and their noise does. So times are measured on the way from the smallest
to the largest model, too, with all sizes alike. C is then the time on this way where the formula is as large.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from math import inf
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ngn.axis import OrderedAxis
from ngn.checks import FAULTS, arguments, called, is_frozen, own_randomness
from ngn.comparison import varied
from ngn.components.low_rank import Bottleneck
from ngn.cut import cut_to
from ngn.cut.copying import duplicate
from ngn.cuts import is_stack, owned
from ngn.measuring import AGREED, multiply_adds, shortest
from ngn.tracing.found import Polynomial

BLOCK = 16
"""Models that are timed in turns, each time together with the largest one."""
ON_THE_WAY = 9
"""Equal steps from no component to all, with all sizes alike, at whose ends times are measured, too."""
NOISY = 0.1
"""Relative difference from which times are called uncertain."""


class Cost:
    """The cost of ``model`` at any counts of its G ordered ``axes``. A stack has one, as its replicas are alike.

    ``kind`` is "parameters", "macs" or "milliseconds"; the last two need an ``example``, an input of one model.
    """

    spread = 0.0
    """Relative difference between two measurements of one time, at least AGREED; 0 for what is counted."""
    exact: Polynomial | None = None
    """The cost as a function of all counts; None if the axes were not found by a trace."""
    way: tuple[Tensor, Tensor] | None = None
    """The formula and the times measured on the way from the smallest to the largest model, ascending, ms."""

    def __init__(self, model: nn.Module, axes: Sequence[OrderedAxis], kind: str, example: Any = None) -> None:
        self.model, self.axes, self.kind, self.example = model, axes, kind, example
        self._known: dict[tuple[int, ...], float] = {}
        self.base = frozen_base(model, axes) if kind == "parameters" else 0
        self._largest = tuple(axis.K for axis in axes)
        self._smallest = tuple(min(axis.K, max(axis.capacity.smallest_count, axis.capacity.least)) for axis in axes)
        numbers = {size: n for n, size in enumerate(dict.fromkeys(axis.capacity for axis in axes))}
        self.size_of = torch.tensor([numbers[axis.capacity] for axis in axes], dtype=torch.int64)
        """The size of each axis: axes can share one. Counts of the public methods are those of sizes."""
        first = [self.size_of.tolist().index(n) for n in range(len(numbers))]
        self.largest, self.smallest = (tuple(each[g] for g in first) for each in (self._largest, self._smallest))
        self.full = full = self._measured(self._largest)
        if self._traced():
            return
        ends = [*zip(self._smallest, self._largest, strict=True)]
        places = [
            sorted({low, K, *(n for n in [0, *(2**i for i in range(K.bit_length()))] if low <= n <= K)})
            for low, K in ends
        ]
        alone = [[(*self._largest[:g], n, *self._largest[g + 1 :]) for n in counts] for g, counts in enumerate(places)]
        held = [[*map(owned, axis.cuts)] for axis in axes]
        tensors = [
            {id(v) for p in parts for v in (p.parameters() if isinstance(p, nn.Module) else [p])} for parts in held
        ]
        self.stack, self.layer = _enclosing_layers(axes)
        nested = {(g, d) for g, d in enumerate(self.stack.tolist()) if self.layer[g] >= 0}
        pairs = [
            (g, h)
            for g, h in combinations(range(len(axes)), 2)
            if tensors[g] & tensors[h] and not {(g, h), (h, g)} & nested
        ]
        corners = [tuple(low if i in pair else K for i, (low, K) in enumerate(ends)) for pair in pairs]
        self._measure([self._smallest, *(counts for each in alone for counts in each), *corners])
        tables = [
            (counts, [self._measured(n) - full for n in each]) if len(counts) > 1 else ([K, K + 1], [0.0, 0.0])
            for (_, K), counts, each in zip(ends, places, alone, strict=True)
        ]
        self.steps = torch.tensor([len(counts) - 1 for counts, _ in tables])
        padded = ([torch.tensor(values, dtype=torch.float64) for values in held] for held in zip(*tables, strict=True))
        self.counts, self.saved = (pad_sequence(values, batch_first=True, padding_value=inf) for values in padded)
        together = [
            self._measured(corner) - full - tables[g][1][0] - tables[h][1][0]
            for corner, (g, h) in zip(corners, pairs, strict=True)
        ]
        self.pairs = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
        self.of_pair = torch.tensor([g if self.layer[g] >= 0 else h for g, h in pairs], dtype=torch.int64)
        self.together = torch.tensor(together, dtype=torch.float64)
        if kind == "milliseconds":
            sizes = [*zip(self.smallest, self.largest, strict=True)]
            alike = [tuple(max(low, round(K * n / ON_THE_WAY)) for low, K in sizes) for n in range(ON_THE_WAY + 1)]
            each = [tuple(counts[size] for size in self.size_of.tolist()) for counts in alike]
            self._measure(each)
            way = sorted((self.estimate(n), self._measured(whole)) for n, whole in zip(alike, each, strict=True))
            steps = [0, *(i for i in range(1, len(way)) if way[i][0] > way[i - 1][0])]
            formula, took = torch.tensor([way[i] for i in steps], dtype=torch.float64).T.contiguous()
            self.way = (formula, took.cummax(0).values) if len(steps) > 1 else None

    def _traced(self) -> bool:
        """Take the cost from the trace that found all axes, if it agrees with both ends measured."""
        costs = [getattr(axis, "costs", {}).get(self.kind) for axis in self.axes]
        traced = costs[0]
        if traced is None or any(cost is not traced for cost in costs):
            return False
        exact = traced.of({axis.name: axis.K for axis in self.axes})
        ends = ((counts, torch.tensor(counts, dtype=torch.float64)) for counts in (self._largest, self._smallest))
        if any(float(exact(n)[0]) - self.base != self._measured(counts) for counts, n in ends):
            return False
        self.exact = exact
        return True

    def __call__(self, count: Tensor) -> tuple[Tensor, Tensor]:
        """C, float64 [...], and dC/dn, [..., G], at continuous counts [..., G]; extrapolated linearly."""
        value, slope = self._formula(count.detach().to("cpu", torch.float64)[..., self.size_of])
        slopes = torch.zeros(count.shape, dtype=torch.float64).index_add(-1, self.size_of, slope)
        return value.to(count.device), slopes.to(count.device)

    def _formula(self, n: Tensor) -> tuple[Tensor, Tensor]:
        """C and its slopes at the counts of all axes."""
        if self.exact is not None:
            value, slope = self.exact(n)
            return value - self.base, slope
        at = torch.minimum((n.unsqueeze(-1) >= self.counts).sum(-1).clamp(min=1), self.steps).unsqueeze(-1)
        counts, saved = (table.expand(*n.shape, -1) for table in (self.counts, self.saved))
        last, value = counts.gather(-1, at).squeeze(-1), saved.gather(-1, at).squeeze(-1)
        slope = (value - saved.gather(-1, at - 1).squeeze(-1)) / (last - counts.gather(-1, at - 1).squeeze(-1))
        saved = value + slope * (n - last)
        depth = n[..., self.stack]
        stays, parting = (depth - self.layer).clamp(0.0, 1.0), (depth > self.layer) & (depth <= self.layer + 1)
        total = self.full + (stays * saved).sum(-1)
        slope = (stays * slope).index_add(-1, self.stack, parting * saved)
        if len(self.pairs):
            K, low = (torch.tensor(ends, dtype=torch.float64) for ends in (self._largest, self._smallest))
            span, (g, h) = (K - low).clamp(min=1.0), self.pairs.T
            left, within = (K - n) / span, stays[..., self.of_pair]
            both = self.together * left[..., g] * left[..., h]
            total = total + (within * both).sum(-1)
            for one, other in ((g, h), (h, g)):
                slope = slope.index_add(-1, one, -within * self.together * left[..., other] / span[one])
            slope = slope.index_add(-1, self.stack[self.of_pair], parting[..., self.of_pair] * both)
        if self.way is not None:
            formula, took = self.way
            at = torch.bucketize(total, formula).clamp(1, len(took) - 1)
            rise = (took[at] - took[at - 1]) / (formula[at] - formula[at - 1])
            total, slope = took[at] + rise * (total - formula[at]), rise.unsqueeze(-1) * slope
        return total, slope

    def estimate(self, counts: tuple[int, ...]) -> float:
        """C at integer counts, by the formula."""
        return float(self(torch.tensor(counts, dtype=torch.float64))[0])

    def measured(self, counts: tuple[int, ...]) -> float:
        """The cost of a copy truncated to ``counts``; each is measured once. Of a sharded model, the formula's."""
        whole = tuple(counts[size] for size in self.size_of.tolist())
        if whole not in self._known and (self.exact or any(hasattr(p, "device_mesh") for p in self.model.parameters())):
            return self.estimate(counts)
        return self._measured(whole)

    def _measured(self, counts: tuple[int, ...]) -> float:
        """:meth:`measured` at the counts of all axes."""
        self._measure([counts])
        if self.kind != "milliseconds":
            return self._known[counts]
        # A smaller model cannot be slower, and other load only adds time: what a larger one took is enough.
        larger = (c for c in self._known if all(n >= least for n, least in zip(c, counts, strict=True)))
        return min(self._known[c] for c in larger)

    def _measure(self, wanted: Sequence[tuple[int, ...]]) -> None:
        """Note the costs of copies truncated to the counts ``wanted``."""
        new = [counts for counts in dict.fromkeys(wanted) if counts not in self._known]
        if self.kind != "milliseconds":
            self._known |= {counts: self.of(cut_to(self.model, self.axes, counts)) for counts in new}
            return
        args, named = arguments(self.example)
        whole, device = self.axes[0].whole, next(self.model.parameters()).device
        uncut = self._largest == tuple(axis.K for axis in self.axes)
        for at in range(0, len(new), BLOCK):
            block = new[at : at + BLOCK]
            # A model that was cut in place has a copy of its whole. The machine may be busier by now: times are ratios.
            first = cut_to(self.model, self.axes, self._largest) if uncut else whole.on(device)
            models = [first, *(cut_to(self.model, self.axes, counts) for counts in block)]
            times, spread = shortest([partial(small, *args, **named) for small in models], device)
            full = self._known.get(self._largest, times[0])
            self.spread = max(self.spread, spread, AGREED)
            self._known |= {counts: full * took / times[0] for counts, took in zip(block, times[1:], strict=True)}

    def noise(self) -> str:
        """A sentence about uncertain times; empty if they are certain enough."""
        if self.spread <= NOISY:
            return ""
        return (
            f"Times on this machine differ by up to {self.spread:.0%} now: stop other programs and try again, or give "
            "macs= instead of milliseconds=" + ", or call torch.set_num_threads(1)" * (torch.get_num_threads() > 1)
        )

    def of(self, small: nn.Module) -> float:
        """The parameters or the multiply-adds of a truncated model."""
        if self.kind == "parameters":
            return float(sum(p.numel() for p in small.parameters()) - self.base)
        args, named = arguments(self.example)
        return float(multiply_adds(lambda: small(*args, **named)))


def frozen_base(model: nn.Module, axes: Sequence[OrderedAxis]) -> int:
    """The frozen parameters of ``model`` if all ``axes`` are of terms beside them, as with LoRA; else 0."""
    names = {id(p): name for name, p in model.named_parameters()}
    for cut in (cut for axis in axes for cut in axis.cuts):
        value: Any = owned(cut)
        if is_frozen(value) or not (isinstance(cut.module, Bottleneck) or ".lora_" in names.get(id(value), "")):
            return 0
    return sum(p.numel() for p in model.parameters() if not p.requires_grad)


def refuse_changing(model: nn.Module, axes: Sequence[OrderedAxis], example: Any) -> None:
    """Refuse a model whose multiply-adds depend on values, such as those of a router: they have no limit to keep.

    It is a ValueError if two inputs of one shape, or other weights, give two numbers. The model is cut to unequal
    sizes: experts of one size cost the same, whichever a sample goes to.
    """
    if any(p.is_meta or hasattr(p, "device_mesh") for p in model.parameters()):
        return
    parts = [max(1, axis.capacity.least, axis.K * (number % 3 + 1) // 4) for number, axis in enumerate(axes)]
    small = cut_to(model, axes, parts)
    small = duplicate(small, {})[0]
    first: int | None = None
    for strength in (0.0, 1.0, 10.0):
        given = varied(example, strength) if strength else example
        try:
            with own_randomness():
                cost = multiply_adds(lambda given=given: called(small, given))  # type: ignore[misc]
        except FAULTS:  # it is not for random numbers, which says nothing
            continue
        first = cost if first is None else first
        if cost != first:
            raise ValueError(
                "the multiply-adds of this model depend on values, as where experts are chosen: "
                f"{first:,} on the example, {cost:,} on another input of its shape. Limit parameters or milliseconds"
            )
        with torch.no_grad():
            for p in small.parameters():
                flat = p.flatten()
                p.copy_((flat.flip(0) if strength else flat.roll(1)).view_as(p))


def _enclosing_layers(axes: Sequence[OrderedAxis]) -> tuple[Tensor, Tensor]:
    """For each axis within a layer of learned depth, the depth's axis and the layer's component; else 0 and -inf."""
    stack, layer = [0] * len(axes), [-inf] * len(axes)
    for d, outer in enumerate(axes):
        ranks = outer.in_place(torch.arange(outer.K)).tolist()
        for layers in (part for cut in outer.cuts if is_stack(part := owned(cut))):
            for rank, part in zip(ranks, layers, strict=True):
                inner = {id(module) for module in part.modules()}
                for g, axis in enumerate(axes):
                    if axis is not outer and any(id(cut.module) in inner for cut in axis.cuts):
                        stack[g], layer[g] = d, rank
    return torch.tensor(stack), torch.tensor(layer, dtype=torch.float64)
