"""Measure a trained phase: scores before and after truncation, sizes, parameters and cost."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from experiments.config.schema import is_integer
from experiments.core.blocks import visible
from experiments.core.config import Config
from experiments.core.reading import contents_digest
from experiments.core.task import ModuleTask, Task
from experiments.methods.pruning import EverySize
from experiments.methods.pruning.cutting import ModuleRun
from experiments.models.trainer import StudyTrainer
from experiments.runs.host import peak_mib
from experiments.runs.outcome import CURVE_TYPES
from experiments.store.record import SCORES, BudgetBlock, CostBlock, MemberBlock, Result
from ngn.budget.allocation import BudgetLearner
from ngn.components.base import OrderedSum
from ngn.cut.truncation import axes_of, deploy
from ngn.learner import Learner
from ngn.measuring import in_turns, multiply_adds
from ngn.methods.base import Mode
from ngn.shapes import save
from ngn.train.batches import Batches
from ngn.train.plan import History

MODES: dict[str, Mode] = dict(zip(SCORES, ("hard", "soft", "kept"), strict=True))
"""Score → the mode in which the learner is evaluated."""


def measure_phase(
    trainer: StudyTrainer,
    task: Task[Any],
    history: History,
    config: Config,
    fixed: bool,
    device: torch.device,
    keep: Sequence[Path] = (),
) -> list[Result]:
    """Measure each replica.

    Args:
        history: curves, time and divergences of the training.
        config: the configuration of one run; the others differ in seed and scalars only.
        fixed: whether the sizes are fixed. All gates are then open, so only the truncated score is measured.
        keep: files for the truncated models, one per replica; empty keeps none.

    Returns:
        one result per replica.
    """
    forms = [form for form in SCORES if form in task.scored and form in config.method.scored]
    scores = {name: trainer.evaluate(task.evaluate, MODES[name]) for name in (SCORES[:1] if fixed else forms)}
    samples = {name: trainer.evaluate(task.sample, MODES[name]) for name in scores if name != "gates_kept"}
    plan, learner, replicas = trainer.plan, trainer.learner, trainer.learner.replicas or 1
    decays = [] if fixed else [config.method.learned_decay(axis.capacity) for axis in axes_of(learner.model)]
    learned = [r for r in decays if r is not None]
    all_learned = bool(learned) and len(learned) == len(decays)
    ratios = torch.stack(learned, -1).reshape(replicas, -1).tolist() if all_learned else None
    t, counts = learner.size().reshape(replicas, -1).tolist(), learner.count().reshape(replicas, -1).tolist()
    candidate = sum(p.numel() for p in learner.model.parameters()) // replicas
    results = []
    for r in range(replicas):
        result: Result = {
            "status": "complete",
            "count": counts[r],
            "parameters": {"candidate": candidate, "deployed": 0},
            "steps": plan.steps,
            "seconds": round(history.seconds, 3),
            "run_steps_per_second": float(f"{plan.steps * replicas / max(history.seconds, 1e-9):.4g}"),
            "peak_memory_mib": round(peak_mib(device), 1),
        }
        if task.n:
            result["n"] = dict(task.n)
        measured: dict[str, Any] = {
            form: {name: float(value.reshape(replicas)[r]) for name, value in by_name.items()}
            for form, by_name in scores.items()
        }
        at = int(history.diverged_at[r])
        if at >= 0 or not all(np.isfinite([*(v for s in measured.values() for v in s.values()), *t[r]])):
            # The scores of a diverged model are no results: record only when it diverged.
            result.update({"status": "diverged", "count": [], "diverged_at": at if at >= 0 else plan.steps})
        else:
            if not fixed:
                measured["t"] = t[r]
                measured |= {"integer": [is_integer(size) for size in t[r]]} if learner.has_boundary else {}
                measured |= {} if ratios is None else {"r": ratios[r]}
            replica = None if learner.replicas is None else r
            # share_frozen: a pretrained model is not copied.
            deployed = learner.deploy(replica, share_frozen=True, unsettled="allow")
            result["parameters"]["deployed"] = sum(p.numel() for p in deployed.parameters())
            measured |= {"sizes": sizes} if (sizes := config.gate.sizes(counts[r])) else {}
            result.update(cast(Result, measured | task.describe(deployed)))
            if isinstance(learner, BudgetLearner):
                even, evidence = (part.reshape(replicas, -1)[r].tolist() for part in (learner.even, learner.strongest))
                result["budget"] = {
                    "kind": learner.budget.kind,
                    "limit": float(learner.limit.reshape(-1)[r]),
                    "cost": learner.cost.measured(tuple(counts[r])),
                    "even": [int(n) for n in even],
                    "evidence": [float(f"{z:.4g}") for z in evidence],
                }
            if texts := {name: text.split("\n") for name, text in samples.items() if text is not None}:
                result["samples"] = {name: "\n".join(map(visible, lines)) for name, lines in texts.items()}
            if keep:
                if keep[r].is_symlink():  # save would write the file that it leads to, which is not the run's
                    keep[r].unlink()
                save(deployed, keep[r], frozen=task.keeps_frozen)
                result["model_sha256"] = contents_digest(keep[r])
        results.append(result)
    return results


def forward_cost(models: dict[str, Callable[[Any], Tensor]], x: Any, samples: int, device: torch.device) -> CostBlock:
    """Measure the forward pass of each model on one batch.

    Args:
        models: name → forward function.
        x: one batch of ``samples`` samples, as the models take it.

    Returns:
        {"samples", "multiply_adds": {name: n}, "milliseconds": {name: ms}}.
    """
    times = in_turns([partial(forward, x) for forward in models.values()], device)
    return {
        "samples": samples,
        "multiply_adds": {name: multiply_adds(partial(forward, x)) for name, forward in models.items()},
        "milliseconds": {
            name: float(f"{statistics.median(passes):.4g}") for name, passes in zip(models, times, strict=True)
        },
    }


@torch.no_grad()
def take_replica(single: Learner, stack: Learner, replica: int) -> nn.Module:
    """Copy one replica of ``stack`` into ``single``, a learner of the same kind without a replica axis.

    Returns:
        the model of ``single``, at the end of its schedules.
    """
    for axis, other in zip(axes_of(single), axes_of(stack), strict=True):
        if axis.K < other.K:
            axis.grow(other.K)
    mine: Sequence[Tensor] = list(single.model.parameters())
    for p, stacked in zip(mine, stack.model.parameters(), strict=True):
        p.copy_(stacked[replica])
    single.set_progress(1.0)
    single.before_step(None)
    return single.model


def cost_of(
    r: int, learner: Learner, task: Task[Any], alone: Callable[[int], Learner] | None, device: torch.device
) -> CostBlock:
    """Measure a forward pass of replica ``r``: truncated and, if its size is learned, also before truncation.

    Args:
        alone: builds the untrained learner of one replica, without the replica axis; None for a model of fixed size.
    """
    x, samples = task.timed_batch()
    stacked = learner.replicas is not None
    models: dict[str, Callable[[Any], Tensor]] = {"deployed": learner.deploy(r if stacked else None, unsettled="allow")}
    if alone is not None:
        models["candidate"] = take_replica(alone(r), learner, r) if stacked else learner.model
    return forward_cost(models, x, samples, device)


def of_module(result: Result, learner: Learner, task: ModuleTask[Any], config: Config, device: torch.device) -> None:
    """Compare the smaller module with the whole one, and note both costs and the limit in ``result``.

    Raises:
        RuntimeError: if the module exceeds its limit.
    """
    work = ModuleRun(config, task)
    small, whole = learner.deploy(unsettled="allow").to(device).eval(), work.module().eval()
    result["parameters"]["candidate"] = sum(p.numel() for p in whole.parameters())
    x, samples = task.timed_batch()
    result["cost"] = forward_cost({"candidate": whole, "deployed": small}, x, samples, device)
    parts = {"batch": x, "16": x[:16], "1": x[:1]}
    with torch.no_grad():
        times = {
            name: in_turns([partial(model, part) for model in (small, whole)], device) for name, part in parts.items()
        }
    result["cost"]["ratios"] = {
        name: float(f"{statistics.median(one / other for one, other in zip(*both, strict=True)):.4g}")
        for name, both in times.items()
    }
    if work.kind is not None and config.method.cuts:
        budget: BudgetBlock = {"kind": work.kind, "limit": float(work.within), "cost": float(work.cost(small))}
        if work.kind == "parameters" and task.outside:
            budget["outside"] = task.outside
        if budget["cost"] > budget["limit"]:
            raise RuntimeError(f"method={config.method.name} left {work.kind} above its limit: {budget}")
        result["budget"] = budget
    if isinstance(config.method, EverySize):
        result["members"] = members_of(learner, work, config.method.shares)


@torch.no_grad()
def members_of(learner: Learner, work: ModuleRun, shares: Sequence[int]) -> dict[str, MemberBlock]:
    """Score the members of a family at ``shares``, in percent of the whole module's cost, where it has one.

    Statistics of normalisations are measured on the first training batches.
    """
    most, members = work.cost(work.module()), {}
    for share in shares:
        if (limit := work.part(share, most)) >= work.within:
            small = learner.deploy(limit, work.calibration() or None, unsettled="allow")
            cost, count = float(work.cost(small)), work.task.counts(small)
            scores = {name: value.item() for name, value in work.task.evaluate(small).items()}
            members[str(share)] = MemberBlock(cost=cost, count=count, scores=scores)
    return members


@torch.no_grad()
def norms_of(learner: Learner, batches: Batches) -> list[list[float] | None]:
    """Return the L2 norm of every f_k of the first axis over batch 0, per replica; None if a norm is not finite."""
    x, _ = batches.at(0)
    axis = axes_of(learner)[0]
    assert isinstance(axis, OrderedSum)
    f = axis.bank.components(x).double()
    norms: Tensor = torch.linalg.vector_norm(f.flatten(-2), dim=-1).reshape(learner.replicas or 1, -1)
    return [[float(f"{value:.6g}") for value in row] if all(np.isfinite(row)) else None for row in norms.tolist()]


def prefixes_of(r: int, learner: Learner, task: Task[Any]) -> list[float]:
    """Return ``task.prefix_score`` of replica ``r``, truncated to at most 1, 2, ... leading components per axis.

    The last entry is for one component less than the largest learned count.
    """
    assert task.prefix_score is not None
    replica = None if learner.replicas is None else r
    counts = learner.count() if replica is None else learner.count()[r]
    smaller = (deploy(learner.model, replica, most=most) for most in range(1, int(counts.max())))
    return [float(task.evaluate(model)[task.prefix_score]) for model in smaller]


def curves_of(history: History, r: int, fixed: bool) -> dict[str, np.ndarray]:
    """Return the curves of replica ``r``: none if nothing was trained, and no t for a ``fixed`` model."""
    names = ("step", "loss", "task", *(() if fixed else ("t",)), "held", "held_step")
    curves = {name: history.curves[name] for name in names if name in history.curves}
    single = {name: curve if name in CURVE_TYPES else curve[:, r] for name, curve in curves.items()}
    return {name: curve.astype(CURVE_TYPES.get(name, np.float32)) for name, curve in single.items()}
