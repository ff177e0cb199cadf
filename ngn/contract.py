"""The learner: a model with learned sizes, as the trainer sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from ngn.checks import is_frozen, tensors_of
from ngn.comparison import check_equal
from ngn.sized import Sized
from ngn.watching import LoopWatch, refuse_diverged, warn_of_rounding, warn_of_unlearned

Optimizers = Optimizer | Sequence[Optimizer] | None
Average = nn.Module | dict[str, Any]
Averages = Average | Sequence[Average]


class Learner(Sized):
    """Base class of everything that the trainer can train: a model and the hooks that learn its sizes.

    The trainer calls the hooks in this order:

    - once: :meth:`prepare`;
    - in every step: :meth:`set_progress`, :meth:`before_step`, :meth:`make_room`, the forward and backward passes with
      :meth:`penalty` and :meth:`activity_penalty`, :meth:`after_backward`, the optimiser's step, :meth:`after_step`;
    - once: :meth:`finish`.

    Override only the hooks that you need. Parameters and persistent buffers of the learner go into checkpoints, as
    those of ``model`` do. In shapes, ``*R`` is nothing or one replica axis, and G the number of learned sizes.

    >>> import torch, ngn
    >>> class Rank(ngn.Learner):  # the largest singular values of a matrix
    ...     def count(self): return (torch.linalg.svdvals(self.model.weight) > 1e-3).sum(-1, keepdim=True)
    >>> Rank(torch.nn.Linear(3, 3)).count()
    tensor([3])
    """

    also: Mapping[str, Sequence[Any]] = MappingProxyType({})
    """Further inputs on which :meth:`deploy` compares, by the method that takes them."""
    watch: LoopWatch | None = None
    """Notes on what the training loop did with the sizes; None if the learner takes none."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self._frozen: tuple[list[tuple[Any, ...]], Tensor] | None = None
        self._steps, self._checked = 0, False

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

    def activity_penalty(self) -> Tensor | None:
        """A penalty on activations of the last forward pass, [*R]; None if there is none."""
        return None

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

    def step(self, progress: float, optimizer: Optimizers = None, averages: Averages = ()) -> None:
        """Run the hooks between two steps. In your own loop, call it after each ``optimizer.step()``.

        Keep the gradients until then. Your loop also adds :meth:`penalty` to every loss, and gives the optimiser
        ``learner.parameters()``, with a higher learning rate for :meth:`controller_parameters`.

        Args:
            progress: fraction of the training that is done, in (0, 1]; 1 after the last step.
            optimizer: the optimiser, or a list of all. If given, :meth:`shrink` cuts fixed sizes in place, so that
                later steps cost what those of the small model do. Without it they are masked. It has no effect in a
                group of several processes.
            averages: see :meth:`shrink`.

        Raises:
            ValueError: if components must be allocated (only ``ngn.fit`` can do that).

        Warns:
            UserWarning: in the first step, of sizes that stay masked although an optimiser is given.

        >>> import torch, ngn
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        >>> x = torch.randn(64, 2)
        >>> learner = ngn.learn_sizes(model, {"": ngn.Width(8)}, example=x, lambda0=0.1)
        >>> optimizer = torch.optim.Adam(learner.parameters(), lr=0.1)
        >>> for n in range(100):
        ...     loss = (learner(x) - x[:, :1]).square().mean() + learner.penalty()
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        ...     learner.step((n + 1) / 100, optimizer)
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
        self.load_state_dict({name: tensors[name] for name in moving}, strict=False)

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
