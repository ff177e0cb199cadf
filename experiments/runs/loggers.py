"""Log curves during training (``logger=``): to CSV, TensorBoard, Weights & Biases or MLflow.

A logger gets the points of the record's curves: loss, task loss, and t of every axis. After an interruption, it gets
the earlier points again, first. Training does not depend on a logger.
"""

from __future__ import annotations

import csv
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from torch import Tensor

from experiments.config import identity
from experiments.config.identity import Run, flatten, scientific
from experiments.runs.stack import Stack

log = logging.getLogger(__name__)
Sink = Callable[[int, dict[str, float]], object]
"""What takes the numbers of a step."""


def _csv(run: Run, phase: str, ends: ExitStack) -> Sink:
    path = run.model_file(phase).with_suffix(".csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    out = ends.enter_context(path.open("w", newline="", buffering=1))

    def write(step: int, row: dict[str, float]) -> None:
        writer = csv.DictWriter(out, ["step", *row])
        if out.tell() == 0:
            writer.writeheader()
        writer.writerow({"step": step, **row})

    return write


def _tensorboard(run: Run, phase: str, ends: ExitStack) -> Sink:
    from torch.utils.tensorboard import SummaryWriter

    folder = identity.SCRATCH / "tensorboard" / run.id / phase
    shutil.rmtree(folder, ignore_errors=True)
    writer = ends.enter_context(closing(SummaryWriter(str(folder))))
    return lambda step, row: list(map(writer.add_scalar, row, row.values(), [step] * len(row)))


def _wandb(run: Run, phase: str, ends: ExitStack) -> Sink:
    import wandb

    board = wandb.init(
        project="ngn", group=run.id, name=f"{run.id} {phase}", dir=str(identity.SCRATCH),
        config=scientific(run.config), mode=os.environ.get("WANDB_MODE", "offline"), reinit="create_new",
    )  # fmt: skip
    ends.callback(board.finish)
    return lambda step, row: board.log(row, step=step)


def _mlflow(run: Run, phase: str, ends: ExitStack) -> Sink:
    import mlflow

    client = mlflow.MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{identity.SCRATCH}/mlflow.db"))
    known = client.get_experiment_by_name("ngn")
    place = client.create_experiment("ngn") if known is None else known.experiment_id
    name = client.create_run(place, run_name=f"{run.id} {phase}").info.run_id
    for key, value in flatten(scientific(run.config)).items():
        client.log_param(name, key, value)
    ends.callback(client.set_terminated, name)
    return lambda step, row: [client.log_metric(name, key, value, step=step) for key, value in row.items()]


SINKS = {"csv": _csv, "tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow}


@contextmanager
def point_logger(stack: Stack, phase: str) -> Iterator[Callable[..., None]]:
    """Yield the function that the trainer calls with each point (its ``on_point``).

    If a logger fails, there is a warning, and training continues without it.

    Args:
        stack: the runs that own the phase; the output carries their names.
    """
    kind, ends = stack.first.logger, ExitStack()
    sinks: list[Sink] = []

    def guarded(work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as fault:  # any error of the logging package, or of a full disk
            log.warning("logger=%s failed (%s: %s); training continues without it", kind, type(fault).__name__, fault)
            sinks.clear()

    def point(step: int, loss: Tensor, task: Tensor, t: Tensor) -> None:
        for sink, *values, sizes in zip(list(sinks), loss.tolist(), task.tolist(), t.tolist(), strict=False):
            row = dict(zip(("loss", "task"), values, strict=True))
            row |= {"t" if len(sizes) == 1 else f"t_{axis}": size for axis, size in enumerate(sizes)}
            guarded(partial(sink, step, row))

    guarded(lambda: identity.SCRATCH.mkdir(parents=True, exist_ok=True))
    guarded(lambda: sinks.extend([SINKS[kind](run, phase, ends) for run in stack.runs]))
    try:
        yield point
    finally:
        guarded(ends.close)
