"""A training that is cut on its way, and the methods without a package or paper of their own."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import ngn
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.task import ModuleTask, Task
from experiments.methods.pruning import HALF, CutOnce
from ngn.learner.shrinking import Averages, Optimizers
from ngn.measuring import multiply_adds
from ngn.methods.fixed import Retained

STEP, COARSE = 512, 64
"""Widths and kept fractions are multiples of 1 / STEP; the search begins with multiples of COARSE / STEP."""
CALIBRATION = 8
"""Batches of the training from which an order by data is computed."""
FEW = 4
"""A size of at most so many components, such as heads, is cut to a number of them, not to a fraction."""


class ModuleRun:
    """One run: its module, its data and its limit, as the methods use them.

    Attributes:
        seed: the seed of the run.
        limit: what the finished module may cost, in :attr:`kind`; None without a limit.
    """

    def __init__(self, config: Config, task: Task[Any]) -> None:
        assert isinstance(task, ModuleTask)
        self.config, self.task, self.seed = config, task, config.seed.value
        batch = task.timed_batch()[0]
        self.example: Tensor = batch[: config.train.batch]
        self.kind, self.limit, value = config.limit.kind, None, config.limit.value
        if self.kind is not None and value is not None:
            most = self.cost(self.module())
            self.limit = value if isinstance(value, int) else self.part(float(value[:-1]), most)
            if self.limit > most:
                raise ConfigError(f"limit.{self.kind}={value} limits nothing: the whole module has {most:,}")

    def part(self, share: float, most: int) -> int:
        """A share, in percent, of the cost of a module that costs ``most``, without what no size reaches."""
        outside = self.task.outside if self.kind == "parameters" else 0
        return outside + int((most - outside) * share / 100)

    def module(self, width: float = 1.0) -> nn.Module:
        """Return the module that the training begins with; at width 1 it is the same for every method."""
        return self.task.module(self.seed, width).to(self.example.device)

    def cost(self, module: nn.Module) -> int:
        """Count the limited quantity: parameters, or multiply-adds of one sample. Leave the module in eval mode."""
        return cost_of(module.eval(), self.kind or "parameters", self.example[:1])

    @property
    def within(self) -> int:
        """The limit of a method that needs one."""
        assert self.limit is not None, "the configuration is checked"
        return self.limit

    def ordering(self, by_importance: Any) -> dict[str, Any]:
        """Arguments of ``ngn.learn_sizes`` for an order; one by data reads the first training batches."""
        if by_importance in (None, "magnitude"):
            return {"by_importance": by_importance}
        return {"by_importance": by_importance, "calibration": self.calibration()}

    def calibration(self) -> list[Tensor]:
        """The inputs of the first training batches of seed 0, for orders by data."""
        batches = self.task.batches(self.config.train, 0)
        return [batches.at(number)[0] for number in range(CALIBRATION)]


def cost_of(module: nn.Module, kind: str, example: Any) -> int:
    """Count the parameters of a module, or its multiply-adds on an example."""
    if kind == "parameters":
        return sum(p.numel() for p in module.parameters())
    with torch.no_grad():
        return multiply_adds(lambda: module(example))


class Staged(ngn.Learner):
    """Train a module; at a progress, cut it; train what is left.

    The optimiser begins anew after the cut, as the tensors are others.

    Args:
        work: the run.
        model: the module, or a learner of it whose gates are learned until the cut.
        cut: the module at the time of the cut → the smaller module.
        at: progress of the cut; 0 cuts at once.

    Attributes:
        pressure: fraction of the steps until the cut → a term of the loss until then; None for none.
        regularise: changes the gradients until the cut; None for nothing.
    """

    def __init__(
        self,
        work: ModuleRun,
        model: nn.Module,
        cut: Callable[[nn.Module], nn.Module] = lambda module: module,
        at: float = 0.0,
    ) -> None:
        super().__init__(model, axes=())  # those of a learner within are its own
        self.work, self.at, self._cut = work, at, cut
        self.pressure: Callable[[float], Tensor] | None = None
        self.regularise: Callable[[], Any] | None = None
        self._progress, self._small = 0.0, False
        if at == 0:
            self._replace(cut(model))

    def _replace(self, small: nn.Module) -> None:
        self.model, self._small = small.train(self.training), True
        self.pressure = self.regularise = None

    @property
    def _gated(self) -> ngn.Learner | None:
        return self.model if isinstance(self.model, ngn.Learner) else None

    def count(self) -> Tensor:
        module: Any = self.model if self._gated is None else self._gated.model
        return torch.tensor(self.work.task.counts(module))

    def controller_parameters(self) -> list[nn.Parameter]:
        return [] if self._gated is None else self._gated.controller_parameters()

    def set_progress(self, progress: float) -> None:
        self._progress = progress

    def before_step(self, step: int | None) -> None:
        if self._gated is not None:
            self._gated.before_step(step)

    def penalty(self) -> Tensor:
        return super().penalty() if self.pressure is None else self.pressure(self._progress / self.at)

    def after_backward(self, step: int) -> None:
        if self.regularise is not None:
            self.regularise()

    def after_step(self, step: int) -> None:
        if self._gated is not None:
            self._gated.after_step(step)

    def shrink(self, optimizer: Optimizers = None, averages: Averages = ()) -> bool:
        if self._small or self._progress < self.at:
            return False
        self._replace(self._cut(self.model))
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer.state.clear()
            body, *others = optimizer.param_groups
            body["params"] = self.body_parameters()
            for group in others:
                group["params"] = []
        return True

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"small": torch.tensor(self._small)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        if bool(tensors["small"]) and not self._small:
            state = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
            self._replace(shaped(self.work.module(), state))
        super().restore(tensors)


SHAPE: dict[type[Any], tuple[str, ...]] = {
    nn.Linear: ("out_features", "in_features"),
    nn.Conv2d: ("out_channels", "in_channels"),
    nn.Embedding: ("num_embeddings", "embedding_dim"),
    nn.BatchNorm2d: ("num_features",),
}
"""Kind of layer → its attributes that are the first lengths of its weight."""


def shaped(module: nn.Module, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Give the parameters and buffers of ``module`` the shapes of ``tensors``, by name."""
    part: Any
    for name, part in module.named_modules():
        for own, value in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            wanted = tensors[f"{name}.{own}".lstrip(".")]
            if wanted.shape != value.shape:
                empty = torch.empty_like(wanted, device=value.device)
                setattr(part, own, nn.Parameter(empty) if isinstance(value, nn.Parameter) else empty)
        if isinstance(part, nn.Conv2d) and part.groups == part.out_channels > 1:  # a filter for each channel
            part.groups = part.in_channels = part.out_channels = len(part.weight)
            continue
        for kind, attributes in SHAPE.items():
            if isinstance(part, kind):
                for attribute, length in zip(attributes, part.weight.shape, strict=False):
                    setattr(part, attribute, length)
        if isinstance(part, nn.LayerNorm):
            part.normalized_shape = tuple(part.weight.shape)
    return module


