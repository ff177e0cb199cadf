"""Measure how much memory one replica needs, and how many replicas fit."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from experiments.core.task import Task
from experiments.runs.phases import learner_of
from experiments.runs.stack import Stack

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
