"""Ways to make a finished module smaller: it is trained, cut to its ``limit``, and trained on.

All methods have the same number of steps, before and after the cut together.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from experiments.core.blocks import ConfigError, NonNegative, NonNegativeInt, Positive
from experiments.core.config import Method
from experiments.core.groups import OrderedGroup

if TYPE_CHECKING:
    from torch import nn

    from experiments.core.config import Config
    from experiments.core.groups import Replicas
    from experiments.core.task import Task
    from ngn.learner import Learner
    from ngn.losses import Loss
    from ngn.methods.base import Capacity

CutPoint = Annotated[float, Field(ge=0, le=1)]
HALF = 0.5
"""Progress at which a method with a penalty cuts."""


class OfModules(Method, ABC):
    """Make a finished module smaller, by its function of the same name in ``cutting.py`` or ``published.py``."""

    has_boundary = False
    of_modules = "only"
    scored: ClassVar[tuple[str, ...]] = ("truncated",)
    unused: ClassVar[tuple[str, ...]] = (
        "schedule",
        "gate.K",
        "train.lr_boundary",
        "train.lr_boundary_shape",
        "train.clip_scope",
        "continue_with",
    )

    def check(self, config: Config) -> None:
        if list(config.phases) != ["grown"]:
            raise ValueError(f"method={self.name} learns no sizes to retrain at: use phases=[grown]")

    def make(self, group: OrderedGroup) -> Capacity:
        raise ConfigError(f"method={self.name} makes a finished module smaller, and this one has ordered components")

    def learner(self, stack: Replicas[Config], task: Task[Any], model: Callable[[], nn.Module]) -> Learner:
        from experiments.methods.pruning import cutting, published

        make = getattr(published if hasattr(published, self.name) else cutting, self.name)
        learner: Learner = make(cutting.ModuleRun(stack.first, task))
        return learner


class Dense(OfModules):
    """Train the whole module."""

    cuts = False
    unused = (*OfModules.unused, "limit")

    name: Literal["dense"]


class AsGiven(OfModules):
    """Score the trained module itself, without training."""

    cuts = False
    unused = (*OfModules.unused, "train", "limit")

    name: Literal["given"]

    def check(self, config: Config) -> None:
        super().check(config)
        if not config.trained and config.profile == "full":
            raise ValueError("method=given scores trained weights: add a model, such as model=resnet20")


class CutOnce(OfModules, ABC):
    """Cut at a progress of the training."""

    at: CutPoint | None = None
    """Progress at which it is cut, 1 for after the last step; null for 0 with trained weights, else for half."""

    def cut_at(self, config: Config) -> float:
        """Return :attr:`at`, or its default for this configuration."""
        return self.at if self.at is not None else 0.0 if config.trained else HALF


class UniformWidth(OfModules):
    """Train a module whose widths are all smaller by one factor, from the start."""

    name: Literal["width"]

    def check(self, config: Config) -> None:
        super().check(config)
        if config.model is not None:
            raise ValueError("method=width trains another module from the start: a given one has one width")


class Even(CutOnce):
    """Cut every size to the same fraction, by index."""

    name: Literal["even"]


class Magnitude(CutOnce):
    """Cut the components of smallest L1 norm, the same fraction of every size; Li et al., arXiv 1608.08710."""

    name: Literal["magnitude"]


class TorchPruning(CutOnce):
    """Cut by Torch-Pruning's group norms, also the residual stream; Fang et al., arXiv 2301.12900."""

    packages = ("torch_pruning",)

    name: Literal["torch_pruning"]
    ranking: Literal["global", "local"] = "global"
    """Rank all sizes together, or take the same fraction of each."""
    sparsity: NonNegative = 0.0
    """Strength of its group sparsity before the cut, as a multiple of its default; 0 for none."""

    def cut_at(self, config: Config) -> float:
        return HALF if self.sparsity and self.at is None else super().cut_at(config)

    @model_validator(mode="after")
    def _has_time(self) -> TorchPruning:
        if self.sparsity and self.at == 0:
            raise ValueError("method.sparsity works before the cut: give method.at, or leave it null")
        return self


class MorphNet(OfModules):
    """Shrink by an L1 norm of batch norm's scales, weighted by cost; cut at half, and widen to the limit.

    Gordon et al., arXiv 1711.06798.
    """

    name: Literal["morphnet"]
    strength: Positive = 1.0


class _Gated(OfModules, ABC):
    """Hard-concrete gates for half of the steps."""

    unused = tuple(key for key in OfModules.unused if not key.startswith("train."))

    strength: Positive = 1.0


class BAR(_Gated):
    """Learn hard-concrete gates under a barrier at a falling budget; cut at half. Lemaire et al., arXiv 1811.09332."""

    name: Literal["bar"]


class ShearedMasks(_Gated):
    """Learn hard-concrete masks whose cost two Lagrange multipliers hold at a target; cut at half.

    Xia et al., arXiv 2310.06694.
    """

    name: Literal["sheared"]


class Wanda(CutOnce):
    """Cut every size to the same fraction by Wanda's score of its units; Sun et al., arXiv 2306.11695."""

    name: Literal["wanda"]


class Minitron(CutOnce):
    """Cut every size to the same fraction by the mean activation of its units.

    Muralidharan et al., arXiv 2407.14679.
    """

    name: Literal["minitron"]


class Gradual(OfModules):
    """Shrink as NGN does under a limit, but to even sizes: no evidence is enough to part."""

    scored = ("truncated", "soft")
    unused = ()
    has_boundary = True

    name: Literal["gradual"]


class EverySize(OfModules):
    """Train one network for every size from the limit to the whole: one size a step, as the leading components."""

    cuts = False  # the record's own scores are those of the whole

    name: Literal["front"]
    members: Annotated[int, Field(ge=2, le=64)] = 7
    """Sizes that training draws from, at even distances in cost."""
    ends: NonNegativeInt = 1
    """How often more than the others the smallest and the largest are drawn."""
    shares: tuple[Annotated[int, Field(ge=1, le=100)], ...] = (25, 40, 50, 60, 75, 100)
    """Costs of the members to score, in percent of the whole module's; those below the limit are left out."""
    teacher: bool = False
    """Whether steps learn the logits of the trained module that was given, too."""
    residual: bool = False
    """Whether the residual stream is a size, too."""

    def check(self, config: Config) -> None:
        super().check(config)
        if self.teacher and not config.trained:
            raise ValueError("method.teacher=true takes the module that was given: add a model, such as model=resnet20")

    def loss(self, config: Config, task: Task[Any]) -> Loss:
        from experiments.methods.pruning.cutting import ModuleRun
        from ngn.losses import Taught

        return Taught(task.loss, ModuleRun(config, task).module().eval()) if self.teacher else task.loss
