"""Compute a smaller member of a model in its place: for one forward pass, its tensors are slices of the full ones.

A pass of the model puts slices of the cut tensors, and the numbers that the member's modules have, in the places of the
full ones, and takes them back at its end. So gradients flow to the full parameters, with zeros for what is closed, and
a step of a small member costs a small step. What a member's modules look like, one cut copy of the model says.

Where slices cannot be used, exact masks stay in force (:class:`~ngn.methods.fixed.Opened`): in compiled models, for
lists of layers, for tensors that are divided among processes, computed or quantised, and where parts are computed again
in the backward pass, which happens after the full tensors are back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from ngn.axis import OrderedAxis
from ngn.checks import places_in
from ngn.components.base import OrderedSum
from ngn.cut import cut_copy, plans_of
from ngn.cut.modules import WHOLE, numbers_of
from ngn.cuts import TensorCuts, along, is_stack, kept_entries, owned
from ngn.front.path import RUNNING, Slots, Statistics
from ngn.learner.shrinking import choices_of
from ngn.methods.fixed import Opened

Places = list[tuple[Slots, str]]
"""The tables and names that hold a tensor."""
Span = tuple[int, int, int | Tensor]
"""A dimension, and what stays of it: the first entry, and the number of entries, or all their places."""
Opening = tuple[list[tuple[Places, torch.Size, list[Span]]], list[tuple[Slots, str, Any]], list[Opened]]
"""How a member is opened: the places of each tensor, its full shape and what stays of it; the place and the value of
each number of a module; the sizes whose closed components are then gone."""
saving_hooks: Callable[[bool], Any] = getattr(
    torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore_tracing: None
)
"""What packs the tensors that the backward pass will need: torch's checkpointing does, and computes them again."""


class Slices:
    """Open a member of ``model`` during its forward passes, by hooks of the model.

    The capacities of all its ``axes`` are :class:`~ngn.methods.fixed.Opened`. The ``statistics`` are those of its
    members.
    """

    of_training = True

    def __init__(self, model: nn.Module, axes: Sequence[OrderedAxis], statistics: Statistics) -> None:
        self.model, self.axes, self.statistics = model, [*axes], statistics
        self.counts: tuple[int, ...] = tuple(axis.K for axis in axes)
        """The components of each axis that are open, [axes]."""
        self.member: int | None = None
        """Whose running statistics are used; None: the model's own."""
        self.forced = False
        self._plans: dict[Any, tuple[Opening, list[Tensor | None]]] = {}
        self._taken: list[tuple[Slots, str, Any]] = []
        """What to put back at the end of the pass."""
        self._copies: list[tuple[Tensor, int, Tensor, Tensor]] = []
        """Copies of buffers, which the pass may write into: (buffer, dimension, places, copy)."""
        self._depth, self._thread = 0, 0
        self._watched = self._again = False
        """Whether a pass of this training was watched, and whether parts are computed again, which needs masks."""
        self._narrow = any(axis.normalised for axis in axes)
        self._packs: Any = None
        self._watching: Any = None
        model.register_forward_pre_hook(self.begin, prepend=True)
        model.register_forward_hook(self.end, always_call=True)
        model.register_state_dict_pre_hook(self.before_state)

    def __getstate__(self) -> dict[str, Any]:
        """A copy plans anew, with the modules of its own model."""
        return self.__dict__ | {"_plans": {}, "_taken": [], "_copies": [], "_depth": 0, "_watching": None}

    def choose(self, counts: Sequence[int], member: int | None, forced: bool = False) -> None:
        """Open ``counts`` components of each axis in the next passes in train mode; if ``forced``, in all passes."""
        self.close()
        self.counts, self.member, self.forced = tuple(counts), member, forced
        for axis, count in zip(self.axes, counts, strict=True):
            axis.capacity.open(count, forced)  # type: ignore[operator]

    @contextmanager
    def opened(self, counts: Sequence[int], member: int | None = None) -> Iterator[None]:
        """:meth:`choose` for all passes within the context."""
        before = self.counts, self.member, self.forced
        self.choose(counts, member, forced=True)
        try:
            yield
        finally:
            self.choose(*before)

    def before_state(self, module: nn.Module, prefix: str, keep_vars: bool) -> None:
        """Put back what an interrupted pass has left, before the state is read."""
        if module is self.model:
            self.close()

    def begin(self, module: nn.Module, args: Any) -> None:
        """Begin a pass."""
        if torch.compiler.is_compiling() or module is not self.model:  # a replica has tensors of its own
            return
        if self._depth and self._thread != threading.get_ident():
            raise RuntimeError("two threads call this model at once, but a member is open in one of them: use one")
        self._depth, self._thread = self._depth + 1, threading.get_ident()
        if self._depth > 1:  # the model calls itself
            return
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if not (self.model.training or self.forced):
            return
        self._put_statistics()
        if not self._watched:  # a resumed training goes on as it was
            self._watched, self._again = (int(self.statistics.passes) > n for n in range(2))
        if first := not self._watched and torch.is_grad_enabled():  # of a training
            self._packs, self._watching = saving_hooks(False), register_module_forward_pre_hook(self._watch)
        if not self._again and (self._narrow or not first):
            tensors, numbers, sizes = self._plan()
            held = [(places[0][0][places[0][1]], shape) for places, shape, _ in tensors]
            if any(value.shape != shape or hasattr(value, "device_mesh") for value, shape in held):
                return  # sharding has parts of tensors outside of its own passes
            for places, _, spans in tensors:
                self._slice(places, spans)
            for table, name, number in numbers:
                self._put(table, name, number)
            for size in sizes:
                size.sliced = True

    def _plan(self) -> Opening:
        ranks = [axis.ranks for axis in self.axes]
        key = (self.counts, *map(id, ranks))
        if key not in self._plans:
            with torch.inference_mode(False), torch.no_grad():  # places may be used again with gradients
                plan = plan_of(self.model, dict(zip(self.axes, self.counts, strict=True)))
            self._plans[key] = plan, ranks  # held, so that ids stay theirs
        return self._plans[key][0]

    def _slice(self, places: Places, spans: Sequence[Span]) -> None:
        table, name = places[0]
        value = part = table[name]
        for dim, first, entries in spans:
            if isinstance(entries, Tensor):
                places_on = entries.to(part.device)
                part = part.index_select(dim, places_on)
                if name in RUNNING:  # the pass writes into a copy
                    self._copies.append((value, dim, places_on, part))
            else:
                part = part.narrow(dim, first, entries)
        for table, name in places:
            self._put(table, name, part)

    def _put_statistics(self) -> None:
        for place in () if self.member is None else self.statistics.of(self.model, self.member):
            self._put(*place)

    def _put(self, table: Slots, name: str, value: Any) -> None:
        self._taken.append((table, name, table[name]))
        table[name] = value

    def _watch(self, module: nn.Module, args: Any) -> None:
        """Note whether a part of the model will be computed again in the backward pass; a hook of all modules."""
        if saving_hooks(False) != self._packs:
            self._again = True

    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        """End a pass, also after an error."""
        if torch.compiler.is_compiling() or module is not self.model or not self._depth:
            return
        self._depth -= 1
        if not self._depth:
            if self._watching is not None and output is not None:
                self._watched = True
                self.statistics.passes.fill_(1 + self._again)
            self.close()

    def close(self) -> None:
        """Put back all that a pass has replaced."""
        if self._watching is not None:
            self._watching.remove()
        for value, dim, places, part in self._copies:
            value.index_copy_(dim, places, part)
        for table, name, value in reversed(self._taken):
            table[name] = value
        for axis in self.axes:
            axis.capacity.sliced = False  # type: ignore[assignment]
        self._taken, self._copies, self._depth, self._watching = [], [], 0, None

    @contextmanager
    def with_statistics(self) -> Iterator[None]:
        """Let the model hold the running statistics of the member within the context, until a pass ends."""
        self.close()
        self._put_statistics()
        try:
            yield
        finally:
            self.close()


