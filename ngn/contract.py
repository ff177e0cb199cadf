"""The learner: a model with learned sizes, as the trainer sees it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from ngn.checks import evaluating, is_frozen, tensors_of
from ngn.comparison import check_equal
from ngn.methods.base import MODES, Mode
from ngn.report import Report, SizeReport, latencies_of
from ngn.truncation import deploy
from ngn.watching import LoopWatch, refuse_diverged, warn_of_rounding, warn_of_unlearned

Optimizers = Optimizer | Sequence[Optimizer] | None
Average = nn.Module | dict[str, Any]
Averages = Average | Sequence[Average]


class Learner(nn.Module, ABC):
    """Base class of everything that the trainer can train: a model and the hooks that learn its sizes.

    The trainer calls the hooks in this order:

    - once: :meth:`prepare`;
    - in every step: :meth:`set_progress`, :meth:`before_step`, :meth:`make_room`, the forward and backward passes with
      :meth:`penalty`, :meth:`after_backward`, the optimiser's step, :meth:`after_step`;
    - once: :meth:`finish`.

    Override only the hooks that you need. Parameters and persistent buffers of the learner go into checkpoints, as
    those of ``model`` do. In shapes, ``*R`` is nothing or one replica axis, and G the number of learned sizes.

    >>> import torch, ngn
    >>> class Rank(ngn.Learner):  # the largest singular values of a matrix
    ...     def count(self): return (torch.linalg.svdvals(self.model.weight) > 1e-3).sum(-1, keepdim=True)
    >>> Rank(torch.nn.Linear(3, 3)).count()
    tensor([3])
    """

    replicas: int | None = None
    has_boundary = False
    """Whether every ``size`` is a boundary t, so that its distance from an integer matters."""
    also: Mapping[str, Sequence[Any]] = MappingProxyType({})
    """Further inputs on which :meth:`deploy` compares, by the method that takes them."""
    watch: LoopWatch | None = None
    """Notes on what the training loop did with the sizes; None if the learner takes none."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._frozen: tuple[list[tuple[Any, ...]], Tensor] | None = None
        self._steps, self._checked = 0, False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model: soft, as it is trained, unless a :meth:`mode` is set."""
        return self.model(*args, **kwargs)

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        """Run forward passes in ``mode`` within the context.

        "soft": as trained; "kept": the retained components with their gates; "hard": as deployed.
        """
        yield

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Declare that no size moves within the context, so that each gate may be computed once."""
        yield

    @abstractmethod
    def count(self) -> Tensor:
        """Numbers of retained components: int64 [*R, G]."""

    def size(self) -> Tensor:
        """Continuous sizes (t for a boundary): float64 [*R, G]."""
        return self.count().double()

    def standing(self) -> str:
        """Summarise the sizes for a progress line: their mean."""
        if self.has_boundary:
            return f"t {float(self.size().mean()):.2f}"
        return f"count {float(self.count().double().mean()):.1f}"

    def controller_parameters(self) -> list[nn.Parameter]:
        """The parameters that decide the sizes; they have their own learning rate and no weight decay."""
        return []

    def body_parameters(self) -> list[nn.Parameter]:
        """All other trained parameters; those of a size with nothing left have no entries and do not count."""
        controllers = {id(p) for p in self.controller_parameters()}
        return [p for p in self.parameters() if p.requires_grad and p.numel() and id(p) not in controllers]

    def prepare(self, batches: Any) -> None:
        """Look at data before step 0; not called when a training is resumed."""

    def set_progress(self, progress: float) -> None:
        """Move every schedule to ``progress`` in [0, 1]."""

    def before_step(self, step: int | None) -> None:
        """Prepare the forward passes of a step; None: of an evaluation of the trained model."""

    def make_room(self) -> bool:
        """Allocate the components that are now needed, and return whether parameters have grown."""
        return False

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
        return False

    def check_cuts(self, optimizer: Optimizers, averages: Averages = ()) -> None:
        """Warn of sizes that :meth:`shrink` will leave masked; arguments and errors are those of :meth:`shrink`."""

    def penalty(self) -> Tensor:
        """The term to add to the task loss: [*R]."""
        return torch.zeros(() if self.replicas is None else self.replicas, dtype=torch.float64)

    def held_out_batch(self, step: int) -> int | None:
        """The number of the held-out batch to :meth:`judge` in this step; None for none."""
        return None

    def judge(self, loss: Callable[[int], Tensor], number: int) -> None:
        """Learn from held-out batch ``number`` whether sizes are worth it; ``loss``: number → loss of a batch, [*R]."""

    def after_backward(self, step: int) -> None:
        """Use the gradients of a step, before they are clipped and the optimiser moves."""

    def after_step(self, step: int) -> None:
        """Change parameters after the optimiser's step, while the gradients are still there."""

    def finish(self, batches: Any) -> None:
        """Complete the model after the last step."""

    def step(self, progress: float, optimizer: Optimizers = None, averages: Averages = (), lr: float = 0.0) -> None:
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

    def resume(self, step: int, progress: float) -> None:
        """Go on from a checkpoint. In your own loop, call it once before step number ``step``.

        Args:
            progress: fraction of the training that is done, in [0, 1].
        """
        if self.watch is not None:
            self.watch.continued = True
        self._steps = step
        self.set_progress(progress)
        self.before_step(step)

    def orders(self) -> dict[str, Tensor]:
        """What a checkpoint has to hold of the order of components."""
        return {}

    def reorder(self, orders: Mapping[str, Tensor]) -> None:
        """Take over the orders among the tensors of a checkpoint."""

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors that training changes, and the frozen parameters; a tied tensor once."""
        tensors = {name: value for name, value in tensors_of(self).items() if isinstance(value, Tensor)}
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
        return moving | ({"frozen": self._digest(frozen)} if frozen else {}) | self.orders()

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Load the result of :meth:`state` of a learner with the same structure.

        Raises:
            ValueError: if the frozen parameters differ from those of the saved training.
        """
        if self.watch is not None:
            self.watch.continued = True
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

    def _distance(self) -> Tensor | None:
        """|t - round(t)|, [*R, G]; None if sizes are not boundaries."""
        return (self.size() - self.size().round()).abs() if self.has_boundary else None

    def _groups(self) -> list[SizeReport]:
        """The learned sizes by name; empty for a stack."""
        return []

    def _whole(self) -> nn.Module:
        """The model whose latency is compared with the deployed model's; of a stack, one of its models."""
        return self.model

    def _parameters_before(self) -> int:
        """Number of parameters before anything was cut (of a stack, of all), without those that decide sizes."""
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

    def cut(self, replica: int | None = None, share_frozen: bool = False) -> nn.Module:
        """Return a copy of the model in eval mode with only the retained components and no gates; check nothing.

        Args:
            replica: which model of a stack.
            share_frozen: share frozen parameters that are not cut with the model; do not copy them.
        """
        return deploy(self.model, replica, share_frozen)
