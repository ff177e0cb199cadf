"""The typed, closed configuration: every legal key, its type and its range.

Nothing here imports torch, so that a configuration is checked before anything heavy is loaded, and so that the table
builder can name a run without a deep-learning framework. Symbols are the paper's: lambda0 is the capacity price,
alpha_max the snapping strength, beta the sharpness of the gates, t the boundary, K the number of candidates.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Field, StrictBool, model_validator

from experiments.blocks import Closed, ConfigError, Count, Fraction, NonNegative, Positive, Whole
from experiments.language.settings import BaseModel
from experiments.methods import METHODS
from experiments.methods.base import Method
from experiments.tasks import COMPONENTS, GATES_OF_TASK, TASKS
from experiments.tasks.settings import Component, TaskSettings
from ngn.schedules import GATE_CUTOFF, Shape

PHASES = ("grown", "fixed", "from_high")
"""The phases of one seed, in the order in which they run; those of ``continue_with`` follow."""

if TYPE_CHECKING:
    TaskConfig = TaskSettings
    GateConfig = Component
    MethodConfig = Method
else:
    TaskConfig = Annotated[Union[tuple(TASKS.values())], Field(discriminator="name")]
    GateConfig = Annotated[Union[tuple(COMPONENTS.values())], Field(discriminator="component")]
    MethodConfig = Annotated[Union[tuple(METHODS.values())], Field(discriminator="name")]


class Schedule(Closed):
    """lambda(p) = lambda0 lambda_shape(p); alpha(p) = max(alpha_max, kappa lambda(p)) alpha_shape(p); beta goes from
    start to end; from ``commit`` on boundaries are integers."""

    lambda0: NonNegative
    lambda0_last: Positive | None = None
    """lambda0 of the last of several groups, geometric from ``lambda0`` at the first; null for the same in all."""
    lambda_shape: Shape
    alpha_max: NonNegative
    alpha_shape: Shape
    kappa: NonNegative = 0.0
    """Snapping strength per price, where that is more than ``alpha_max``."""
    beta_start: Positive
    beta_end: Positive
    beta_shape: Shape
    commit: Fraction | None = None
    """Fraction of training from which every boundary is its nearest integer and gates are 0 or 1; null for never."""


class Train(Closed):
    """Optimisation. Exactly one of ``steps`` and ``epochs`` is given; ``batch: null`` means full batches."""

    steps: Count | None = None
    epochs: Count | None = None
    batch: Count | None = None
    lr: Positive
    lr_shape: Shape
    lr_boundary: Positive
    lr_boundary_shape: Shape = Shape(kind="constant")
    clip: Positive | None = None
    """Largest gradient norm, per model; null for none."""
    clip_scope: Literal["joint", "separate", "body"] = "joint"
    """One norm over body and boundary, one norm for each, or the body's alone."""
    weight_decay: NonNegative = 0.0
    """On all body parameters, never on the boundary: an L2 term (adam), or decoupled from the gradient (adamw)."""
    optimizer: Literal["adam", "adamw"] = "adam"
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """First part of training, in which both rates rise linearly from zero; their shapes follow it."""
    accumulate: Count = 1
    autocast: Literal["none", "bf16"] = "none"

    @model_validator(mode="after")
    def _length(self) -> Train:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError(
                "give the length of training as either train.steps or train.epochs (set the other to null)"
            )
        if self.epochs is not None and self.batch is None:
            raise ValueError("epochs count passes over minibatches: set train.batch, or give train.steps")
        return self

    def steps_on(self, samples: int) -> int:
        """Optimiser steps of a training on so many training samples; an epoch drops its last, incomplete batch."""
        if self.steps is not None:
            return self.steps
        if self.epochs is None or self.batch is None:
            raise ConfigError("a training needs steps, or epochs and a batch size")
        return self.epochs * max(1, samples // min(self.batch, samples) // self.accumulate)


class Seed(Closed):
    """The number from which the data order, the initialisation and the noise of a run are drawn."""

    value: Annotated[int, Field(ge=0, lt=2**31, strict=True), Whole]


class Config(Closed):
    """One run: what it computes (scientific keys) and how it is carried out (the rest; see ``identity.py``)."""

    task: TaskConfig
    model: BaseModel | None = None
    """The pretrained model that is adapted; null for tasks that start from nothing, and in smoke runs."""
    gate: GateConfig
    method: MethodConfig
    schedule: Schedule
    train: Train
    phases: Annotated[list[Literal["grown", "fixed", "from_high"]], Field(min_length=1)]
    continue_with: list[Positive] = Field(default_factory=list)
    """Factors of lambda0: for each, the grown model is trained once more from where it ended (:func:`branch_of`)."""
    seed: Seed
    budget: Literal["paper", "cpu"] = "paper"
    """How much a pretrained model is trained: as the paper says, or what a CPU does in minutes."""
    profile: Literal["full", "smoke"] = "full"

    device: Literal["auto", "cpu", "cuda"] = "auto"
    engine: Literal["auto", "torch", "fused"] = "auto"
    """``fused`` is a compiled kernel; ``auto`` takes it where one fits."""
    threads: Count | None = None
    """Threads of one process; null leaves the choice to torch."""
    results: str | None = None
    """Where records go; null for ``runs/`` (clean full-size runs) or ``scratch/results/`` (all others)."""
    save: Literal["none", "deployed"] = "none"
    """Whether the truncated model of every phase is kept beside the record, as safetensors."""
    logger: Literal["none", "csv", "tensorboard", "wandb"] = "none"
    """Where the curves are written while they are drawn, beside those of the record."""
    tag: Annotated[str, Field(pattern=r"^[\w.+-]{1,40}$")] | None = None
    """A word of one's own that the record keeps, to find runs again."""
    data_root: str | None = None
    """Folder with the data sets; null for $NGN_DATA or the suite's own cache."""
    force: StrictBool = False
    """Run again although a record is present, and replace it."""
    progress: Literal["auto", "always", "never"] = "auto"
    checkpoint_seconds: Positive = 60.0
    allow_many_jobs: StrictBool = False

    @model_validator(mode="after")
    def _fits(self) -> Config:
        fitting = GATES_OF_TASK[self.task.name]
        if self.gate.component not in fitting:
            raise ValueError(
                f"gate={self.gate.component} does not fit task={self.task.name}; "
                f"the gates that fit are: {', '.join(fitting)}"
            )
        self._model_fits()
        if list(self.phases) != [p for p in PHASES if p in self.phases]:
            raise ValueError(f"phases must be distinct and in the order {', '.join(PHASES)}")
        if "grown" not in self.phases and "phases" not in self.method.unused:
            raise ValueError("phases must contain 'grown': the other phases start from its result")
        if len({branch_phase(factor) for factor in self.continue_with}) < len(self.continue_with):
            raise ValueError("continue_with must not name a factor twice")
        self._boundary_fits()
        self._prices_fit()
        if self.gate.order != "geometric" and not self.method.ordered:
            raise ValueError(f"gate.order={self.gate.order} is not for method={self.method.name}")
        for block in (self.method, self.gate, self.task):
            block.check(self)
        return self

    def _model_fits(self) -> None:
        """A pretrained model where the task adapts one; smoke runs have a small one of their own."""
        task, wanted = self.task, self.task.usual_model != "none"
        if self.model is not None and not wanted:
            raise ValueError(f"task={task.name} adapts no pretrained model: leave model= out")
        if self.model is not None and self.profile == "smoke":
            raise ValueError("profile=smoke has a small model of its own: leave model= out")
        if wanted and self.model is None and self.profile == "full":
            raise ValueError(f"task={task.name} adapts a pretrained model: choose one, as in model={task.usual_model}")

    def _boundary_fits(self) -> None:
        """What is asked of a boundary, the method has one for."""
        method = self.method
        if "phases" not in method.unused and not method.has_boundary:
            if self.continue_with:
                raise ValueError(f"method={method.name} pays no price schedule.lambda0 that continue_with could scale")
            if "from_high" in self.phases:
                raise ValueError(
                    f"method={method.name} has no boundary that could start high: leave from_high out of phases"
                )
        if self.schedule.commit is not None and "schedule" not in method.unused and not method.has_boundary:
            raise ValueError(f"method={method.name} has no boundary that schedule.commit could round")
        if "gate.K" in method.unused or all(self.gate.K_of(group) for group in range(self.gate.groups)):
            return
        if not method.grows:
            raise ValueError(f"gate.K=null needs a boundary that advances; method={method.name} needs a preset gate.K")
        reach = self.gate.t0 + self.gate.delta - math.log(GATE_CUTOFF) / self.schedule.beta_start
        if reach >= self.gate.K_max:
            raise ValueError(
                f"gate.K=null allocates {math.floor(reach) + 1} components before the first step, whose gates are open "
                f"at schedule.beta_start; raise gate.K_max, which is {self.gate.K_max}"
            )
        if "from_high" in self.phases:
            raise ValueError("gate.K=null has no high end to start from: leave from_high out of phases")
        if self.train.weight_decay > 0:
            raise ValueError(
                "gate.K=null needs train.weight_decay=0: decay would move components that do not exist yet, "
                "so the result would depend on when they are allocated"
            )

    def _prices_fit(self) -> None:
        """One price per group."""
        last = self.schedule.lambda0_last
        if last is not None and self.gate.groups == 1:
            raise ValueError("schedule.lambda0_last is for models with several boundaries; this one has one")
        if last is not None and self.schedule.lambda0 == 0:
            raise ValueError("prices that change geometrically cannot start at schedule.lambda0=0")
        if last is not None and any(kind.lambda0 is not None for kind in (self.gate.kinds or {}).values()):
            raise ValueError("prices are set by schedule.lambda0_last or by lambda0 in gate.kinds, not by both")


def branch_phase(factor: float) -> str:
    """The name of the phase that continues with ``factor``, without a dot: ``continue_0p1``, ``continue_10``."""
    return f"continue_{factor:g}".replace(".", "p")


def branch_of(config: Config, factor: float) -> Config:
    """The settings of a continuation: those of the run, and ``factor`` times its capacity price lambda0.

    Nothing else changes, alpha_max included, as the paper says of its figure on continued training.
    """
    last = config.schedule.lambda0_last
    prices = {"lambda0": factor * config.schedule.lambda0, "lambda0_last": None if last is None else factor * last}
    schedule = config.schedule.model_copy(update=prices)
    return config.model_copy(update={"schedule": schedule})


MAX_JOBS = 10_000
"""A multirun of more jobs than this needs ``allow_many_jobs=true``."""


def legal_keys(config: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of every key of a composed configuration, blocks included."""
    keys: list[str] = []
    for name, value in config.items():
        keys.append(prefix + name)
        if isinstance(value, dict):
            keys += legal_keys(value, f"{prefix}{name}.")
    return keys


def is_integer(t: float) -> bool:
    """Whether a boundary ends within 0.01 of an integer, as the paper's "integer" column counts it."""
    return abs(t - math.floor(t + 0.5)) < 0.01
