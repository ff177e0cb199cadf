"""A model with learned sizes: what it counts, saves, reports and leaves; a learner (``ngn/learner``) trains it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis, having
from ngn.checks import NONE, Also, evaluating, is_frozen
from ngn.components.base import OrderedSum
from ngn.cut import cut_to
from ngn.cut.modules import TrainingHook
from ngn.cut.truncation import axes_of, deploy
from ngn.learner.boundaries import LoopWatch
from ngn.learner.importance import Importance, Loss, sort
from ngn.learner.report import Report, SizeReport, anatomy, distance_of, latencies_of
from ngn.learner.shrinking import InPlaceCut, cut_to_state, shrink
from ngn.methods.base import MODES, Mode, exact
from ngn.methods.batch import sizes
from ngn.tensor_files import digest_of, tensors_of
from ngn.tracing.found import listed


class SizedModel(nn.Module):
    """A model and its :class:`~ngn.axis.OrderedAxis` modules. In shapes, ``*R`` is nothing or one replica axis, and G
    the number of learned sizes. Arguments, attributes and errors are those of :class:`~ngn.learner.Learner`.
    """

    also: Also = NONE
    """Further inputs on which :meth:`deploy` compares, by the method that takes them."""
    budget: Any = None
    """The limits that it keeps to (:mod:`ngn.budget`); None if a price decides the sizes."""
    found: Any = None
    """What :func:`~ngn.sizes.attach.learn_sizes` took of a trace, and what cannot be cut; None without a trace."""
    moments: Tensor
    """Adam's for the boundaries: steps, means and mean squares of gradients, float64 [3, entries of controllers]."""

    def __init__(self, model: nn.Module, axes: Sequence[OrderedAxis] | None = None) -> None:
        super().__init__()
        self.model = model
        self.axes = axes_of(model) if axes is None else [*axes]
        if not self.axes and type(self).count is SizedModel.count:
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
        banks = [axis.bank for axis in self.axes if isinstance(axis, OrderedSum) and axis.bank.drawn]
        held = [axis.capacity for axis in self.axes if not axis.capacity.shared]
        if twice := [n for n, axis in zip(self.names, self.axes, strict=True) if held.count(axis.capacity) > 1]:
            raise ValueError(
                f"{listed(twice)} share one {type(gates[0]).__name__}, but every size needs its own: return a new one "
                "at each call of capacity=, or give a size shared=True"
            )
        if len({(str(bank.seeds), bank.name) for bank in banks}) < len(banks):
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
        self._digests: dict[Any, Tensor] = {}  # that of the frozen parameters
        self._steps, self._checked = 0, False
        self._fixed = [False] * len(self.axes)  # which sizes have been fixed and cut
        self._followers: list[Callable[[InPlaceCut], object]] = []
        self._said: set[str] = set()  # sizes of which a warning said that they stay masked
        states = (getattr(hook, "hook", None) for hook in model._load_state_dict_pre_hooks.values())
        if self.axes and not any(isinstance(hook, TrainingHook) for hook in states):
            model.register_load_state_dict_pre_hook(TrainingHook(cut_to_state))  # which takes states of after a cut

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_followers": []}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Keep the learner's own buffers in float64 when the model is cast: lower precision would lose small steps."""
        for child in self.children() if recurse else ():
            child._apply(fn)
        return super()._apply(partial(exact, fn), recurse=False)

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

    def make_room(self) -> bool:
        """Allocate the components that are now needed, and return whether parameters have grown."""
        growing = [axis for axis in self.axes if axis.capacity.growing]
        wanted = [(axis, K) for axis in growing if (K := axis.capacity.wanted()) != axis.K]
        for axis, K in wanted:
            axis.grow(K)
        return bool(wanted)

    @torch.no_grad()
    def calibrate(self, x: Any) -> None:
        """Fix the rms of normalised components at its value on the batch ``x``, for evaluation and deployment.

        The next training step drops it. Without normalised components this does nothing.
        """
        sums: list[Any] = [axis for axis in self.axes if axis.capacity.rms_eps is not None]
        for axis in sums:
            axis.calibrating = True
        if sums:
            self(x)

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

    def state(self) -> dict[str, Tensor]:
        """The tensors for a checkpoint: trained parameters and persistent buffers of the model and the learner.

        Frozen parameters are left out; the key "frozen" holds their digest.
        """
        moving, frozen = self._tensors()
        frozen = {"frozen": digest_of(frozen, self._digests)} if frozen else {}
        return moving | frozen | self.orders() | {"allocated": torch.tensor([axis.K for axis in self.axes])}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the result of :meth:`state`, of an equal structure; a ValueError if frozen parameters are others."""
        self.watch.continued = True
        self.reorder(tensors)
        allocated = tensors["allocated"].tolist() if self.axes else []
        for axis, K in zip(self.axes, allocated, strict=True):
            if K > axis.K:
                axis.grow(K)
        shrink(self.model, self.axes, allocated)
        moving, frozen = self._tensors()
        if frozen and not torch.equal(digest_of(frozen, self._digests), tensors["frozen"].cpu()):
            raise ValueError(
                "the frozen parameters differ from those of the saved training: load the same pretrained model first"
            )
        self.load_state_dict({name: tensors[name] for name in moving}, strict=False)

    def _sizes_of(self, replica: int | None) -> Tensor:
        """The continuous sizes of one model, [G]; an error if there is no such replica."""
        if replica is not None and not isinstance(replica, int):
            raise TypeError(f"replica must be an integer, not a {type(replica).__name__}; pass an input as example=")
        if replica is not None and self.replicas is None:
            raise ValueError("this is a single model, not a stack of replicas: leave replica= out")
        return self.size() if replica is None else self.size()[replica]

    def cut(self, replica: int | None = None, share_frozen: bool = False) -> nn.Module:
        """Return a copy of the model in eval mode with only the retained components and no gates; check nothing.

        Args:
            replica: which model of a stack.
            share_frozen: share frozen parameters that are not cut with the model; do not copy them.
        """
        return deploy(self.model, replica, share_frozen)

    def _groups(self) -> list[SizeReport]:
        """The learned sizes by name; empty for a stack."""
        groups = []
        for axis, name in zip(self.axes, self.names, strict=True) if self.replicas is None else ():
            K, entries, parameters = anatomy(axis) if axis.whole is None else axis.whole.sizes[axis]
            kept, size = axis.retained()[0].cpu(), float(axis.capacity.size())
            removed = int(parameters.sum() - parameters[: len(kept)][kept].sum())
            groups.append(SizeReport(name, axis.unit, size, K, int(kept.sum()), entries, removed))
        return groups

    def _budget_used(self) -> str | None:
        """A sentence about how much of the budget the sizes use; None without a budget."""
        return None

    def report(
        self, latency: Any = None, deployed: nn.Module | None = None, score: Callable[[nn.Module], Any] | None = None
    ) -> Report:
        """Report the sizes and what deployment would leave.

        Args:
            latency: an input on which to time the model with all components, and the deployed model. It is a tuple for
                several arguments, a dictionary for named ones.
            deployed: the result of :meth:`deploy`, if you have it already (a single model only).
            score: a function of the model, such as its accuracy on held-out data. It is called in eval mode for each
                mode: as trained (soft), retained components with their gates (kept), as deployed (hard).
        """
        scores: dict[str, Any] = {}
        if score is not None:
            with torch.no_grad(), evaluating(self.model):
                for each in MODES:
                    with self.mode(each):
                        scores[each] = score(self.model)
        replicas = [None] if self.replicas is None else range(self.replicas)
        models = [deployed or self.cut(r, share_frozen=True) for r in replicas]
        left = [sum(p.numel() for p in model.parameters()) for model in models]
        whole, milliseconds = self.axes[0].whole if self.axes else None, None
        deciding = sum(p.numel() for p in self.controller_parameters())
        before = sum(p.numel() for p in self.model.parameters()) - deciding if whole is None else whole.parameters
        if latency is not None:
            device = next(models[0].parameters()).device
            model = cut_to(self.model, self.axes, [a.K for a in self.axes]) if whole is None else whole.on(device)
            milliseconds = latencies_of(model, models[0], latency)
        distance = distance_of(self.axes, self.size()) if self.has_boundary else None
        return Report(
            self.size().tolist(),
            self.count().tolist(),
            None if distance is None else distance.tolist(),
            before // len(left),
            left[0] if self.replicas is None else left,
            self._groups(),
            milliseconds,
            scores,
            self._budget_used(),
        )
