"""The closed configuration: the tasks, components and methods that there are, and what fits together.

Every key stands with its type and range in ``experiments/contract``, or in the settings class of a method, a task or a
component. Nothing here imports torch, so that a configuration is checked before anything heavy is loaded, and so that
the table builder can name a run without a deep-learning framework.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import ConfigDict, Field, model_validator

from experiments.contract.config import Component, Config, Method, TaskSettings
from experiments.methods import METHODS
from experiments.tasks import COMPONENTS, GATES_OF_TASK, TASKS
from ngn.schedules import GATE_CUTOFF

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


class CheckedConfig(Config):
    """A configuration of a task, component and method that there are, and whose blocks fit together."""

    model_config = ConfigDict(title="Config")  # what pydantic's own messages call it

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