def plan_of(model: nn.Module, counts: Mapping[OrderedAxis, int]) -> Opening:
    """How to open ``counts`` components of the axes of ``model``, as far as slices can."""
    choices = {
        axis: choice
        for axis, choice in choices_of(counts).items()
        if not isinstance(axis, OrderedSum) and not any(is_stack(owned(cut)) for cut in axis.cuts)
    }
    masked = {axis.capacity for axis, count in counts.items() if count < axis.K and axis not in choices}
    choices = {axis: choice for axis, choice in choices.items() if axis.capacity not in masked}
    if not choices:
        return [], [], []
    tensors = []
    for cut, parts in plans_of(choices).values():
        value = owned(cut)
        places = [(table, name) for _, table, name, held in places_in(model) if held is value]
        tensors.append((places, value.shape, _spans(value, parts)))
    small = dict(cut_copy(model, choices, share="all").named_modules())
    numbers: list[tuple[Slots, str, Any]] = []
    for path, part in model.named_modules():
        for name in vars(small[path]).get(WHOLE, {}) if path in small else ():
            if name not in part._parameters and name not in part._buffers:
                of_config = name.startswith("config.")
                table = vars(part.config) if of_config else vars(part)
                numbers.append((table, name.removeprefix("config."), numbers_of(small[path])[name]))
    return tensors, numbers, [*{axis.capacity for axis in choices}]  # type: ignore[list-item]


def _spans(value: Tensor, parts: TensorCuts) -> list[Span]:
    """What ``parts`` leave of ``value``, by dimension."""
    spans: list[Span] = []
    for dim, size in enumerate(value.shape):
        if here := along(dim, value, parts):
            places = kept_entries(size, here).nonzero().flatten()
            first, entries = int(places[0]), len(places)
            if entries < size:
                spans.append((dim, first, entries if int(places[-1]) - first < entries else places))
    return spans
