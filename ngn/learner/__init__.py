"""The learner: it trains the sizes of a model, one capacity per axis, in trainers and in loops of one's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from ngn.comparison import check_equal
from ngn.learner.boundaries import LR, adam_step, moved_elsewhere, refuse_diverged, warn_of_unlearned
from ngn.learner.report import distance_of
from ngn.learner.shrinking import (
    Averages,
    InPlaceCut,
    Optimizers,
    averages_in,
    optimizers_in,
    shrink,
    uncuttable,
    warn_of_masks,
    why_whole,
)
from ngn.learner.sized import SizedModel
from ngn.methods.batch import penalty as of_gates


class Learner(SizedModel):
    """Learn the sizes of a model that contains :class:`~ngn.axis.OrderedAxis` modules, one capacity per axis.

    The trainer calls once :meth:`prepare`; in every step :meth:`set_progress`, :meth:`before_step`, :meth:`make_room`,
    the forward and backward passes with :meth:`penalty`, :meth:`after_backward`, the optimiser's step,
    :meth:`after_step`; and once :meth:`finish`.

    A subclass overrides the hooks that it needs. One that learns sizes without axes overrides :meth:`count`. Parameters
    and persistent buffers of the learner go into checkpoints, as those of ``model`` do. In shapes, ``*R`` is nothing or
    one replica axis, and G the number of learned sizes.

    Args:
        model: the model.
        axes: its axes; None for all that it has.

    Attributes:
        axes, names: the axes, in the order of counts and sizes, and their names.

    Raises:
        ValueError: if the model has no axis, if axes differ in their replicas, or if two banks share seed and name.

    >>> import ngn, torch
    >>> from ngn.components.low_rank import attach_low_rank
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> _ = attach_low_rank(model, ["0", "2"], lambda number: ngn.CountGate(8, t0=(2.0, 6.0)[number]), seed=0)
    >>> ngn.Learner(model).count()
    tensor([3, 7])
    """

    def prepare(self, batches: Any) -> None:
        """Look at data before step 0; not called when a training is resumed."""

    def set_progress(self, progress: float) -> None:
        """Move every schedule to ``progress`` in [0, 1]."""
        self._at = None
        self.watch.progressed(progress)
        for axis in self.axes:
            axis.capacity.set_progress(progress)
        self._fixed = [cut and axis.capacity.committed for cut, axis in zip(self._fixed, self.axes, strict=True)]

    def before_step(self, step: int | None) -> None:
        """Prepare the forward passes of a step; None: of an evaluation of the trained model."""
        for axis in self.axes:
            axis.before_step(step)

    def wanted_components(self) -> list[int] | None:
        """The number of components that each axis must still have, [G]; None if nothing is to be cut now.

        A fixed size needs its count (of a stack, the largest). Override it to cut earlier.
        """
        fixed = [axis.capacity.committed for axis in self.axes]
        if fixed == self._fixed:
            return None
        counts = self.count().reshape(-1, len(self.axes)).amax(0).tolist()
        return [n if done else axis.K for axis, n, done in zip(self.axes, counts, fixed, strict=True)]

    def shrink(self, optimizer: Optimizers = None, averages: Averages = ()) -> bool:
        """Cut what is fixed out of the model, in place, and return whether parameters have changed shape.

        Args:
            optimizer: the optimiser of the model's parameters, or several; their states are cut, too.
            averages: averages of the learner or of its model, to be cut alike: ``AveragedModel``, timm's
                ``ModelEmaV3``, any other copy, or a dictionary of tensors by name.

        Raises:
            TypeError, ValueError: for something else; nothing has then changed.

        Warns:
            UserWarning: once, of sizes that stay masked because an optimiser has a state that cannot be cut.
        """
        if (counts := self.wanted_components()) is None:
            return False
        optimizers, copies = optimizers_in(optimizer), averages_in(averages, self.model)
        masked = uncuttable(self.axes, optimizers) if optimizers else {}
        warn_of_masks(self.axes, self.names, masked, self._said)
        counts = [axis.K if axis in masked else n for axis, n in zip(self.axes, counts, strict=True)]
        followers: list[Any] = [*(partial(InPlaceCut.__call__, held=each) for each in copies), *self._followers]
        changed = shrink(self.model, self.axes, counts, optimizers, followers)
        self._fixed = [axis.capacity.committed for axis in self.axes]
        return changed

    def on_cut(self, callback: Callable[[InPlaceCut], object]) -> None:
        """Call ``callback`` whenever training has cut parameters in place, after optimisers and averages.

        Its argument cuts what you keep beside the model: ``learner.on_cut(lambda cut: cut(ema))``, where ``ema`` is a
        dictionary of tensors by name, or a copy of the model (:class:`~ngn.learner.shrinking.InPlaceCut`). Loading a
        state calls nothing, as an average comes with its own. Copies of the learner have no callbacks.
        """
        self._followers.append(callback)

    @property
    def masked(self) -> list[str]:
        """The names of the fixed sizes whose closed components are masked and not cut."""
        counts = self.count().reshape(-1, len(self.axes)).amax(0).tolist()
        named = zip(self.names, self.axes, counts, strict=True)
        return [name for name, axis, n in named if axis.capacity.committed and max(1, n) < axis.K]

    def penalty(self) -> Tensor:
        """Sum of the capacities' penalties, [*R]; fixed sizes have none, and none has one under a budget."""
        if self.budget is not None or all(axis.capacity.committed for axis in self.axes):
            device = next((axis.capacity.size().device for axis in self.axes), None)
            return torch.zeros(() if self.replicas is None else self.replicas, dtype=torch.float64, device=device)
        if self._at is None and self._controlled and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            with torch.no_grad():
                self._at = torch._foreach_mul((*self._controlled,), 1.0)  # clones, by one call
        penalty = of_gates(self.gates)
        if self.watch.closely:
            self.watch.priced(penalty)
        return penalty

    def held_out_batch(self, step: int) -> int | None:
        """The number of the held-out batch to :meth:`judge` in this step; None for none."""
        return None

    def judge(self, loss: Callable[[int], Tensor], number: int) -> None:
        """Learn from held-out batch ``number`` whether sizes are worth it; ``loss``: number → loss of a batch, [*R]."""

    def after_backward(self, step: int) -> None:
        """Use the gradients of a step, before they are clipped and the optimiser moves."""

    def after_step(self, step: int) -> None:
        """Change parameters after the optimiser's step, while the gradients are still there."""
        if self.budget is not None:
            self.after_backward(step)  # a loop of one's own has not called it
            return
        for gate in self.gates:
            gate.after_step()

    def finish(self, batches: Any) -> None:
        """Complete the model after the last step: calibrate normalised components on batch 0."""
        if any(axis.capacity.rms_eps is not None for axis in self.axes):
            self.calibrate(batches.at(0)[0])

    def step(self, progress: float, optimizer: Optimizers = None, averages: Averages = (), lr: float = LR) -> None:
        """Run the hooks between two steps. In your own loop, call it after each ``optimizer.step()``.

        Keep the gradients until then. Your loop also adds :meth:`penalty` to every loss. Its optimiser is that of the
        weights: it may hold ``learner.parameters()``. The learner takes back what it did to the boundaries, and moves
        them by an Adam of its own, without weight decay. To move them yourself, give the optimiser a group of
        :meth:`controller_parameters` alone.

        Args:
            progress: fraction of the training that is done, in (0, 1]; 1 after the last step.
            optimizer: the optimiser, or a list of all. If given, :meth:`shrink` cuts fixed sizes in place, so that
                later steps cost what those of the small model do. Without it they are masked. It has no effect in a
                group of several processes.
            averages: see :meth:`shrink`.
            lr: learning rate of the boundaries, 0.05 by default.

        Raises:
            ValueError: if components must be allocated (only ``ngn.fit`` can do that).

        Warns:
            UserWarning: in the first step, of sizes that stay masked although an optimiser is given, and of a group of
                boundaries with weight decay.
        """
        moving = self._moves_boundaries(optimizers_in(optimizer))
        if moving:
            for p, before in zip(self._controlled, self._at or (), strict=False):
                p.data.copy_(before)  # an optimiser of all parameters has moved them, too
            self.move_boundaries(lr)
        self.after_step(self._steps)
        self._steps += 1
        self.set_progress(progress)
        self.before_step(self._steps if progress < 1 else None)
        if self.make_room():
            raise ValueError("your own loop cannot allocate components: give the gate a K, or use ngn.fit")
        several = distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1
        if optimizer is not None:
            if not self._checked and not (self.budget and self.budget.several):  # a front is cut after its training
                averages_in(averages, self.model)
                whole = {axis: reason for axis in self.axes if axis.K > 1 and (reason := why_whole(axis, axis.K - 1))}
                masked = uncuttable(self.axes, optimizers_in(optimizer)) | whole
                warn_of_masks(self.axes, self.names, masked, self._said)
            self._checked = True
            if not several:
                self.shrink(optimizer, averages)
        for p in self._controlled if moving else ():
            p.grad = None

    def _moves_boundaries(self, optimizers: list[Optimizer]) -> bool:
        """Whether :meth:`step` moves the boundaries: unless a budget, or an optimiser with a group of them, does."""
        if not self.watch.by_optimizer or all(axis.capacity.committed for axis in self.axes):
            return False
        if self._mine is None:
            moved = moved_elsewhere(self._controlled, self._at, optimizers)
            self._mine = None if moved is None else not moved
        return bool(self._mine)

    def move_boundaries(self, lr: float = LR) -> None:
        """Take a step of Adam with the boundaries, without weight decay. None moves if a gradient is not finite."""
        if self._controlled:
            self.moments = self.moments.to(self._controlled[0].device)  # a trainer may have moved the model alone
            adam_step(self._controlled, self.moments, lr)

    def resume(self, step: int, progress: float) -> None:
        """Go on from a checkpoint, once before step number ``step``, with the fraction ``progress`` done, in [0, 1]."""
        self.watch.continued = True
        self._steps = step
        self.set_progress(progress)
        self.before_step(step)

    def deploy(
        self,
        replica: int | None = None,
        example: Any = None,
        share_frozen: bool = False,
        unsettled: Literal["warn", "allow"] = "warn",
        verbose: bool = False,
    ) -> nn.Module:
        """Return the small model: :meth:`cut`, with checks of the training and of the result.

        Args:
            replica, share_frozen: see :meth:`cut`.
            example: an input on which the result must equal the model in mode "hard"; a tuple for several arguments, a
                dictionary for named ones.
            unsettled: "warn" warns of sizes that were not learned, and of boundaries more than 0.1 from an integer.
                Truncation rounds those, so that the deployed model may compute something else. "allow" is silent.
            verbose: print :meth:`report`.

        Raises:
            ValueError: if a size is not finite, the model cannot be copied faithfully, or the result differs on the
                example.
        """
        if unsettled not in ("warn", "allow"):
            raise ValueError(f"unsettled must be 'warn' or 'allow', not {unsettled!r}")
        sizes = self._sizes_of(replica)
        refuse_diverged(sizes)
        small = self.cut(replica, share_frozen)
        if unsettled == "warn":
            distance = distance_of(self.axes, self.size()) if self.has_boundary else None
            warn_of_unlearned(self.watch, sizes, distance if distance is None or replica is None else distance[replica])
        if example is not None:
            with self.mode("hard"):
                check_equal(self.model, small, example, replica, self.also)
        if verbose:
            print(self.report(deployed=small if self.replicas is None else None))
        return small
