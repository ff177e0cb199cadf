"""Check that this machine can run all jobs, before the first one starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.cli.expand import Job
from experiments.config import rival_target
from experiments.config.run_files import Run
from experiments.core import paths
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.packages import missing, sentence
from experiments.data import DataError, data_root, sets
from experiments.store.provenance import why_not_counted
from ngn.files import storage_fault, temporary_path

LOCAL_LAUNCHERS = tuple(f"hydra/launcher={name}" for name in ("pack", "basic", "joblib"))


def check(jobs: Sequence[Job], tokens: Sequence[str]) -> None:
    """Refuse jobs that cannot run on this machine. Jobs for other launchers, which start elsewhere, are not checked.

    Raises:
        ConfigError: if a device, a compiler, memory or data are missing.
    """
    if any(token.startswith("hydra/launcher=") and token not in LOCAL_LAUNCHERS for token in tokens):
        return
    configs = [job.run.config for job in jobs]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if any(config.model is not None for config in configs):
        from experiments.runs.memory import card_sizes  # imports torch, which a pretrained model needs anyway

        cards = card_sizes()
        for config in configs:
            _pretrained(config, cards, memory)
    for config in configs:
        _memory(config, memory)
    for config in configs:
        check_packages(config)
        rival_target.check_target(config)
    for config in configs:
        _autocast(config)
    if any(config.device == "cuda" or config.engine == "fused" for config in configs):
        for config in configs:
            _engine(config)
    _data(jobs)


def warn_of_uncounted(runs: Iterable[Run]) -> None:
    """Say on stderr, before the training, if no table of the paper will count its full-size records, and why."""
    if why := why_not_counted():
        place = next((run.root for run in runs if run.config.profile == "full"), None)
        if place is not None:
            print(f"note: no table of the paper will count these runs: {why}. Records: {place}", file=sys.stderr)


PROBE = 2**16
"""Bytes that are written, and removed again, to see whether a folder can be written."""


def require_room(jobs: Sequence[Job], tokens: Sequence[str]) -> None:
    """Refuse folders that cannot be written: read-only ones, those of others, and those on a full disk.

    Refuse, too, a folder or a special file in the place of a record, which would stop the run after its training.

    Raises:
        ConfigError: with the folder or the file. Nothing has been started then.
    """
    wanted = {paths.SCRATCH: "NGN_OUTPUT=DIR python run.py ..."}
    for token in tokens:
        key, _, value = token.partition("=")
        if key in ("hydra.run.dir", "hydra.sweep.dir") and "$" not in value:
            wanted[Path(value)] = f"{key}=DIR"
    for job in jobs:
        if os.path.lexists(job.run.path) and not job.run.path.is_file():
            raise ConfigError(f"{job.run.path}: is no regular file; remove it. Another folder: results=DIR")
        if not recorded(job.run):
            wanted |= dict.fromkeys((job.run.root, job.run.path.parent), "results=DIR")
    for folder, other in wanted.items():
        place = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
        probe = temporary_path(place / "probe")
        try:
            try:
                probe.write_bytes(bytes(PROBE))
            finally:
                probe.unlink(missing_ok=True)
        except OSError as fault:
            fault.filename = str(place)
            raise ConfigError(f"{storage_fault(fault) or fault}. Another folder: {other}") from None


CPUINFO = Path("/proc/cpuinfo")
"""Where Linux describes the processor."""
CONTEXT = 2e9
"""Bytes of a card that the context of CUDA and fragmentation take."""


def _pretrained(config: Config, cards: Sequence[int], host: int) -> None:
    """Refuse a run of a pretrained model whose weights and their training state alone exceed the memory.

    Activations come on top: a run that passes may still end for want of memory.

    Args:
        cards: bytes of memory of every GPU.
        host: bytes of memory of this machine.
    """
    model = config.model
    if model is None:
        return
    on_card, eight_bit = bool(cards) and config.device != "cpu", config.train.optimizer == "adamw8bit"
    width, numbers = 2 if model.dtype == "bfloat16" else 4, model.parameters or 0
    needed, saving = width * numbers, "model.dtype=bfloat16"
    if getattr(config.gate, "backbone", "frozen") != "frozen":  # weights and gradients, and two moments
        needed = numbers * (2 * width + 2 if eight_bit else 16)
        saving = "gate.backbone=frozen" if eight_bit else "train.optimizer=adamw8bit or gate.backbone=frozen"
    for size, room, place, verb in (
        (width * numbers, host, "this machine", "loading"),
        (needed, cards[0] - CONTEXT if on_card else host, "the GPU" if on_card else "this machine", "training"),
    ):
        if size > room:
            raise ConfigError(
                f"model={model.name}: {verb} needs at least {size / 1e9:,.1f} GB, but {place} has "
                f"{room / 1e9:,.1f} GB; use {saving}, a smaller model, or more memory"
            )


def _memory(config: Config, there: int) -> None:
    gate, method = config.gate, config.method
    plain = method.sizes(gate)
    alone = [plain] if isinstance(plain, int) else plain
    sizes = [gate.K_of(group) or 0 for group in range(gate.groups)] if alone is None else alone
    samples = 1 if config.profile == "smoke" else config.train.batch or config.task.usual_samples
    needed = 4 * sum(sizes) * gate.numbers(config.task, samples)
    if needed > there:
        key = "gate.K" if alone is None else "method.count"
        raise ConfigError(
            f"{sum(sizes):,} components with open gates need at least {needed / 2**30:,.0f} GiB in training, but this "
            f"machine has {there / 2**30:,.0f} GiB; lower {key}"
        )


def check_packages(config: Config) -> None:
    """Refuse a run whose packages, which are imported only when it starts, are missing.

    Raises:
        ConfigError: with the command that installs them.
    """
    wanted = {
        f"task={config.task.name}": config.task.packages,
        f"method={config.method.name}": config.method.packages,
        "train.optimizer=adamw8bit": ("torchao",) if config.train.optimizer == "adamw8bit" else (),
    }
    for what, modules in wanted.items():
        if (name := missing(*modules)) is not None:
            raise ConfigError(sentence(what, name) or f"{what} needs the package {name}")
    if config.model is not None and config.model.package is not None:
        from experiments.tasks.images.constructed import maker_of  # imports torch, as the model does

        maker_of(config.model)


def _autocast(config: Config) -> None:
    """Refuse bfloat16 on an x86 processor that has no instructions for it, where it is slower than float32."""
    if config.train.autocast != "bf16" or config.profile == "smoke" or not CPUINFO.is_file():
        return
    described = CPUINFO.read_text()
    if "sse2" not in described or "avx512_bf16" in described or "amx_bf16" in described:
        return
    import torch

    if config.device == "cpu" or not torch.cuda.is_available():
        raise ConfigError(
            "train.autocast=bf16: this processor has no instructions for bfloat16 (avx512_bf16, amx_bf16), so a step "
            "would take longer than in float32; remove it, or use a GPU"
        )


def _engine(config: Config) -> None:
    import torch  # imported here: only settings of a device or an engine need it

    cuda = torch.cuda.is_available()
    if config.device == "cuda" and not cuda:
        raise ConfigError("device=cuda: torch finds no CUDA device on this machine; remove device=, or use device=cpu")
    if config.engine == "fused":
        from experiments.models.kernels.libraries import library

        if cuda and config.device != "cpu":
            raise ConfigError("engine=fused: the compiled kernels run on the CPU; add device=cpu")
        assert config.task.kernel is not None  # checked with the configuration
        if library(config.task.kernel) is None:
            raise ConfigError("engine=fused: the kernel cannot be built here (see above); remove engine=")


def data_sets_of(config: Config) -> set[str]:
    """Return the names of the data sets that a run reads, including the files of its pretrained model."""
    if config.profile != "full":
        return set()
    task, model = config.task, config.model
    names = {*task.data_sets.values(), *(() if model is None or model.data is None else (model.data,))}
    return names & set(sets.NAMES)


def _data(jobs: Sequence[Job]) -> None:
    """Refuse jobs without a record whose data are missing. Each data set is looked for once."""
    wanted: dict[tuple[str, str | None], list[Job]] = {}
    for job in jobs:
        for name in data_sets_of(job.run.config):
            wanted.setdefault((name, job.run.config.data_root), []).append(job)
    for (name, configured), group in wanted.items():
        try:
            sets.require_files(name, data_root(configured))
        except DataError as missing:
            if any(not recorded(job.run) for job in group):
                raise ConfigError(str(missing)) from None


def recorded(run: Run) -> bool:
    """Return whether a run has its record, and ``force=true`` does not ask for a new one."""
    return not run.config.force and run.path.is_file()
