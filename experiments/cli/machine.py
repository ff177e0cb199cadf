"""Check that this machine can train runs, before the first one starts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from experiments.config.identity import Run
from experiments.config.rival_target import check_target
from experiments.core import paths
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.packages import missing, sentence
from experiments.core.pretrained import BaseModel
from experiments.core.reading import storage_fault
from experiments.data import DataError, data_root, sets
from experiments.store.provenance import why_not_counted
from ngn.files import temporary_path

LOCAL_LAUNCHERS = tuple(f"hydra/launcher={name}" for name in ("pack", "basic", "joblib"))


def check(runs: Sequence[Run], tokens: Sequence[str]) -> None:
    """Refuse all that this machine cannot train, with one ConfigError. Runs of other launchers start elsewhere."""
    if any(token.startswith("hydra/launcher=") and token not in LOCAL_LAUNCHERS for token in tokens):
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    named = {(name, run.config.data_root): None for run in runs for name in data_sets_of(run.config)}
    faults = faults_of(
        *(partial(one, run.config) for run in runs for one in (partial(_memory, memory), check_packages, _device)),
        *(partial(sets.require_files, name, data_root(root)) for name, root in named),
    )
    if faults:
        raise ConfigError("\n".join(faults))
    _sizes(runs)


def faults_of(*checks: Callable[[], object]) -> list[str]:
    """Make every check, and return what each refused, once."""
    faults: dict[str, None] = {}
    for check in checks:
        try:
            check()
        except (ConfigError, DataError) as fault:
            faults[str(fault)] = None
    return [*faults]


def warn_of_uncounted(runs: Iterable[Run]) -> None:
    """Say on stderr, before the training, if no table of the paper will count its full-size records, and why."""
    place = next((run.root for run in runs if run.config.profile == "full"), None)
    if place is not None and (why := why_not_counted()):
        print(f"note: no table of the paper will count these runs: {why}. Records: {place}", file=sys.stderr)


def require_room(runs: Sequence[Run], tokens: Sequence[str]) -> None:
    """Refuse folders that cannot be written: read-only ones, those of others, and those on a full disk.

    Refuse, too, a folder or a special file in the place of a record, which would stop the run after its training.

    Raises:
        ConfigError: with the folder or the file. Nothing has been started then.
    """
    wanted = {paths.SCRATCH: "NGN_OUTPUT=DIR python run.py ..."}
    for key, _, value in (token.partition("=") for token in tokens):
        if key in ("hydra.run.dir", "hydra.sweep.dir") and "$" not in value:
            wanted[Path(value)] = f"{key}=DIR"
    for run in runs:
        if os.path.lexists(run.path) and not run.path.is_file():
            raise ConfigError(f"{run.path}: is no regular file; remove it. Another folder: results=DIR")
        wanted |= dict.fromkeys((run.root, run.path.parent), "results=DIR")
    for folder, other in wanted.items():
        place = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
        probe = temporary_path(place / "probe")
        try:
            try:
                probe.write_bytes(bytes(2**16))  # a full disk takes an empty file
            finally:
                probe.unlink(missing_ok=True)
        except OSError as fault:
            fault.filename = str(place)
            raise ConfigError(f"{storage_fault(fault) or fault}. Another folder: {other}") from None


CPUINFO = Path("/proc/cpuinfo")
"""Where Linux describes the processor."""
CONTEXT = 2e9
"""Bytes of a card that the context of CUDA and fragmentation take."""


def _pretrained(config: Config, model: BaseModel, cards: Sequence[int], host: int) -> None:
    """Refuse a run of a pretrained model whose weights and their training state alone exceed the memory.

    Activations come on top: a run that passes may still end for want of memory. ``cards`` are the bytes of every GPU,
    ``host`` those of this machine.
    """
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


def _memory(there: int, config: Config) -> None:
    """Refuse weights and components beyond the memory, absent models, and rivals of another model."""
    if (model := config.model) is not None:
        from experiments.runs.training import card_sizes  # imports torch, which a pretrained model needs anyway

        _pretrained(config, model, card_sizes(), there)
        if model.path is not None and model.package is None and model.data is None and model.file is None:
            from experiments.tasks.language.base import find_folder

            find_folder(model, data_root(config.data_root))
    if getattr(config.method, "like", None) is not None:
        check_target(config)
    gate, fixed = config.gate, config.method.sizes(config.gate)
    sizes = [gate.K_of(group) or 0 for group in range(gate.groups)] if fixed is None else fixed
    total = sizes if isinstance(sizes, int) else sum(sizes)
    samples = 1 if config.profile == "smoke" else config.train.batch or config.task.usual_samples
    needed = 4 * total * gate.numbers(config.task, samples)
    if needed > there:
        key = "gate.K" if fixed is None else "method.count"
        raise ConfigError(
            f"{total:,} components with open gates need at least {needed / 2**30:,.0f} GiB in training, but this "
            f"machine has {there / 2**30:,.0f} GiB; lower {key}"
        )


def check_packages(config: Config) -> None:
    """Refuse a run that needs a missing package when it starts: a ConfigError with the command that installs it."""
    wanted = {
        f"task={config.task.name}": config.task.packages,
        f"method={config.method.name}": config.method.packages,
        "train.optimizer=adamw8bit": ("torchao",) if config.train.optimizer == "adamw8bit" else (),
    }
    for what, modules in wanted.items():
        if (name := missing(*modules)) is not None:
            raise ConfigError(sentence(what, name) or f"{what} needs the package {name}")
    if config.model is not None and config.model.package is not None:
        from experiments.tasks.images.task import maker_of  # imports torch, as the model does

        maker_of(config.model)


def _device(config: Config) -> None:
    """Refuse a device that is not there, one without the type of numbers of ``train.autocast``, and absent kernels.

    On an x86 processor without instructions for bfloat16, it is slower than float32.
    """
    described = CPUINFO.read_text() if config.train.autocast == "bf16" and CPUINFO.is_file() else ""
    slow = config.profile != "smoke" and "sse2" in described and not re.search("avx512_bf16|amx_bf16", described)
    if config.device != "cuda" and config.engine != "fused" and not slow:
        return
    import torch  # imported here: only settings of a device or an engine need it

    cuda = torch.cuda.is_available()
    if slow and (config.device == "cpu" or not cuda):
        raise ConfigError(
            "train.autocast=bf16: this processor has no instructions for bfloat16 (avx512_bf16, amx_bf16), so a step "
            "would take longer than in float32; remove it, or use a GPU"
        )
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


def _sizes(runs: Sequence[Run]) -> None:
    """Refuse networks that cannot take the data of their task, and limits that no size of the model meets.

    Only the task and its model tell. Seeds do not change it, so one of them stands for all.
    """
    seen = set[str]()
    for run in runs:
        model, method = run.config.model, run.config.method
        macs, parameters = (getattr(method, key, None) for key in ("macs", "parameters"))
        limited = macs is not None or (parameters is not None and model is None)
        if not limited and (model is None or model.package is None):
            continue
        if (alike := run.config.model_dump_json(exclude={"seed"})) in seen:
            continue
        import torch  # imported here, as the next: only such runs need them before they start

        from experiments.runs.phases import learner_of
        from experiments.runs.stack import Stack
        from experiments.tasks import make_task

        seen.add(alike)
        try:
            task = make_task(run.config, torch.device("cpu"))
        except DataError as damaged:
            raise ConfigError(str(damaged)) from None
        if limited:
            learner_of(Stack((run,)), task)
