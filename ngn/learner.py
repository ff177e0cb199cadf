"""The learner of a model with ordered axes: one capacity per axis."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import axes_of, having
from ngn.contract import Averages, Learner, Optimizers
from ngn.cut import axes_in, cut_to
from ngn.importance import Importance, Loss, sort
from ngn.methods.base import Mode
from ngn.methods.batch import penalty as of_gates
from ngn.methods.batch import sizes
from ngn.report import SizeReport, WholeModel, size_reports
from ngn.shrinking import InPlaceCut, kept_whole, load_cut_states, optimizers_in, shrink, uncuttable
from ngn.tracing.found import listed
from ngn.watching import LoopWatch


class CapacityLearner(Learner):
    """Learn the sizes of a model that contains :class:`~ngn.axis.OrderedAxis` modules, one capacity per axis.

    Attributes:
        axes, names: the axes, in the order of counts and sizes, and their names.

    Raises:
        ValueError: if the model has no axis, if axes differ in their replicas, or if two banks share seed and name.

    >>> import ngn, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> _ = ngn.attach_low_rank(model, ["0", "2"], lambda number: ngn.CountGate(8, t0=(2.0, 6.0)[number]), seed=0)
    >>> ngn.CapacityLearner(model).count()
    tensor([3, 7])
    """

    watch: LoopWatch
    found: Any = None
    """What :func:`~ngn.sizes.attach.learn_sizes` took of a trace, and what cannot be cut; None without a trace."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.axes = axes_of(model)
        if not self.axes:
            raise ValueError(
                "the model has no OrderedAxis with a capacity, so no size to learn: call "
                "ngn.learn_sizes(model, example=...), or add an axis"
            )
        paths = {id(module): path for path, module in model.named_modules()}
        self.names = [axis.name or paths[id(axis)] for axis in self.axes]
        replicas = {axis.capacity.replicas for axis in self.axes}
        if len(replicas) != 1:
            raise ValueError(f"all axes of a model need the same replicas=, not {sorted(map(str, replicas))}")
        self.replicas = replicas.pop()
        gates = [axis.capacity for axis in self.axes]
        origins = [axis.origin for axis in self.axes if axis.origin is not None]
        if twice := [n for n, axis in zip(self.names, self.axes, strict=True) if gates.count(axis.capacity) > 1]:
            raise ValueError(
                f"{listed(twice)} share one {type(gates[0]).__name__}, but every size needs its own: return a new one "
                "at each call of capacity="
            )
        if len({*origins}) < len(origins):
            raise ValueError(
                "two banks have the same seed and name, so the same initial values: give each bank a name of its own"
            )
        self.has_boundary = all(axis.capacity.has_boundary for axis in self.axes)
        self.watch = LoopWatch(self.axes, self.names)
        self._cut = [False] * len(self.axes)  # which sizes have been fixed and cut
        self._followers: list[Callable[[InPlaceCut], object]] = []
        self._said: set[str] = set()  # sizes of which a warning said that they stay masked
        load_cut_states(model)

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        with having(self.axes, mode=lambda axis: mode):
            yield

    @contextmanager
    def steady(self) -> Iterator[None]:
        with having(self.axes, held=lambda axis: {}):
            yield

    def set_progress(self, progress: float) -> None:
        self.watch.progressed(progress)
        for axis in self.axes:
            axis.capacity.set_progress(progress)
        self._cut = [cut and axis.capacity.committed for cut, axis in zip(self._cut, self.axes, strict=True)]

    def sort(
        self, by_importance: Importance, calibration: Iterable[Any] | None = None, loss: Loss | None = None
    ) -> None:
        """Sort the units of sizes whose order you have not given, before the training, as ``learn_sizes`` does."""
        sort(self.model, self.axes, by_importance, calibration, loss)

    def commit_at(self, progress: float) -> None:
        """Fix, from ``progress`` on, all sizes that have no ``commit`` of their own."""
        for axis in self.axes:
            if axis.capacity.commit is None:
                axis.capacity.commit_at(progress)

    def before_step(self, step: int | None) -> None:
        for axis in self.axes:
            axis.before_step(step)

    def make_room(self) -> bool:
        wanted = [(axis, K) for axis in self.axes if (K := axis.capacity.wanted()) != axis.K]
        for axis, K in wanted:
            axis.grow(K)
        return bool(wanted)

    def wanted_components(self) -> list[int] | None:
        """The number of components that each axis must still have, [G]; None if nothing is to be cut now.

        A fixed size needs its count (of a stack, the largest). Override it to cut earlier.
        """
        fixed = [axis.capacity.committed for axis in self.axes]
        if fixed == self._cut:
            return None
        counts = self.count().reshape(-1, len(self.axes)).amax(0).tolist()
        return [n if done else axis.K for axis, n, done in zip(self.axes, counts, fixed, strict=True)]

    def shrink(self, optimizer: Optimizers = None, averages: Averages = ()) -> bool:
        if (counts := self.wanted_components()) is None:
            return False
        optimizers, copies = optimizers_in(optimizer), self._copies(averages)
        self._warn_of_masks(masked := uncuttable(self.axes, optimizers) if optimizers else {})
        counts = [axis.K if axis in masked else n for axis, n in zip(self.axes, counts, strict=True)]
        followers: list[Any] = [*(partial(InPlaceCut.__call__, held=each) for each in copies), *self._followers]
        changed = shrink(self.model, self.axes, counts, optimizers, followers)
        self._cut = [axis.capacity.committed for axis in self.axes]
        return changed

    def check_cuts(self, optimizer: Optimizers, averages: Averages = ()) -> None:
        self._copies(averages)
        self._warn_of_masks(uncuttable(self.axes, optimizers_in(optimizer)) | kept_whole(self.axes))

    def on_cut(self, callback: Callable[[InPlaceCut], object]) -> None:
        """Call ``callback`` whenever training has cut parameters in place, after optimisers and averages.

        Its argument cuts what you keep beside the model: ``learner.on_cut(lambda cut: cut(ema))``, where ``ema`` is a
        dictionary of tensors by name, or a copy of the model (:class:`~ngn.shrinking.InPlaceCut`). Loading a state
        calls nothing, as an average comes with its own. Copies of the learner have no callbacks.
        """
        self._followers.append(callback)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_followers": []}

    def _copies(self, averages: Averages) -> list[Any]:
        """The averages as a list, if they are averages of this model."""
        copies = [averages] if isinstance(averages, (nn.Module, dict)) else [*averages]
        for each in copies:
            name = type(each).__name__
            if not isinstance(each, (nn.Module, dict)):
                raise TypeError(f"an average is a copy of the model, or a dictionary of tensors, not a {name}")
            if isinstance(each, nn.Module) and [a.K for a in axes_in(each)] != [a.K for a in axes_in(self.model)]:
                raise ValueError(
                    f"the average {name} does not have the sizes of the model: copy the learner or learner.model after "
                    "learn_sizes, and pass the average in every step"
                )
        return copies

    def _warn_of_masks(self, masked: Mapping[OrderedAxis, str]) -> None:
        """Warn of the sizes that stay masked, each once in a training."""
        named = {name: masked[axis] for axis, name in zip(self.axes, self.names, strict=True) if axis in masked}
        if new := [name for name in named if name not in self._said]:
            self._said.update(new)
            warnings.warn(
                f"{listed(new)} cannot be cut in training: {'; '.join(dict.fromkeys(named[name] for name in new))}. "
                "They stay masked until deploy. The deployed model is the same, but steps do not become cheaper. To "
                "silence this, leave the optimiser out of learner.step, or give the callback shrink=False",
                stacklevel=4,
            )

    @property
    def masked(self) -> list[str]:
        """The names of the fixed sizes whose closed components are masked and not cut."""
        counts = self.count().reshape(-1, len(self.axes)).amax(0).tolist()
        named = zip(self.names, self.axes, counts, strict=True)
        return [name for name, axis, n in named if axis.capacity.committed and max(1, n) < axis.K]

    def penalty(self) -> Tensor:
        """Sum of the capacities' penalties, [*R]; fixed sizes have none."""
        if all(axis.capacity.committed for axis in self.axes):
            device = self.axes[0].capacity.size().device
            return torch.zeros(() if self.replicas is None else self.replicas, dtype=torch.float64, device=device)
        capacities: list[Any] = [axis.capacity for axis in self.axes]
        batched = all(getattr(each, "batch", None) is not None for each in capacities)
        penalty = of_gates(capacities) if batched else torch.stack([each.penalty() for each in capacities]).sum(0)
        self.watch.priced(penalty)
        return penalty

    def _whole(self) -> nn.Module:
        if (whole := self._before()) is not None:
            return whole.on(next(self.model.parameters()).device)
        return cut_to(self.model, self.axes, [axis.K for axis in self.axes])

    def _before(self) -> WholeModel | None:
        """The model before its first cut; None if it was never cut."""
        whole: WholeModel | None = self.axes[0].whole
        return whole

    def _parameters_before(self) -> int:
        return super()._parameters_before() if (whole := self._before()) is None else whole.parameters

    def _groups(self) -> list[SizeReport]:
        return size_reports(self.axes, self.names) if self.replicas is None else []

    def _distance(self) -> Tensor | None:
        if not self.has_boundary:
            return None
        # Beyond the last component, rounding changes nothing.
        last = torch.tensor([axis.K - axis.capacity.smallest_count for axis in self.axes])
        t = self.size().minimum(last.to(self.size()))
        return (t - t.round()).abs()

    def activity_penalty(self) -> Tensor | None:
        parts = [part for axis in self.axes if (part := axis.activity_penalty()) is not None]
        return torch.stack(parts).sum(0) if parts else None

    def after_step(self, step: int) -> None:
        for axis in self.axes:
            axis.capacity.after_step()

    def finish(self, batches: Any) -> None:
        """Calibrate normalised components on batch 0."""
        if any(axis.capacity.rms_eps is not None for axis in self.axes):
            self.calibrate(batches.at(0)[0])

    @torch.no_grad()
    def calibrate(self, x: Any) -> None:
        """Fix the rms of normalised components at its value on the batch ``x``, for evaluation and deployment.

        The next training step drops it. Without normalised components this does nothing.
        """
        sums: list[Any] = [axis for axis in self.axes if axis.capacity.rms_eps is not None]
        with ExitStack() as calibrations:
            for axis in sums:
                calibrations.enter_context(axis.calibration())
            if sums:
                self(x)

    def count(self) -> Tensor:
        return torch.stack([axis.capacity.count() for axis in self.axes], -1)

    def size(self) -> Tensor:
        return sizes([axis.capacity for axis in self.axes])

    def controller_parameters(self) -> list[nn.Parameter]:
        return [p for axis in self.axes for p in axis.capacity.controllers() if p.requires_grad]

    def orders(self) -> dict[str, Tensor]:
        sorted_ = (
            (n, a.order) for n, a in enumerate(self.axes) if a.ranks is not None and a.cuts
        )  # not in removed layers
        return {f"order.{n}": order for n, order in sorted_ if order is not None}

    def reorder(self, orders: Mapping[str, Tensor]) -> None:
        for number, axis in enumerate(self.axes):
            if (order := orders.get(f"order.{number}")) is not None:
                axis.take_order(order)
            elif not axis.chosen:  # a training that sorted nothing; states of version 0.1 lack orders that users gave
                axis.take_order(torch.arange(axis.K))

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        moving, frozen = super()._tensors()
        orders = {f"{path}.order" for path, axis in self.named_modules() if isinstance(axis, OrderedAxis)}
        return {name: value for name, value in moving.items() if name not in orders}, frozen  # orders() has them

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"allocated": torch.tensor([axis.K for axis in self.axes])}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.reorder(tensors)
        allocated = tensors["allocated"].tolist()
        for axis, K in zip(self.axes, allocated, strict=True):
            if K > axis.K:
                axis.grow(K)
        shrink(self.model, self.axes, allocated)
        super().restore(tensors)