def dense(work: ModuleRun) -> Staged:
    """Train the whole module."""
    return Staged(work, work.module())


def given(work: ModuleRun) -> Staged:
    """Train nothing."""
    return Staged(work, work.module().requires_grad_(False))


def width(work: ModuleRun) -> Staged:
    """Train a module whose widths are all smaller by one factor."""
    return Staged(work, work.module(largest(lambda part: work.cost(work.module(part)), work.within)))


def at_the_cut(work: ModuleRun, cut: Callable[[nn.Module], nn.Module]) -> Staged:
    """Train the module, cut it at the progress of the method, train on."""
    method = work.config.method
    at = method.cut_at(work.config) if isinstance(method, CutOnce) else HALF
    return Staged(work, work.module(), cut, at)


def even(work: ModuleRun) -> Staged:
    """Cut every size to the same fraction, by index."""
    return at_the_cut(work, lambda module: cut_evenly(work, module))


def magnitude(work: ModuleRun) -> Staged:
    """Cut the components of smallest L1 norm. The sizes are those that NGN learns."""

    def cut(module: nn.Module) -> nn.Module:
        learner = retained(work, module)
        norms = {
            name: sum(part.detach().abs().flatten(1).sum(1) for part in axis.component_parameters())
            for name, axis in zip(learner.names, learner.axes, strict=True)
        }
        return cut_evenly(work, module, falling(norms))

    return at_the_cut(work, cut)


