"""A model whose size is learned, as the trainer sees it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ngn.checks import check_equal, evaluating, is_frozen, tensors_of
from ngn.methods.base import MODES, Mode
from ngn.report import Report, SizeReport, latency_of
from ngn.truncation import deploy
from ngn.watching import LoopWatch, refuse_diverged, warn_of_rounding, warn_of_unlearned


class Learner(nn.Module, ABC):
    """The contract that the trainer keeps to. ``*R`` is nothing or one replica axis, G the number of learned sizes.

    The hooks, in the order in which a training calls them: :meth:`prepare` once; in every step :meth:`set_progress`,
    :meth:`before_step`, :meth:`make_room`, the forward and backward passes with :meth:`penalty` and
    :meth:`activity_penalty`, :meth:`after_backward`, the optimiser's step, :meth:`after_step`; :meth:`finish` once.
    What a learner does not need it leaves as it is. Parameters and persistent buffers of its own, beside those of
    ``model``, are its state and go into checkpoints.

    >>> import torch, ngn
    >>> class Rank(ngn.Learner):  # the largest singular values of a matrix
    ...     def count(self): return (torch.linalg.svdvals(self.model.weight) > 1e-3).sum(-1, keepdim=True)
    >>> Rank(torch.nn.Linear(3, 3)).count()
    tensor([3])
    """

    replicas: int | None = None
    has_boundary = False
    """Whether every ``size`` is a boundary t, of which one may ask how near to an integer it is."""
    watch: LoopWatch | None = None
    """What a training has done with the sizes so far, of a learner that watches it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._frozen: tuple[list[tuple[Any, ...]], Tensor] | None = None
        self._steps = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model as it is trained: soft, unless a :meth:`mode` is set."""
        return self.model(*args, **kwargs)

    @contextmanager
    def mode(self, mode: Mode) -> Iterator[None]:
        """Forward passes in ``mode`` while the context lasts, and soft ones after it.

        "soft": as trained; "kept": only what is retained, with its gates; "hard": as deployed.
        """
        yield

    def prepare(self, batches: Any) -> None:
        """Called once before step 0, and not when a training is resumed: here a learner may look at data."""

    def set_progress(self, progress: float) -> None:
        """Move every schedule to ``progress`` in [0, 1]."""

    def before_step(self, step: int | None) -> None:
        """Called before the forward passes of a step; with None before the trained model is evaluated."""

    def make_room(self) -> bool:
        """Allocate the components that have come to be needed; whether parameters have grown."""
        return False

    def penalty(self) -> Tensor:
        """What is added to the task loss: [*R]."""
        return torch.zeros(() if self.replicas is None else self.replicas, dtype=torch.float64)

    def activity_penalty(self) -> Tensor | None:
        """What the last forward pass adds to the task loss by what it computed, [*R]; None for nothing."""
        return None

    def after_backward(self, step: int) -> None:
        """Called when the gradients of a step are complete, before they are clipped and the optimiser moves."""

    def after_step(self, step: int) -> None:
        """Called when the optimiser has moved the parameters; the gradients are still there."""

    def finish(self, batches: Any) -> None:
        """Called once after the last step."""

    def step(self, progress: float) -> None:
        """In a training loop of one's own: to be called after every step of the optimiser, the gradients still there.

        It stands for the hooks that ``ngn.fit`` calls between two steps. What is left to the loop is to add
        :meth:`penalty` to the loss, and to give the optimiser ``learner.parameters()``, those of
        :meth:`controller_parameters` at a higher rate.

        Args:
            progress: the part of the training that is done, in (0, 1]; 1 after the last step.

        Raises:
            ValueError: if components are to be allocated, which takes ``ngn.fit``.

        >>> import torch, ngn
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        >>> learner = ngn.learn_sizes(model, {"": ngn.Width(8)}, lambda0=0.1)
        >>> optimizer, x = torch.optim.Adam(learner.parameters(), lr=0.1), torch.randn(64, 2)
        >>> for n in range(100):
        ...     loss = (learner(x) - x[:, :1]).square().mean() + learner.penalty()
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        ...     learner.step((n + 1) / 100)
        >>> small = learner.deploy(example=x)
        >>> small[0].out_features < 8
        True
        """
        self.after_step(self._steps)
        self._steps += 1
        self.set_progress(progress)
        self.before_step(self._steps if progress < 1 else None)
        if self.make_room():
            raise ValueError("components that are allocated in training need ngn.fit: give the gate a K")

    def resume(self, step: int, progress: float) -> None:
        """In a loop of one's own that goes on from a checkpoint: to be called before step number ``step``, when the
        part ``progress`` of the training is done."""
        if self.watch is not None:
            self.watch.continued = True
        self._steps = step
        self.set_progress(progress)
        self.before_step(step)

    @abstractmethod
    def count(self) -> Tensor:
        """Retained components: int64 [*R, G]."""

    def size(self) -> Tensor:
        """Continuous sizes (t for a boundary): float64 [*R, G]."""
        return self.count().double()

    def standing(self) -> str:
        """The sizes in a word, for who waits: the mean over all."""
        if self.has_boundary:
            return f"t {float(self.size().mean()):.2f}"
        return f"count {float(self.count().double().mean()):.1f}"

    def controller_parameters(self) -> list[nn.Parameter]:
        """What decides the size; trained at a rate of its own and never decayed."""
        return []

    def body_parameters(self) -> list[nn.Parameter]:
        """Everything else that is trained."""
        controllers = {id(p) for p in self.controller_parameters()}
        return [p for p in self.parameters() if p.requires_grad and id(p) not in controllers]

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What moves in training, and frozen parameters. A tied tensor is there once."""
        tensors = {name: value for name, value in tensors_of(self).items() if isinstance(value, Tensor)}
        frozen = {name: value for name, value in tensors.items() if is_frozen(value)}
        return {name: value for name, value in tensors.items() if name not in frozen}, frozen

    def _digest(self, frozen: Mapping[str, Tensor]) -> Tensor:
        """SHA-256 of the frozen parameters, uint8 [32]; computed again only when one of them has changed."""
        versions = [(id(p), p._version, p.data_ptr(), p.dtype) for p in frozen.values()]
        if self._frozen is None or self._frozen[0] != versions:
            digest = hashlib.sha256()
            for name, p in frozen.items():
                digest.update(f"{name} {tuple(p.shape)} {p.dtype}".encode())
                digest.update(p.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            self._frozen = versions, torch.tensor(list(digest.digest()), dtype=torch.uint8)
        return self._frozen[1]

    def state(self) -> dict[str, Tensor]:
        """All that training moves, for checkpoints: parameters and persistent buffers of the model and of the learner.

        Frozen parameters are left out; the key "frozen" holds their digest.
        """
        moving, frozen = self._tensors()
        return moving | ({"frozen": self._digest(frozen)} if frozen else {})

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what :meth:`state` of a learner of the same structure has given.

        Raises:
            ValueError: if the frozen parameters are not those of the training that is to be resumed.
        """
        if self.watch is not None:
            self.watch.continued = True
        moving, frozen = self._tensors()
        if frozen and not torch.equal(self._digest(frozen), tensors["frozen"].cpu()):
            raise ValueError("the frozen parameters differ from those that this state was trained with")
        self.load_state_dict({name: tensors[name] for name in moving}, strict=False)

    def _distance(self) -> Tensor | None:
        """|t - round(t)|, [*R, G]; None where sizes are no boundaries."""
        return (self.size() - self.size().round()).abs() if self.has_boundary else None

    def _sizes_of(self, replica: int | None) -> Tensor:
        """The continuous sizes of one model, [G].

        Raises:
            TypeError, ValueError: if there is no such replica.
        """
        if replica is not None and not isinstance(replica, int):
            raise TypeError(f"replica is the number of one, not a {type(replica).__name__}; an input goes to example=")
        if replica is not None and self.replicas is None:
            raise ValueError("there is one model and no stack of replicas: leave replica= out")
        return self.size() if replica is None else self.size()[replica]

    def _groups(self) -> list[SizeReport]:
        """The learned sizes by name, of a learner that has one model and names."""
        return []

    def _whole(self) -> nn.Module:
        """The model that the deployed one is compared with in time; of a stack one."""
        return self.model

    def _budget_used(self) -> str | None:
        """A sentence about how much of the budget the sizes use; None without a budget."""
        return None

    def report(
        self,
        latency: Any = None,
        deployed: nn.Module | None = None,
        score: Callable[[nn.Module], Any] | None = None,
    ) -> Report:
        """Where the sizes stand, and what deployment would leave.

        Args:
            latency: an input (a tuple for several arguments, a dictionary for named ones) on which one call of the
                model, with all components and without gates, and deployed, is timed here.
            deployed: what :meth:`deploy` of a single model gave, if it is there already.
            score: what is to be known of the model, such as its accuracy on held-out data, called with it in eval mode:
                as it is trained (soft), with the gates of what is retained (kept), and as it is deployed (hard).

        >>> import torch, ngn
        >>> learner = ngn.CapacityLearner(ngn.LowRankLinear(torch.nn.Linear(3, 3), ngn.CountGate(4, t0=1.25), 0, "map"))
        >>> learner.report()
        Report(size=[1.25], count=[2], distance=[0.25], parameters=36, deployed=24, milliseconds=None, scores={})
        >>> print(learner.report())
        axis: 4 -> 2 components, -12 parameters (t = 1.25)
        parameters: 36 -> 24 (-33%)
        """
        each = [None] if self.replicas is None else range(self.replicas)
        models = [deployed or self.cut(r, share_frozen=True) for r in each]
        left = [sum(p.numel() for p in model.parameters()) for model in models]
        sizes = sum(p.numel() for p in self.controller_parameters())
        now = sum(p.numel() for p in self.model.parameters()) - sizes
        distance = self._distance()
        return Report(
            self.size().tolist(),
            self.count().tolist(),
            None if distance is None else distance.tolist(),
            now // len(left),
            left[0] if self.replicas is None else left,
            self._groups(),
            None if latency is None else (latency_of(self._whole(), latency), latency_of(models[0], latency)),
            {} if score is None else self._scores(score),
            self._budget_used(),
        )

    @torch.no_grad()
    def _scores(self, score: Callable[[nn.Module], Any]) -> dict[str, Any]:
        """What ``score`` gives for the model in eval mode, in each mode of its gates."""
        scores: dict[str, Any] = {}
        with evaluating(self.model):
            for mode in MODES:
                with self.mode(mode):
                    scores[mode] = score(self.model)
        return scores

    def cut(self, replica: int | None = None, share_frozen: bool = False) -> nn.Module:
        """A copy of the model, in eval mode, with only what is retained and no gates; nothing is checked.

        Args:
            replica: which model of a stack.
            share_frozen: frozen parameters that are not cut are shared with the model, not copied.
        """
        return deploy(self.model, replica, share_frozen)

    def deploy(
        self,
        replica: int | None = None,
        example: Any = None,
        share_frozen: bool = False,
        unsettled: Literal["warn", "allow"] = "warn",
        verbose: bool = False,
    ) -> nn.Module:
        """The model after :meth:`cut`, which has to be one that was trained to be cut there.

        Args:
            replica, share_frozen: see :meth:`cut`.
            example: an input, on which the result has to give what the model gives in mode "hard"; a tuple for several
                arguments, a dictionary for named ones.
            unsettled: "warn" of boundaries that are more than 0.1 from an integer: truncation rounds them, so that what
                is deployed may compute something else than what was trained; and of sizes that were not learned.
            verbose: print :meth:`report`.

        Raises:
            ValueError: if a size is no number, the model cannot be copied faithfully, or the result differs on the
                example.
        """
        if unsettled not in ("warn", "allow"):
            raise ValueError(f"unsettled is 'warn' or 'allow', not {unsettled!r}")
        sizes = self._sizes_of(replica)
        refuse_diverged(sizes)
        small = self.cut(replica, share_frozen)
        if unsettled == "warn":
            distance = self._distance()
            warn_of_unlearned(self.watch)
            warn_of_rounding(sizes, distance if distance is None or replica is None else distance[replica])
        if example is not None:
            with self.mode("hard"):
                check_equal(self.model, small, example, replica)
        if verbose:
            print(self.report(deployed=small if self.replicas is None else None))
        return small
