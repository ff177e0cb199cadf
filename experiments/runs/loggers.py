"""Log curves during training (``logger=``): to CSV, TensorBoard or Weights & Biases.

A logger gets every point of the record's curves:

- loss, task loss, and t of every axis;
- with boundaries and without a budget: the scheduled sharpness, price and snapping strength, per axis where they
  differ.

After an interruption, the logger gets the earlier points again, first. Training does not depend on a logger.
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

from experiments.config.identity import scientific
from experiments.runs import run_files
from experiments.runs.groups import GroupOfStack
from experiments.runs.run_files import Run
from experiments.runs.stack import Stack
from ngn.schedules import between, shape_at

log = logging.getLogger(__name__)
LogRow = dict[str, float]
Sink = tuple[Callable[[int, LogRow], object], Callable[[], object]]
"""A function that writes (step, row), and one that closes the output."""


def _csv(run: Run, phase: str) -> Sink:
    path = run.model_file(phase).with_suffix(".csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    out = path.open("w", newline="", buffering=1)
    writer = csv.writer(out)

    def write(step: int, row: LogRow) -> None:
        if out.tell() == 0:
            writer.writerow(["step", *row])
        writer.writerow([step, *row.values()])

    return write, out.close


def _tensorboard(run: Run, phase: str) -> Sink:
    from torch.utils.tensorboard import SummaryWriter

    folder = run_files.SCRATCH / "tensorboard" / run.id / phase
    shutil.rmtree(folder, ignore_errors=True)
    writer = SummaryWriter(str(folder))

    def write(step: int, row: LogRow) -> None:
        for name, value in row.items():
            writer.add_scalar(name, value, step)

    return write, writer.close


def _wandb(run: Run, phase: str) -> Sink:
    import wandb

    run_files.SCRATCH.mkdir(parents=True, exist_ok=True)
    board = wandb.init(
        project="ngn", group=run.id, name=f"{run.id} {phase}", dir=str(run_files.SCRATCH),
        config=scientific(run.config), mode=os.environ.get("WANDB_MODE", "offline"), reinit="create_new",
    )  # fmt: skip
    return lambda step, row: board.log(row, step=step), board.finish


SINKS: dict[str, Callable[[Run, str], Sink]] = {"csv": _csv, "tensorboard": _tensorboard, "wandb": _wandb}


def row_of(run: Run, progress: float, boundary: bool, loss: float, task: float, t: list[float]) -> LogRow:
    """Return one point of one run as named values.

    Args:
        progress: training progress in [0, 1].
        boundary: whether the sizes are boundaries.
        t: size per axis.
    """
    row = {"loss": loss, "task": task} | _by_axis("t", t)
    if not boundary or "schedule.lambda0" in run.config.method.unused:  # under a budget schedules have no effect
        return row
    schedule = run.config.schedule
    row["beta"] = between(schedule.beta_start, schedule.beta_end, schedule.beta_shape, progress)
    stack = Stack((run,))
    penalised = schedule.commit is None or progress < schedule.commit
    factor = penalised * shape_at(schedule.lambda_shape, progress)
    prices = [factor * cast(float, GroupOfStack(stack, axis, 0).lambda0) for axis in range(len(t))]
    if len(set(prices)) == 1:
        prices = prices[:1]
    factor = penalised * shape_at(schedule.alpha_shape, progress)
    strengths = [factor * max(schedule.alpha_max, schedule.kappa * price) for price in prices]
    return row | _by_axis("price", prices) | _by_axis("alpha", strengths)


def _by_axis(name: str, values: list[float]) -> LogRow:
    return {name if len(values) == 1 else f"{name}_{axis}": value for axis, value in enumerate(values)}


@contextmanager
def point_logger(
    stack: Stack, phase: str, steps: int, boundary: bool, of: Stack | None = None
) -> Iterator[Callable[..., None] | None]:
    """Yield the function that the trainer calls with each point (its ``on_point``); None without a logger.

    If a logger fails, there is a warning, and training continues without it.

    Args:
        steps: training steps.
        of: the runs that own the phase, if ``stack`` trains them at other prices; the output carries their names.
    """
    kind, sinks = stack.first.logger, list[Sink]()

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as fault:  # any error of the logging package, or of a full disk
            log.warning("logger=%s failed (%s: %s); training continues without it", kind, type(fault).__name__, fault)
            sinks.clear()

    def point(step: int, loss: Tensor, task: Tensor, t: Tensor) -> None:
        def write() -> None:
            rows = zip(stack.runs, sinks, loss.tolist(), task.tolist(), t.tolist(), strict=True)
            for run, (add, _), *values in rows:
                add(step, row_of(run, step / steps, boundary, *values))

        if sinks:
            guarded(write)

    if kind == "none":
        yield None
        return
    guarded(lambda: sinks.extend([SINKS[kind](run, phase) for run in (of or stack).runs]))
    try:
        yield point
    finally:
        guarded(lambda: [close() for _, close in sinks])