def learned(work: ModuleRun, significance: float = 3.0) -> ngn.Learner:
    """Learn the sizes with the weights, within the limit, by the library."""
    limit: Any = {str(work.kind): work.within}
    budget = ngn.Budget(**limit, example=work.example[:1], significance=significance)
    return _sized(work, budget, work.config.gate.K, commit=work.config.schedule.commit)


def front(work: ModuleRun) -> ngn.Learner:
    """Train every size from the limit to the whole, by the library; all sizes are cut to one fraction."""
    method: Any = work.config.method
    front: Any = {str(work.kind): work.within, "members": method.members, "ends": method.ends}
    front["residual"] = method.residual
    return _sized(work, ngn.Front(**front, example=work.example[:1], significance=math.inf), None)


def _sized(work: ModuleRun, budget: Any, K: int | None, **gate: Any) -> ngn.Learner:
    module, order = work.module(), work.ordering(work.task.by_importance)
    try:
        return ngn.learn_sizes(module, work.task.sizes(module, K), budget=budget, example=work.example, **order, **gate)
    except ValueError as out_of_reach:
        raise ConfigError(f"limit.{work.kind}: {out_of_reach}") from None


def gradual(work: ModuleRun) -> ngn.Learner:
    """Shrink as NGN does, but to even sizes: no evidence is enough to part."""
    return learned(work, math.inf)


def of_counts(work: ModuleRun, counts: Sequence[int]) -> Staged:
    """Train a module that is cut to counts at once, in the order in which NGN learns its sizes."""
    keeper = retained(work, work.module(), by_importance=work.task.by_importance, K=work.config.gate.K)
    if len(counts) != len(keeper.axes):
        raise ConfigError(f"method.count has {len(counts)} entries, but this module has {len(keeper.axes)} sizes")
    return Staged(work, kept(keeper, counts))


def falling(scores: Mapping[str, Any]) -> Callable[[str, int], list[int]]:
    """Return the order of each size: its components by falling score, [K]."""
    return lambda name, K: scores[name].argsort(descending=True).tolist()


def retained(
    work: ModuleRun, module: nn.Module, order: Any = None, by_importance: Any = None, K: int | None = None
) -> Any:
    """Copy ``module`` and make its sizes cuttable to a prefix of ``order``, or of the order of importance."""
    clone, more = copy.deepcopy(module), work.ordering(by_importance)
    sizes = work.task.sizes(clone, K, order)
    return ngn.learn_sizes(clone, sizes, example=work.example, capacity=lambda name, K: Retained(K), **more)


def kept(learner: Any, counts: Sequence[int]) -> nn.Module:
    """Cut a learner of :func:`retained` to the first ``counts`` components of its sizes, at least one of each."""
    for axis, count in zip(learner.axes, counts, strict=True):
        axis.capacity.left.fill_(max(1, count))
    small: nn.Module = learner.deploy(unsettled="allow")
    return small


def cut_evenly(work: ModuleRun, module: nn.Module, order: Any = None, by_importance: Any = None) -> nn.Module:
    """Cut each size of ``module`` to the same fraction, the first of an order, within the limit.

    A module has few heads. Of their numbers, the one counts whose fraction is nearest to the units' that then fit.
    """
    learner = retained(work, module, order, by_importance)
    lengths = [axis.K for axis in learner.axes]

    def cut(part: float, few: int) -> nn.Module:
        return kept(learner, [round(part * K) if K > FEW else few for K in lengths])

    def of_units(few: int) -> float:
        return largest(lambda part: work.cost(cut(part, few)), work.within)

    parts = {few: of_units(few) for few in (range(1, FEW + 1) if min(lengths) <= FEW else [FEW])}
    apart = {few: abs(math.log(part * FEW / few)) for few, part in parts.items() if part > 0}
    if not apart:
        raise ConfigError(f"limit.{work.kind}={work.config.limit.value} is below one component of every size")
    nearest = min(apart, key=lambda few: apart[few])
    return cut(parts[nearest], nearest)


def largest(count: Callable[[float], int], limit: int) -> float:
    """Return the largest fraction n / STEP whose count is at most ``limit``; the count grows with n.

    It may fall again at small fractions: a pruner that may not empty a size then cuts none of it.
    """
    low = next((n for n in range(STEP, 0, -COARSE) if count(n / STEP) <= limit), 0)
    high = min(low + COARSE, STEP + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle / STEP) <= limit else (low, middle)
    return low / STEP
