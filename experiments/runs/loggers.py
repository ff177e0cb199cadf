"""Curves while they are drawn (``logger=``): as CSV, for TensorBoard or for Weights & Biases.

Every point that a record's curves keep is given on: loss, task loss, t of every axis, and where there are boundaries
the sharpness and, unless a budget sets them, the scheduled price and snapping strength, of every axis where they
differ. After an interruption the points from before it come first, again.
No training depends on a logger.
"""

from __future__ import annotations

import csv
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor

from experiments.config.identity import run_id, scientific
from experiments.config.schema import Config
from experiments.methods.base import OrderedGroup
from experiments.runs import places
from experiments.runs.stack import Stack
from ngn.schedules import between, shape_at

log = logging.getLogger(__name__)
Row = dict[str, float]
Sink = tuple[Callable[[int, Row], object], Callable[[], object]]
"""What takes (step, row), and what is called at the end."""


def _csv(config: Config, phase: str) -> Sink:
    path = places.model_of(config, phase).with_suffix(".csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    out = path.open("w", newline="", buffering=1)
    writer = csv.writer(out)

    def write(step: int, row: Row) -> None:
        if out.tell() == 0:
            writer.writerow(["step", *row])
        writer.writerow([step, *row.values()])

    return write, out.close


def _tensorboard(config: Config, phase: str) -> Sink:
    from torch.utils.tensorboard import SummaryWriter

    folder = places.SCRATCH / "tensorboard" / run_id(config) / phase
    shutil.rmtree(folder, ignore_errors=True)
    writer = SummaryWriter(str(folder))

    def write(step: int, row: Row) -> None:
        for name, value in row.items():
            writer.add_scalar(name, value, step)

    return write, writer.close


def _wandb(config: Config, phase: str) -> Sink:
    import wandb

    name = run_id(config)
    places.SCRATCH.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        project="ngn", group=name, name=f"{name} {phase}", dir=str(places.SCRATCH), config=scientific(config),
        mode=os.environ.get("WANDB_MODE", "offline"), reinit="create_new",
    )  # fmt: skip
    return lambda step, row: run.log(row, step=step), run.finish


SINKS: dict[str, Callable[[Config, str], Sink]] = {"csv": _csv, "tensorboard": _tensorboard, "wandb": _wandb}


def row_of(config: Config, progress: float, boundary: bool, loss: float, task: float, t: list[float]) -> Row:
    """One point of one run; ``t`` has an entry per axis."""
    row = {"loss": loss, "task": task} | _by_axis("t", t)
    if not boundary:
        return row
    schedule = config.schedule
    row["beta"] = between(schedule.beta_start, schedule.beta_end, schedule.beta_shape, progress)
    if "schedule.lambda0" in config.method.unused:  # the method finds prices of its own
        return row
    stack = Stack((config,))
    paid = schedule.commit is None or progress < schedule.commit
    course = paid * shape_at(schedule.lambda_shape, progress)
    prices = [course * cast(float, OrderedGroup(stack, axis, 0).lambda0) for axis in range(len(t))]
    if len(set(prices)) == 1:
        prices = prices[:1]
    course = paid * shape_at(schedule.alpha_shape, progress)
    strengths = [course * max(schedule.alpha_max, schedule.kappa * price) for price in prices]
    return row | _by_axis("price", prices) | _by_axis("alpha", strengths)


def _by_axis(name: str, values: list[float]) -> Row:
    return {name if len(values) == 1 else f"{name}_{axis}": value for axis, value in enumerate(values)}


@contextmanager
def logged(
    stack: Stack, phase: str, steps: int, boundary: bool, of: Stack | None = None
) -> Iterator[Callable[..., None] | None]:
    """What a trainer is to call with each point (its ``on_point``); None without a logger.

    A logger that fails is given up with a warning, and the training goes on.

    Args:
        of: the runs whose phase it is, where ``stack`` has other prices; what is written has their names.
    """
    kind, sinks = stack.first.logger, list[Sink]()

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as fault:  # whatever a foreign package, or a full disk, comes up with
            log.warning("logger=%s fails (%s: %s); the training goes on without it", kind, type(fault).__name__, fault)
            sinks.clear()

    def point(step: int, loss: Tensor, task: Tensor, t: Tensor) -> None:
        def write() -> None:
            rows = zip(stack.runs, sinks, loss.tolist(), task.tolist(), t.tolist(), strict=True)
            for config, (add, _), *values in rows:
                add(step, row_of(config, step / steps, boundary, *values))

        if sinks:
            guarded(write)

    if kind == "none":
        yield None
        return
    guarded(lambda: sinks.extend([SINKS[kind](config, phase) for config in (of or stack).runs]))
    try:
        yield point
    finally:
        guarded(lambda: [close() for _, close in sinks])
