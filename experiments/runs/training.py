"""Train a stack that fits in memory: its phases one after the other, then write the records."""

from __future__ import annotations

import datetime
import gc
import logging
import sys
import time
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from experiments.config.schema import branch_of, branch_phase
from experiments.core import checkpoint
from experiments.core.blocks import ConfigError
from experiments.core.task import Task
from experiments.methods.fixed import fixed_size, size_name
from experiments.models.kernels.trainer import KernelTrainer
from experiments.runs import host, outcome
from experiments.runs.outcome import Phase, RunOutcome, prunes_back
from experiments.runs.phases import PhaseSetup, learner_of, plan_of, train_phase, trainer_of
from experiments.runs.stack import Stack, kernel_of, largest_stack
from experiments.store.provenance import code
from experiments.store.record import Result
from experiments.tasks import make_task
from ngn.files import FileError, write_atomically

SHARE = 0.5
"""Fraction of the free memory that a stack may use; temporaries, evaluation and other programs need the rest."""


def replica_bytes(stack: Stack, task: Task[Any]) -> int:
    """Return the bytes that one replica of a stack needs in training.

    They cover parameters, gradients, the optimiser's two moments, and the tensors that one forward pass saves for the
    backward pass. Replicas share a full batch of data, so it does not count.
    """
    config = stack.first
    learner = learner_of(stack.take([0]), task, config.method.sizes(config.gate))
    seen: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = task.batches(config.train, config.seed.value).at(0)
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]
    learner.to(tensors[0].device)
    data = {tensor.untyped_storage().data_ptr() for tensor in tensors} if config.train.batch is None else set()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        task.loss(learner.model, batch)
    kept = sum(size for pointer, size in seen.items() if pointer not in data)
    return kept + 4 * sum(p.numel() * p.element_size() for p in learner.parameters())


