"""The learner: a model with learned sizes, one capacity per axis, as trainers and loops of one's own see it."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Self

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from ngn.axis import OrderedAxis
from ngn.boundaries import LR, adam_step, moved_elsewhere
from ngn.checks import axes_of, evaluating, having, is_frozen, tensors_of
from ngn.comparison import check_equal
from ngn.cut import axes_in, cut_to
from ngn.importance import Importance, Loss, sort
from ngn.methods.base import MODES, Mode
from ngn.methods.batch import penalty as of_gates
from ngn.methods.batch import sizes
from ngn.report import Report, SizeReport, WholeModel, latencies_of, size_reports
from ngn.shrinking import InPlaceCut, kept_whole, load_cut_states, optimizers_in, shrink, uncuttable
from ngn.tracing.found import listed
from ngn.truncation import deploy
from ngn.watching import LoopWatch, refuse_diverged, warn_of_rounding, warn_of_unlearned

Optimizers = Optimizer | Sequence[Optimizer] | None
Average = nn.Module | dict[str, Any]
Averages = Average | Sequence[Average]


class Learner(nn.Module):
    """Learn the sizes of a model that contains :class:`~ngn.axis.OrderedAxis` modules, one capacity per axis.

    The trainer calls the hooks in this order:

    - once: :meth:`prepare`;
    - in every step: :meth:`set_progress`, :meth:`before_step`, :meth:`make_room`, the forward and backward passes with
      :meth:`penalty`, :meth:`after_backward`, the optimiser's step, :meth:`after_step`;
    - once: :meth:`finish`.

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
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> _ = ngn.attach_low_rank(model, ["0", "2"], lambda number: ngn.CountGate(8, t0=(2.0, 6.0)[number]), seed=0)
    >>> ngn.Learner(model).count()
    tensor([3, 7])
    >>> class Rank(ngn.Learner):  # the largest singular values of a matrix
    ...     def count(self): return (torch.linalg.svdvals(self.model.weight) > 1e-3).sum(-1, keepdim=True)
    >>> Rank(torch.nn.Linear(3, 3)).count()
    tensor([3])
    """

    also: Mapping[str, Sequence[Any]] = MappingProxyType({})
    """Further inputs on which :meth:`deploy` compares, by the method that takes them."""
    found: Any = None
    """What :func:`~ngn.sizes.attach.learn_sizes` took of a trace, and what cannot be cut; None without a trace."""
    moments: Tensor
    """Adam's for the boundaries: steps, means and mean squares of gradients, float64 [3, entries of controllers]."""

    def __init__(self, model: nn.Module, axes: Sequence[OrderedAxis] | None = None) -> None:
        super().__init__()
        self.model = model
        self.axes = axes_of(model) if axes is None else [*axes]
        if not self.axes and type(self).count is Learner.count:
            raise ValueError(
                "the model has no OrderedAxis with a capacity, so no size to learn: call "
                "ngn.learn_sizes(model, example=...), or add an axis"
            )
        paths = {id(module): path for path, module in model.named_modules()}
        self.names = [axis.name or paths[id(axis)] for axis in self.axes]
        gates = self.gates = [*dict.fromkeys(axis.capacity for axis in self.axes)]
        replicas = {gate.replicas for gate in gates} or {None}
        if len(replicas) != 1:
            raise ValueError(f"all axes of a model need the same replicas=, not {sorted(map(str, replicas))}")
        self.replicas = replicas.pop()
        origins = [axis.origin for axis in self.axes if axis.origin is not None]
        held = [axis.capacity for axis in self.axes if not axis.capacity.shared]
        if twice := [n for n, axis in zip(self.names, self.axes, strict=True) if held.count(axis.capacity) > 1]:
            raise ValueError(
                f"{listed(twice)} share one {type(gates[0]).__name__}, but every size needs its own: return a new one "
                "at each call of capacity=, or give a size shared=True"
            )
        if len({*origins}) < len(origins):
            raise ValueError(
                "two banks have the same seed and name, so the same initial values: give each bank a name of its own"
            )
        self.has_boundary = bool(gates) and all(gate.has_boundary for gate in gates)
        """Whether every ``size`` is a boundary t, so that its distance from an integer matters."""
        self.watch = LoopWatch(self.axes, self.names)
        """Notes on what the training loop did with the sizes."""
        self._controlled = [p for gate in gates for p in gate.controllers()]
        entries = sum(p.numel() for p in self._controlled)
        device = self._controlled[0].device if entries else None
        self.register_buffer("moments", torch.zeros(3, entries, dtype=torch.float64, device=device))
        self._at: Sequence[Tensor] | None = None  # where the boundaries were in the forward pass of this step
        self._mine: bool | None = None  # whether the learner moves them in a loop of one's own; None: not known yet
        self._frozen: tuple[list[tuple[Any, ...]], Tensor] | None = None
        self._steps, self._checked = 0, False
        self._fixed = [False] * len(self.axes)  # which sizes have been fixed and cut
        self._followers: list[Callable[[InPlaceCut], object]] = []
        self._said: set[str] = set()  # sizes of which a warning said that they stay masked
        if self.axes:
            load_cut_states(model)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_followers": []}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep the learner's own buffers in float64 when the model is cast: lower precision would lose small steps."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, value in before.items():
            moved = self._buffers[name]
            if value is not None and moved is not None and moved.dtype != value.dtype:
                self._buffers[name] = value.to(moved.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        self._at = None
        state_dict.setdefault(f"{prefix}moments", self.moments)  # states of version 0.1 lack it
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model: soft, as it is trained, unless a :meth:`mode` is set."""
        return self.model(*args, **kwargs)

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        """Run forward passes in ``mode`` within the context.

        "soft": as trained; "kept": the retained components with their gates; "hard": as deployed.
        """
        with having(self.axes, mode=lambda axis: mode):
            yield

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Declare that no size moves within the context, so that each gate may be computed once."""
        with having(self.axes, held=lambda axis: {}):
            yield

    def count(self) -> Tensor:
        """Numbers of retained components: int64 [*R, G]."""
        return torch.stack([axis.capacity.count() for axis in self.axes], -1)

    def size(self) -> Tensor:
        """Continuous sizes (t for a boundary): float64 [*R, G]."""
        return sizes([axis.capacity for axis in self.axes]) if self.axes else self.count().double()

    def standing(self) -> str:
        """Summarise the sizes for a progress line: their mean."""
        if self.has_boundary:
            return f"t {float(self.size().mean()):.2f}"
        return f"count {float(self.count().double().mean()):.1f}"

    def controller_parameters(self) -> list[nn.Parameter]:
        """The parameters that decide the sizes; they have their own learning rate and no weight decay."""
        return [p for gate in self.gates for p in gate.controllers() if p.requires_grad]

    def body_parameters(self) -> list[nn.Parameter]:
        """All other trained parameters; those of a size with nothing left have no entries and do not count."""
        controllers = {id(p) for p in self.controller_parameters()}
        return [p for p in self.parameters() if p.requires_grad and p.numel() and id(p) not in controllers]

    def prepare(self, batches: Any) -> None:
        """Look at data before step 0; not called when a training is resumed."""

    def set_progress(self, progress: float) -> None:
        """Move every schedule to ``progress`` in [0, 1]."""
        self._at = None
        self.watch.progressed(progress)
        for axis in self.axes:
            axis.capacity.set_progress(progress)
        self._fixed = [cut and axis.capacity.committed for cut, axis in zip(self._fixed, self.axes, strict=True)]

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
        """Prepare the forward passes of a step; None: of an evaluation of the trained model."""
        for axis in self.axes:
            axis.before_step(step)

    def make_room(self) -> bool:
        """Allocate the components that are now needed, and return whether parameters have grown."""
        wanted = [(axis, K) for axis in self.axes if (K := axis.capacity.wanted()) != axis.K]
        for axis, K in wanted:
            axis.grow(K)
        return bool(wanted)

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
        optimizers, copies = optimizers_in(optimizer), self._copies(averages)
        self._warn_of_masks(masked := uncuttable(self.axes, optimizers) if optimizers else {})
        counts = [axis.K if axis in masked else n for axis, n in zip(self.axes, counts, strict=True)]
        followers: list[Any] = [*(partial(InPlaceCut.__call__, held=each) for each in copies), *self._followers]
        changed = shrink(self.model, self.axes, counts, optimizers, followers)
        self._fixed = [axis.capacity.committed for axis in self.axes]
        return changed

    def check_cuts(self, optimizer: Optimizers, averages: Averages = ()) -> None:
        """Warn of sizes that :meth:`shrink` will leave masked; arguments and errors are those of :meth:`shrink`."""
        self._copies(averages)
        self._warn_of_masks(uncuttable(self.axes, optimizers_in(optimizer)) | kept_whole(self.axes))

    def on_cut(self, callback: Callable[[InPlaceCut], object]) -> None:
        """Call ``callback`` whenever training has cut parameters in place, after optimisers and averages.

        Its argument cuts what you keep beside the model: ``learner.on_cut(lambda cut: cut(ema))``, where ``ema`` is a
        dictionary of tensors by name, or a copy of the model (:class:`~ngn.shrinking.InPlaceCut`). Loading a state
        calls nothing, as an average comes with its own. Copies of the learner have no callbacks.
        """
        self._followers.append(callback)

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
        if self._at is None and self._controlled and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            with torch.no_grad():
                self._at = torch._foreach_mul((*self._controlled,), 1.0)  # clones, by one call
        if all(axis.capacity.committed for axis in self.axes):
            device = next((axis.capacity.size().device for axis in self.axes), None)
            return torch.zeros(() if self.replicas is None else self.replicas, dtype=torch.float64, device=device)
        penalty = of_gates(self.gates)
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
        for gate in self.gates:
            gate.after_step()

    def finish(self, batches: Any) -> None:
        """Complete the model after the last step: calibrate normalised components on batch 0."""
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

        >>> import torch, ngn
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        >>> x = torch.randn(64, 2)
        >>> learner = ngn.learn_sizes(model, {"": ngn.Width(8)}, example=x, lambda0=0.1)
        >>> optimizer = torch.optim.AdamW(learner.parameters(), lr=0.1)
        >>> for n in range(100):
        ...     loss = (learner(x) - x[:, :1]).square().mean() + learner.penalty()
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        ...     learner.step((n + 1) / 100, optimizer, lr=0.1)
        >>> small = learner.deploy(example=x)
        >>> small[0].out_features < 8
        True
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
            if not self._checked:
                self._checked = True
                self.check_cuts(optimizer, averages)
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
        """Go on from a checkpoint. In your own loop, call it once before step number ``step``.

        Args:
            progress: fraction of the training that is done, in [0, 1].
        """
        self.watch.continued = True
        self._steps = step
        self.set_progress(progress)
        self.before_step(step)

    def orders(self) -> dict[str, Tensor]:
        """What a checkpoint has to hold of the order of components."""
        left = ((n, a.order) for n, a in enumerate(self.axes) if a.ranks is not None and a.cuts)  # of layers that stay
        return {f"order.{n}": order for n, order in left if order is not None}

    def reorder(self, orders: Mapping[str, Tensor]) -> None:
        """Take over the orders among the tensors of a checkpoint."""
        for number, axis in enumerate(self.axes):
            if (order := orders.get(f"order.{number}")) is not None:
                axis.take_order(order)
            elif not axis.chosen:  # a training that sorted nothing; states of version 0.1 lack orders that users gave
                axis.take_order(torch.arange(axis.K))

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors that training changes, without :meth:`orders`, and the frozen parameters; a tied tensor once."""
        orders = {f"{path}.order" for path, axis in self.named_modules() if isinstance(axis, OrderedAxis)}
        tensors = {n: value for n, value in tensors_of(self).items() if isinstance(value, Tensor) and n not in orders}
        frozen = {name: value for name, value in tensors.items() if is_frozen(value)}
        return {name: value for name, value in tensors.items() if name not in frozen}, frozen

    def _digest(self, frozen: Mapping[str, Tensor]) -> Tensor:
        """SHA-256 of the frozen parameters, uint8 [32]; cached until one of them changes."""
        versions = [(id(p), p._version, p.data_ptr(), p.dtype) for p in frozen.values()]
        if self._frozen is None or self._frozen[0] != versions:
            digest = hashlib.sha256()
            for name, p in frozen.items():
                digest.update(f"{name} {tuple(p.shape)} {p.dtype}".encode())
                p = p.full_tensor() if hasattr(p, "full_tensor") else p
                digest.update(p.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            self._frozen = versions, torch.tensor(list(digest.digest()), dtype=torch.uint8)
        return self._frozen[1]

    def state(self) -> dict[str, Tensor]:
        """The tensors for a checkpoint: trained parameters and persistent buffers of the model and the learner.

        Frozen parameters are left out; the key "frozen" holds their digest.
        """
        moving, frozen = self._tensors()
        frozen = {"frozen": self._digest(frozen)} if frozen else {}
        return moving | frozen | self.orders() | {"allocated": torch.tensor([axis.K for axis in self.axes])}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the result of :meth:`state` of a learner with the same structure.

        Raises:
            ValueError: if the frozen parameters differ from those of the saved training.
        """
        self.watch.continued = True
        self.reorder(tensors)
        allocated = tensors["allocated"].tolist() if self.axes else []
        for axis, K in zip(self.axes, allocated, strict=True):
            if K > axis.K:
                axis.grow(K)
        shrink(self.model, self.axes, allocated)
        moving, frozen = self._tensors()
        if frozen and not torch.equal(self._digest(frozen), tensors["frozen"].cpu()):
            raise ValueError(
                "the frozen parameters differ from those of the saved training: load the same pretrained model first"
            )
        known = moving if "moments" in tensors else moving.keys() - {"moments"}  # checkpoints of version 0.1 lack it
        self.load_state_dict({name: tensors[name] for name in known}, strict=False)

    def _sizes_of(self, replica: int | None) -> Tensor:
        """The continuous sizes of one model, [G].

        Raises:
            TypeError, ValueError: if there is no such replica.
        """
        if replica is not None and not isinstance(replica, int):
            raise TypeError(f"replica must be an integer, not a {type(replica).__name__}; pass an input as example=")
        if replica is not None and self.replicas is None:
            raise ValueError("this is a single model, not a stack of replicas: leave replica= out")
        return self.size() if replica is None else self.size()[replica]

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
            distance = self._distance()
            warn_of_unlearned(self.watch)
            warn_of_rounding(sizes, distance if distance is None or replica is None else distance[replica])
        if example is not None:
            with self.mode("hard"):
                check_equal(self.model, small, example, replica, self.also)
        if verbose:
            print(self.report(deployed=small if self.replicas is None else None))
        return small

    def cut(self, replica: int | None = None, share_frozen: bool = False) -> nn.Module:
        """Return a copy of the model in eval mode with only the retained components and no gates; check nothing.

        Args:
            replica: which model of a stack.
            share_frozen: share frozen parameters that are not cut with the model; do not copy them.
        """
        return deploy(self.model, replica, share_frozen)

    def _distance(self) -> Tensor | None:
        """|t - round(t)|, [*R, G]; None if sizes are not boundaries. Beyond the last component it is 0."""
        if not self.has_boundary:
            return None
        last = torch.tensor([axis.K - axis.capacity.smallest_count for axis in self.axes])
        t = self.size().minimum(last.to(self.size()))
        return (t - t.round()).abs()

    def _groups(self) -> list[SizeReport]:
        """The learned sizes by name; empty for a stack."""
        return size_reports(self.axes, self.names) if self.replicas is None else []

    def _before(self) -> WholeModel | None:
        """The model before its first cut; None if it was never cut."""
        return self.axes[0].whole if self.axes else None

    def _whole(self) -> nn.Module:
        """The model whose latency is compared with the deployed model's; of a stack, one of its models."""
        if (whole := self._before()) is not None:
            return whole.on(next(self.model.parameters()).device)
        return cut_to(self.model, self.axes, [axis.K for axis in self.axes]) if self.axes else self.model

    def _parameters_before(self) -> int:
        """Number of parameters before anything was cut (of a stack, of all), without those that decide sizes."""
        if (whole := self._before()) is not None:
            return whole.parameters
        sizes = sum(p.numel() for p in self.controller_parameters())
        return sum(p.numel() for p in self.model.parameters()) - sizes

    def _budget_used(self) -> str | None:
        """A sentence about how much of the budget the sizes use; None without a budget."""
        return None

    def report(
        self,
        latency: Any = None,
        deployed: nn.Module | None = None,
        score: Callable[[nn.Module], Any] | None = None,
    ) -> Report:
        """Report the sizes and what deployment would leave.

        Args:
            latency: an input on which to time the model with all components, and the deployed model. It is a tuple for
                several arguments, a dictionary for named ones.
            deployed: the result of :meth:`deploy`, if you have it already (a single model only).
            score: a function of the model, such as its accuracy on held-out data. It is called in eval mode for each
                mode: as trained (soft), retained components with their gates (kept), as deployed (hard).

        >>> import torch, ngn
        >>> learner = ngn.CapacityLearner(ngn.LowRankLinear(torch.nn.Linear(3, 3), ngn.CountGate(4, t0=1.25), 0, "map"))
        >>> learner.report()
        Report(size=[1.25], count=[2], distance=[0.25], parameters=36, deployed=24, milliseconds=None, scores={})
        >>> print(learner.report())
        size  before -> after    change  parameters     t
        axis  4 -> 2 components    -50%         -12  1.25
        parameters: 36 -> 24 (-33%)
        t: the boundary between kept and cut components
        """
        each = [None] if self.replicas is None else range(self.replicas)
        models = [deployed or self.cut(r, share_frozen=True) for r in each]
        left = [sum(p.numel() for p in model.parameters()) for model in models]
        distance = self._distance()
        return Report(
            self.size().tolist(),
            self.count().tolist(),
            None if distance is None else distance.tolist(),
            self._parameters_before() // len(left),
            left[0] if self.replicas is None else left,
            self._groups(),
            None if latency is None else latencies_of(self._whole(), models[0], latency),
            {} if score is None else self._scores(score),
            self._budget_used(),
        )

    @torch.no_grad()
    def _scores(self, score: Callable[[nn.Module], Any]) -> dict[str, Any]:
        """``score`` of the model in eval mode, for each mode of its gates."""
        scores: dict[str, Any] = {}
        with evaluating(self.model):
            for mode in MODES:
                with self.mode(mode):
                    scores[mode] = score(self.model)
        return scores


CapacityLearner = Learner
