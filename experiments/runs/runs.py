"""From configurations to records."""

from __future__ import annotations

import datetime
import functools
import gc
import hashlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.blocks import ConfigError
from experiments.config.identity import run_id, scientific
from experiments.config.numerics import numerics
from experiments.config.schema import Config, branch_of, branch_phase
from experiments.data.source import DataInfo
from experiments.methods.fixed import Fixed, fixed_size
from experiments.paths import RESULTS, SCRATCH
from experiments.runs.memory import replicas_that_fit
from experiments.runs.phases import CURVE_TYPES, Trained, fixed_configuration, prunes_back, train_phase
from experiments.runs.sharing import HeldElsewhere, Sharing, Work, arrange, note_stack, tidy
from experiments.runs.stack import Stack, kernel_of, largest_in_torch, largest_stack, stacks_of
from experiments.store.claims import Claims
from experiments.store.provenance import code, code_block, machine, packages
from experiments.store.records import SCHEMA_VERSION, Store, publish
from experiments.tasks import make_task
from experiments.tasks.base import Task
from ngn.train import checkpoint, interrupt
from ngn.train import host as process
from ngn.train.kernels.kernel import compiled

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of a run: ``complete``, ``diverged``, or ``present`` when its record was there already."""

    run_id: str
    status: str
    path: Path
    message: str


def results_root(config: Config) -> Path:
    """Where the record of a run goes: as configured; else ``results/`` for a full run of a clean tree, else scratch."""
    if config.results is not None:
        return Path(config.results).expanduser()
    real = config.profile == "full" and code().clean
    return RESULTS if real else SCRATCH / "results"


def device_of(config: Config) -> torch.device:
    """The device of a run.

    Raises:
        ConfigError: if ``device=cuda`` is asked for where there is none.
    """
    present = torch.cuda.is_available()
    if config.device == "cuda" and not present:
        raise ConfigError("device=cuda: torch sees no CUDA device here; use device=cpu, or device=auto")
    return torch.device("cuda" if present and config.device != "cpu" else "cpu")


def _present(config: Config) -> Outcome | None:
    """The outcome of a run that has its record already, and is not to be run again."""
    name = run_id(config)
    store = Store(results_root(config))
    record = None if config.force else store.get(name)
    if record is None:
        return None
    path, now = store.path(name), numerics(config)
    then = record["code"]["numerics"]
    stale = "" if then == now else f" STALE: it is of numerics {then} and this code has {now}, so no table counts it;"
    return Outcome(name, "present", path, f"{name}: already in {path};{stale} force=true runs it again")


def execute(configs: Sequence[Config], patience: float | None = None) -> list[Outcome]:
    """Train what has no record yet, stacked where that is faster; one record and one outcome a run, in order.

    Of several processes that are given the same run, one trains it. The others do what is left, and then wait for it,
    for good or for ``patience`` seconds.

    Raises:
        DataError, RecordError, ConfigError: with a message for the reader.
        experiments.runs.sharing.HeldElsewhere: if others hold runs for longer than ``patience``.
    """
    outcomes = {found.run_id: found for config in configs if (found := _present(config)) is not None}
    missing: dict[Path, list[Config]] = defaultdict(list)
    for config in configs:
        if run_id(config) not in outcomes:
            missing[results_root(config)].append(config)
    checkpoints = SCRATCH / "checkpoints"
    for root in {results_root(config) for config in configs} if checkpoints.exists() else ():
        ready = [name for name, found in outcomes.items() if found.path.parent.parent == root]
        tidy(ready, root, checkpoints, functools.partial(_folder, root=root))
    for root, wanted in missing.items():
        with Claims(root) as claims:
            sharing = Sharing(claims, _present, _train, patience)
            for outcome in sharing.run(arrange(wanted, root, checkpoints)):
                outcomes[outcome.run_id] = outcome
    return [outcomes[run_id(config)] for config in configs]


def _train(work: Work) -> list[Outcome]:
    """Train a stack of claimed runs; outcomes of those that had no record."""
    wanted = {run_id(config) for config in work.missing}
    return [outcome for outcome in train_in_memory(work.stack()) if outcome.run_id in wanted]


def _out_of_memory(error: BaseException) -> bool:
    """Whether an error is for want of memory: Python's, CUDA's, or that of torch's allocator on a CPU."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def train_in_memory(stack: Stack) -> list[Outcome]:
    """Train a stack, in halves if memory does not suffice for the whole; a single run that is too large fails.

    Raises:
        ngn.train.checkpoint.StorageError: if a file cannot be written; what was saved before is kept.
    """
    try:
        with process.prepared():
            return train_pack(stack)
    except (MemoryError, RuntimeError) as error:
        if len(stack) == 1 or not _out_of_memory(error):
            raise
        log.warning("no memory for a stack of %d runs (%s); training it in halves", len(stack), error)
    except OSError as fault:
        raise checkpoint.StorageError(
            f"{fault.filename or 'a file'}: cannot be written or read ({fault.strerror or fault}); "
            "what was saved before is kept, and the same command goes on from there"
        ) from fault
    gc.collect()  # the failed stack, before its halves
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    checkpoint.remove(checkpoints_of(stack))
    return [outcome for half in stack.parts((len(stack) + 1) // 2) for outcome in train_in_memory(half)]


def checkpoints_of(stack: Stack) -> Path:
    """Where a stack keeps its checkpoints; records of another folder are another training."""
    return _folder(stack.id, results_root(stack.first))


def _folder(name: str, root: Path) -> Path:
    digest = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]
    return SCRATCH / "checkpoints" / f"{name}-{digest}"


def execute_packs(configs: Sequence[Config]) -> dict[str, Outcome | Exception]:
    """Like :func:`execute`, but a stack that fails leaves the others: run id → outcome, or what went wrong.

    What another process is training comes last, so that two commands with the same runs share them.
    """
    done: dict[str, Outcome | Exception] = {}
    stacks = stacks_of(configs)
    for patience in (0.0, None):
        held = []
        for stack in stacks:
            try:
                done.update({outcome.run_id: outcome for outcome in execute(stack.runs, patience)})
            except HeldElsewhere:
                held.append(stack)
            except Exception as error:  # reported with its runs by the caller
                done.update(dict.fromkeys(stack.ids, error))
        stacks = held
    return done


def largest_here(stack: Stack, task: Task, device: torch.device) -> int:
    """How many replicas of a stack this machine trains at once; planning knows neither its memory nor its compiler."""
    kernel = kernel_of(stack.first)
    if len(stack) == 1 or (kernel is not None and compiled(kernel) is not None):
        return len(stack)
    suited = len(stack) if kernel is None else largest_in_torch(stack.first)
    fit = replicas_that_fit(stack.first, task, device)
    return suited if fit is None else min(suited, fit)


def train_pack(stack: Stack) -> list[Outcome]:
    """Train the phases of a stack and write its records."""
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    code()  # what the tree is now, before training, is what produces the numbers
    first = stack.first
    if first.threads is not None:
        torch.set_num_threads(first.threads)
    device = device_of(first)
    task = make_task(first, device)
    largest = largest_here(stack, task, device)
    if largest < len(stack):
        return [outcome for part in stack.parts(largest) for outcome in train_pack(part)]
    scratch = checkpoints_of(stack)
    note_stack(scratch, stack, results_root(first))
    phases: dict[str, Trained] = {}
    if isinstance(first.method, Fixed):
        phases["fixed"] = _phase(stack, task, "fixed", device, scratch / "fixed", count=first.method.count)
    else:
        for name in first.phases:
            if name == "fixed":
                phases[name] = _fixed_phase(stack, task, phases["grown"], device, scratch)
            else:
                end = scratch / "end" if name == "grown" and first.continue_with else None
                phases[name] = _phase(stack, task, name, device, scratch / name, end=end)
        if "from_high" in phases:
            starts = [first.gate.high_start(group) for group in range(first.gate.groups)]
            for grown, high in zip(phases["grown"].results, phases["from_high"].results, strict=True):
                if grown["status"] == high["status"] == "complete":
                    high["prunes_back"] = prunes_back(grown, high, starts)
        for factor in first.continue_with:
            key, branches = branch_phase(factor), [branch_of(config, factor) for config in stack.runs]
            phases[key] = _phase(Stack(tuple(branches)), task, key, device, scratch / key, start=scratch / "end")
            for result, branch in zip(phases[key].results, branches, strict=True):
                result["lambda0"] = branch.schedule.lambda0
    seconds = (time.monotonic() - clock) / len(stack)
    outcomes = [_write(stack, r, phases, task.info, device, started, seconds) for r in range(len(stack))]
    checkpoint.remove(scratch)
    return outcomes


def _phase(
    stack: Stack,
    task: Task,
    name: str,
    device: torch.device,
    folder: Path,
    count: int | list[int] | None = None,
    end: Path | None = None,
    start: Path | None = None,
) -> Trained:
    """A phase, or what was kept of it when it had finished before an interruption."""
    kept = folder / "finished.json"
    if kept.exists():
        stored = json.loads(kept.read_text())
        curves = [
            {k: np.asarray(v, dtype=CURVE_TYPES.get(k, np.float32)) for k, v in c.items()} for c in stored["curves"]
        ]
        return Trained(stored["results"], curves, stored["resumed"], stored["engine"])
    first = stack.first
    who = f"{first.task.name} {f'x{len(stack)}' if len(stack) > 1 else f's{first.seed.value}'}"
    norms = stack.first.task.name == "regression1d" and name == "grown"
    with interrupt.deferred():
        trained = train_phase(stack, task, name, device, folder, f"{who} {name}", count, norms, end, start)
        plain = [{k: v.tolist() for k, v in c.items()} for c in trained.curves]
        content = {"results": trained.results, "curves": plain, "resumed": trained.resumed, "engine": trained.engine}
        publish(kept, json.dumps(content).encode(), replace=True)
    return trained


def _fixed_phase(stack: Stack, task: Task, grown: Trained, device: torch.device, scratch: Path) -> Trained:
    """Retrain every seed at its learned size: from a ``method=fixed`` record where there is one, else here."""
    results: list[dict[str, Any]] = [{} for _ in stack.runs]
    curves: list[dict[str, np.ndarray]] = [{} for _ in stack.runs]
    by_count: dict[tuple[int, ...], list[int]] = defaultdict(list)
    resumed, engines = 0, set()
    for r, result in enumerate(grown.results):
        if result["status"] != "complete":
            results[r] = {**result, "status": "diverged"}
            continue
        alone = fixed_configuration(stack.runs[r], fixed_size(result["count"]))
        record = Store(results_root(stack.runs[r])).get(run_id(alone))
        if record is not None and _reusable(record, alone):
            results[r] = {**record["phases"]["fixed"], "taken_from": record["run_id"]}
        else:
            by_count[tuple(result["count"])].append(r)
    for counts, members in sorted(by_count.items()):
        groups = [members] if largest_stack(stack.first) > 1 else [[r] for r in members]
        for group in groups:
            folder = scratch / f"fixed{'_'.join(map(str, counts))}-{group[0]}"
            trained = _phase(stack.take(group), task, "fixed", device, folder, count=fixed_size(counts))
            resumed += trained.resumed
            engines.add(trained.engine)
            for r, result, curve in zip(group, trained.results, trained.curves, strict=True):
                results[r], curves[r] = result, curve
    return Trained(results, curves, resumed, "+".join(sorted(engines)))


def _reusable(record: dict[str, Any], config: Config) -> bool:
    """Whether a record may stand for a training here: of the same numerics, and no dirtier than this tree."""
    told = record["code"]
    return bool(told["numerics"] == numerics(config) and (told["clean"] or not code().clean))


def _write(
    stack: Stack,
    r: int,
    phases: dict[str, Trained],
    info: DataInfo,
    device: torch.device,
    started: datetime.datetime,
    seconds: float,
) -> Outcome:
    config, own = stack.runs[r], {name: trained.results[r] for name, trained in phases.items()}
    status = "complete" if all(p["status"] == "complete" for p in own.values()) else "diverged"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    record = {
        "schema": SCHEMA_VERSION,
        "run_id": run_id(config),
        "status": status,
        "config": scientific(config),
        "phases": own,
        "time": {"started": started.isoformat(timespec="seconds"), "seconds": round(seconds, 3)},
        "execution": {
            "device": name,
            "engine": "+".join(sorted({trained.engine for trained in phases.values() if trained.engine})),
            "replicas": len(stack),
            "threads": torch.get_num_threads(),
            "resumed": sum(trained.resumed for trained in phases.values()),
        },
        "hardware": machine(),
        "packages": packages(),
        "data": {"name": info.name, "sha256": info.sha256, "provenance": info.provenance},
        "code": code_block(numerics(config)),
    }
    curves = {f"{n}.{key}": v for n, trained in phases.items() for key, v in trained.curves[r].items()}
    store = Store(results_root(config))
    path = store.path(run_id(config))
    new = store.write(record, curves, replace=config.force)
    note = "" if new else " (another process had written it first)"
    return Outcome(run_id(config), status, path, f"{run_id(config)}: {summary(record)} -> {path}{note}")


def summary(record: dict[str, Any]) -> str:
    """One line on what a run found."""
    parts = []
    for name, phase in record["phases"].items():
        if phase["status"] != "complete":
            parts.append(f"{name} diverged" + (f" at step {phase['diverged_at']}" if "diverged_at" in phase else ""))
            continue
        score = next(iter(phase["truncated"]))
        form = "{:.2f}" if score == "accuracy" else "{:.2e}"
        size = ", ".join(f"{t:.2f}" for t in phase["t"]) if "t" in phase else ", ".join(map(str, phase["count"]))
        each = [f"{mode} {form.format(phase[mode][score])}" for mode in ("soft", "truncated") if mode in phase]
        back = f", prunes back: {phase['prunes_back']['outcome']}" if "prunes_back" in phase else ""
        parts.append(f"{name} {'t' if 't' in phase else 'count'} = {size}, {', '.join(each)}{back}")
    return "; ".join(parts) + f" ({record['time']['seconds']:.1f} s)"