def card_sizes() -> list[int]:
    """Return the bytes of memory of every GPU that this process sees."""
    return [torch.cuda.get_device_properties(card).total_memory for card in range(torch.cuda.device_count())]


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes of memory that are available now; None if the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if sys.platform != "linux":
        return None
    with open("/proc/meminfo") as facts:
        for line in facts:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def replicas_that_fit(stack: Stack, task: Task[Any], device: torch.device) -> int | None:
    """Return how many replicas of such a stack fit in memory: at least 1, or None if the free memory is unknown."""
    free = free_bytes(device)
    return None if free is None else max(1, int(SHARE * free) // max(1, replica_bytes(stack, task)))


log = logging.getLogger(__name__)
RECORDED = "recorded"
"""File in a folder of checkpoints: training has ended, and records are being written."""


def replicas_on_this_machine(stack: Stack, task: Task[Any], device: torch.device) -> int:
    """Return how many replicas of a stack this machine can train at once, given its memory and its compiler.

    The trainer of a single run tells whether a kernel trains the stack, as planned: not on a GPU, for example.
    """
    first, planned = stack.first, kernel_of(stack.first) is not None
    if planned:
        single = stack.take([0])
        learner = learner_of(single, task, first.method.sizes(first.gate)).to(device)
        plan = plan_of(single, task.samples(first.train))
        if trainer_of(first, learner, task.batches(first.train, single.seeds), task, plan) is KernelTrainer:
            return len(stack)
    suited = largest_stack(first, in_torch=True) if planned and device.type == "cpu" else len(stack)
    fit = replicas_that_fit(stack, task, device)
    return suited if fit is None else min(suited, fit)


class StorageError(FileError):
    """A file could not be written: the disk is full, the folder is read-only, or a quota is used up."""


class DoesNotFit(MemoryError):
    """This machine cannot train so many replicas at once; ``args`` says how many it can."""


def parts_after(error: Exception, stack: Stack) -> list[Stack]:
    """Return the smaller stacks to train instead, after an error of :func:`train_stack`; none if that cannot help.

    The error may concern one run only, such as a budget out of reach; then each run trains alone. If there is not
    enough memory, halves may fit. A single run that is too large fails.
    """
    if isinstance(error, DoesNotFit):
        return stack.parts(*error.args)
    if isinstance(error, ConfigError):
        return stack.parts(1) if len(stack) > 1 else []
    if len(stack) == 1 or not _out_of_memory(error):
        return []
    log.warning("not enough memory for a stack of %d runs (%s); training it in halves", len(stack), error)
    traceback.clear_frames(error.__traceback__)  # free the failed stack before its halves are trained
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    checkpoint.remove(stack.checkpoints)
    return stack.parts((len(stack) + 1) // 2)


def _out_of_memory(error: BaseException) -> bool:
    """Return whether an error means "out of memory": from Python, from CUDA, or from torch's allocator on a CPU."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def train_stack(stack: Stack) -> list[RunOutcome]:
    """Train the phases of a stack as one model and write its records. Return the outcome of every run.

    Raises:
        DataError, ConfigError: with a message for the reader.
        StorageError: if a file cannot be read or written; earlier files are kept.
        MemoryError, RuntimeError: if there is not enough memory (:func:`parts_after`).
    """
    code()  # read the state of the source tree before training, since this code produces the numbers
    first, scratch = stack.first, stack.checkpoints
    if first.threads is not None:
        torch.set_num_threads(first.threads)
    present = torch.cuda.is_available()
    if first.device == "cuda" and not present:
        raise ConfigError("device=cuda: torch sees no CUDA device here; use device=cpu, or device=auto")
    device = torch.device("cuda" if present and first.device != "cpu" else "cpu")
    try:
        with host.tuned_for_training(first.train.matmul):
            task = make_task(first, device)
            if len(stack) > 1 and (most := replicas_on_this_machine(stack, task, device)) < len(stack):
                raise DoesNotFit(most)
            started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
            if first.force and (scratch / RECORDED).exists():
                checkpoint.remove(scratch)  # checkpoints of a finished training: force=true asks for a new one
            if len(stack) > 1:
                stack.note()
            phases: dict[str, Phase] = {}
            if (sizes := first.method.sizes(first.gate)) is not None:
                setup = PhaseSetup("fixed", scratch / "fixed", count=sizes)
                phases["fixed"] = train_phase(stack, task, device, setup)
            for name in first.phases if sizes is None else ():
                if name == "fixed":
                    phases[name] = _retrain(stack, task, phases["grown"], device, scratch)
                else:
                    end = scratch / "end" if name == "grown" and first.continue_with else None
                    setup = PhaseSetup(name, scratch / name, end=end)
                    phases[name] = train_phase(stack, task, device, setup)
            if "from_high" in phases:
                starts = [first.gate.high_start(group) for group in range(first.gate.groups)]
                for grown, high in zip(phases["grown"].results, phases["from_high"].results, strict=True):
                    if grown["status"] == high["status"] == "complete" and "t" in high:
                        high["prunes_back"] = prunes_back(grown["count"], high["count"], high["t"], starts)
            for factor in first.continue_with if sizes is None else ():
                key = branch_phase(factor)
                branches = Stack.of(*(branch_of(run.config, factor) for run in stack.runs))
                setup = PhaseSetup(key, scratch / key, start=scratch / "end", of=stack)
                phases[key] = train_phase(branches, task, device, setup)
                for result, branch in zip(phases[key].results, branches.runs, strict=True):
                    result["lambda0"] = branch.config.schedule.lambda0
            seconds = (time.monotonic() - clock) / len(stack)
            if first.force:
                write_atomically(scratch / RECORDED, b"")
            outcomes = [outcome.write(stack, r, phases, task, device, started, seconds) for r in range(len(stack))]
            checkpoint.remove(scratch)
            return outcomes
    except OSError as fault:
        raise StorageError(
            f"{fault.filename or 'a file'}: cannot be written or read ({fault.strerror or fault}); "
            "earlier checkpoints are kept, and the same command continues from them"
        ) from fault


def _retrain(stack: Stack, task: Task[Any], grown: Phase, device: torch.device, scratch: Path) -> Phase:
    """Retrain every run at its learned size."""
    results: dict[int, Result] = {}
    curves: list[dict[str, np.ndarray]] = [{} for _ in stack.runs]
    by_count: dict[tuple[int, ...], list[int]] = defaultdict(list)
    resumed, engines = 0, set()
    for r, result in enumerate(grown.results):
        if result["status"] == "complete":
            by_count[tuple(result["count"])].append(r)
        else:
            results[r] = result.copy()
    for counts, members in sorted(by_count.items()):
        groups = [members] if largest_stack(stack.first) > 1 else [[r] for r in members]
        for group in groups:
            part = stack.take(group)  # name the folder after its runs: in a later attempt, some may have records
            folder = scratch / f"fixed{size_name(counts)}-{part.id}"
            setup = PhaseSetup("fixed", folder, count=fixed_size(counts))
            phase = train_phase(part, task, device, setup)
            resumed += phase.resumed
            engines.add(phase.engine)
            for r, result, curve in zip(group, phase.results, phase.curves, strict=True):
                results[r], curves[r] = result, curve
    return Phase([results[r] for r in range(len(stack))], curves, resumed, "+".join(sorted(engines)))
