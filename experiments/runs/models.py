"""Load trained models that a run saved (``save=deployed``) beside its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

import ngn
from experiments.config.schema import CheckedConfig
from experiments.core.config import Config
from experiments.core.reading import contents_digest, digest
from experiments.core.task import ModuleTask, Task
from experiments.methods.fixed import Fixed, fixed_size
from experiments.methods.pruning.cutting import shaped
from experiments.runs.phases import gated_model
from experiments.runs.stack import Stack
from experiments.store.records import RecordError, read_record
from experiments.tasks import make_task
from ngn.files import FileError


def load_model(record: str | Path, phase: str | None = None, data_root: str | None = None) -> nn.Module:
    """Load the truncated model of one phase of a run; see :func:`load_run`."""
    return load_run(record, phase, data_root)[2]


def load_run(
    record: str | Path, phase: str | None = None, data_root: str | None = None
) -> tuple[Config, Task[Any], nn.Module]:
    """Load a run: its configuration, its task, and the truncated model of one phase, in eval mode, on the CPU.

    Args:
        record: the run's ``<run id>.json``; the model lies beside it as ``<run id>.<phase>.safetensors``.
        phase: "grown", "fixed", "from_high" or a continuation; None for the first phase ("fixed" for plain models).
        data_root: folder of the data sets, which determine the model's shapes; None for the default folder.

    Raises:
        RecordError: if the record or the model is missing or damaged.
        experiments.data.source.DataError: if the data are absent.
    """
    content = read_record(Path(record))
    phase = next(iter(content["phases"])) if phase is None else phase
    file = Path(record).with_suffix(f".{phase}.safetensors")
    if phase not in content["phases"] or not file.exists():
        raise RecordError(f"{file}: no such model; a run saves its models if you add save=deployed")
    _check(file, content["phases"][phase].get("model_sha256"))
    config = CheckedConfig.model_validate({**content["config"], "data_root": data_root})
    counts = content["phases"][phase]["count"]
    if config.gate.K is None:
        config = config.model_copy(update={"gate": config.gate.model_copy(update={"K": max(1, *counts)})})
    task = make_task(config, torch.device("cpu"))
    method = Fixed(name="fixed", count=fixed_size(counts)) if phase == "fixed" else config.method
    try:
        if isinstance(task, ModuleTask):
            model = shaped(task.module(config.seed.value), load_file(file))
        else:
            model = gated_model(method, Stack.of(config), task)
        return config, task, ngn.load(model, file)
    except ValueError as fault:
        raise RecordError(f"{fault}; run it again with save=deployed force=true") from None


def _check(file: Path, recorded: str | None) -> None:
    """Raise a RecordError if a saved model is not the one of its record.

    Records before 2026-11-26 name no digest. Those before 2026-11-28 name that of the file, later ones that of its
    contents.
    """
    again = "run it again with save=deployed force=true"
    try:
        same = recorded in (None, digest(file)) or recorded == contents_digest(file)
    except OSError as fault:
        raise RecordError(f"{file}: unreadable ({fault.strerror}); remove it, and {again}") from None
    except FileError:
        same = False
    if not same:
        raise RecordError(f"{file}: changed or damaged, its SHA-256 is not that of the record; {again}")
