"""The closed configuration: all tasks, components and methods, and the checks that their settings fit together.

``experiments/core`` and the settings classes of methods, tasks and components define every key with its type and
range. This module imports no torch: a configuration is checked before slow imports, and tables compute run ids without
torch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from experiments.core.config import Component, Config, Method, TaskSettings
from experiments.methods import METHODS
from experiments.tasks import COMPONENTS, GATES_OF_TASK, TASKS
from ngn.schedules import GATE_CUTOFF

PHASES = ("grown", "fixed", "from_high")
"""The phases of one seed, in the order in which they run. The phases of ``continue_with`` follow."""

if TYPE_CHECKING:
    TaskConfig = TaskSettings
    GateConfig = Component
    MethodConfig = Method
else:
    TaskConfig = Annotated[Union[tuple(TASKS.values())], Field(discriminator="name")]
    GateConfig = Annotated[Union[tuple(COMPONENTS.values())], Field(discriminator="component")]
    MethodConfig = Annotated[Union[tuple(METHODS.values())], Field(discriminator="name")]


class CheckedConfig(Config):
    """A configuration with an existing task, component and method, and with settings that fit together."""

    model_config = ConfigDict(title="Config")  # the name in pydantic's messages

    task: TaskConfig
    gate: GateConfig
    method: MethodConfig

    @model_validator(mode="after")
    def _fits(self) -> CheckedConfig:
        fitting = GATES_OF_TASK[self.task.name]
        if self.gate.component not in fitting:
            raise ValueError(
                f"gate={self.gate.component} does not fit task={self.task.name}; "
                f"the gates that fit are: {', '.join(fitting)}"
            )
        self._model_fits()
        self._limit_fits()
        if list(self.phases) != [p for p in PHASES if p in self.phases]:
            raise ValueError(f"phases must be distinct and in the order {', '.join(PHASES)}")
        if "grown" not in self.phases and "phases" not in self.method.unused:
            raise ValueError("phases must contain 'grown': the other phases start from its result")
        if len({branch_phase(factor) for factor in self.continue_with}) < len(self.continue_with):
            raise ValueError("continue_with must not contain a factor twice")
        self._boundary_fits()
        self._prices_fit()
        if self.gate.order != "geometric" and not self.method.ordered:
            raise ValueError(f"method={self.method.name} does not support gate.order={self.gate.order}: remove it")
        for block in (self.method, self.gate, self.task):
            block.check(self)
        return self

    def _model_fits(self) -> None:
        """Check that there is a pretrained model if and only if the task adapts one. Smoke runs have a built-in one."""
        task, wanted = self.task, self.task.usual_model != "none"
        if self.model is not None and not wanted and not self.gate.given:
            raise ValueError(f"task={task.name} adapts no pretrained model: remove model=")
        if self.model is not None and self.model.package is not None:
            if self.gate.component != "channels":
                raise ValueError(f"model={self.model.name} makes classifiers of images: use task=cifar10 gate=channels")
        elif self.model is not None and self.profile == "smoke":
            raise ValueError("profile=smoke has its own small model: remove model=")
        if wanted and self.model is None and self.profile == "full":
            raise ValueError(f"task={task.name} adapts a pretrained model: add one, such as model={task.usual_model}")

    def _limit_fits(self) -> None:
        """Check that a limit on the finished model is given if and only if the task hands over a module."""
        method, gate, limit = self.method, self.gate, self.limit
        if not gate.given:
            if method.of_modules == "only":
                fitting = ", ".join(name for name, part in COMPONENTS.items() if part.given)
                raise ValueError(
                    f"method={method.name} makes a finished module smaller, and gate={gate.component} has none: use "
                    f"one of gate={fitting}"
                )
            if limit.kind is not None:
                raise ValueError(
                    f"limit.{limit.kind} is for finished modules, and gate={gate.component} has none: use "
                    f"method=budget method.{limit.kind}={limit.value}"
                )
            return
        if method.of_modules == "no":
            fitting = ", ".join(name for name, part in METHODS.items() if part.of_modules != "no")
            raise ValueError(
                f"method={method.name} does not fit gate={gate.component}, a finished module; the methods that fit "
                f"are: {fitting}"
            )
        if "from_high" in self.phases or self.continue_with:
            raise ValueError(f"gate={gate.component} has no price: remove from_high from phases, and continue_with")
        if limit.parameters is not None and limit.macs is not None:
            raise ValueError("a limit is one of limit.parameters and limit.macs: set the other to null")
        if isinstance(limit.value, str) and float(limit.value[:-1]) > 100:
            raise ValueError(f"limit.{limit.kind}={limit.value} limits nothing: give at most 100%")
        if method.cuts and limit.kind is None:
            raise PydanticCustomError(
                "incomplete", "a smaller module needs its size: add limit.macs=50% or limit.parameters=50%"
            )

    def _boundary_fits(self) -> None:
        """Check that the method has a boundary if a setting needs one."""
        method = self.method
        if "phases" not in method.unused and not method.has_boundary:
            if self.continue_with:
                raise ValueError(
                    f"method={method.name} has no price schedule.lambda0 that continue_with could scale: remove "
                    "continue_with"
                )
            if "from_high" in self.phases:
                raise ValueError(
                    f"method={method.name} has no boundary that could start high: remove from_high from phases"
                )
        if self.schedule.commit is not None and "schedule" not in method.unused and not method.has_boundary:
            raise ValueError(
                f"method={method.name} has no boundary that schedule.commit could round: remove schedule.commit"
            )
        if "gate.K" in method.unused or all(self.gate.K_of(group) for group in range(self.gate.groups)):
            return
        if not method.grows:
            raise ValueError(f"gate.K=null needs a boundary that advances; method={method.name} needs a preset gate.K")
        reach = self.gate.t0 + self.gate.delta - math.log(GATE_CUTOFF) / self.schedule.beta_start
        if reach >= self.gate.K_max:
            raise ValueError(
                f"gate.K=null allocates {math.floor(reach) + 1} components before the first step, because their gates "
                f"are open at schedule.beta_start; raise gate.K_max, which is {self.gate.K_max}"
            )
        if "from_high" in self.phases:
            raise ValueError("gate.K=null has no high end to start from: remove from_high from phases")
        if self.train.weight_decay > 0:
            raise ValueError(
                "gate.K=null needs train.weight_decay=0: weight decay changes a component from its allocation on, "
                "so the result would depend on the time of allocation"
            )

    def _prices_fit(self) -> None:
        """Check that every group has exactly one price."""
        last = self.schedule.lambda0_last
        if last is not None and self.gate.groups == 1:
            raise ValueError("schedule.lambda0_last needs a model with several boundaries; this model has one")
        if last is not None and self.schedule.lambda0 == 0:
            raise ValueError("schedule.lambda0=0 cannot start prices that change geometrically: use a value above 0")
        if last is not None and any(kind.lambda0 is not None for kind in (self.gate.kinds or {}).values()):
            raise ValueError("both schedule.lambda0_last and lambda0 in gate.kinds set prices: remove one of them")


def branch_phase(factor: float) -> str:
    """Return the name of the phase that continues with ``factor``, without a dot: ``continue_0p1``, ``continue_10``."""
    return f"continue_{factor:g}".replace(".", "p")


def branch_of(config: Config, factor: float) -> Config:
    """Return the settings of a continuation: those of the run with ``factor`` times its price lambda0.

    All other settings stay the same, including alpha_max, as in the paper's figure on continued training.
    """
    last = config.schedule.lambda0_last
    prices = {"lambda0": factor * config.schedule.lambda0, "lambda0_last": None if last is None else factor * last}
    schedule = config.schedule.model_copy(update=prices)
    return config.model_copy(update={"schedule": schedule})


MAX_JOBS = 10_000
"""A multirun with more jobs needs ``allow_many_jobs=true``."""


def legal_keys(config: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted names of every key of a composed configuration, including blocks."""
    keys: list[str] = []
    for name, value in config.items():
        keys.append(prefix + name)
        if isinstance(value, dict):
            keys += legal_keys(value, f"{prefix}{name}.")
    return keys


def is_integer(t: float) -> bool:
    """Return whether a final boundary is within 0.01 of an integer, as in the paper's "integer" column."""
    return abs(t - math.floor(t + 0.5)) < 0.01
