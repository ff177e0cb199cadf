"""All that is held against one model: NGN's side. Each check is "yes", or says in a few words why it failed."""

from __future__ import annotations

import copy
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from zoo.comparing import (
    Row,
    apart,
    batch_of,
    differ,
    fresh,
    in_both_modes,
    loss_of,
    noted,
    outputs,
    parameters,
    verdict,
)
from zoo.models import Model

import ngn
from ngn.checks import arguments, copied, floating
from ngn.gate import softplus_inverse
from ngn.learner.hooked import HookedAxis
from ngn.tracing.found import FoundSizes

STEPS, RATE, KEPT = 20, 1e-4, 4
"""Of the training: AdamW, on two batches in turns; its state after KEPT steps, before the commit, is kept."""


def share_in_groups(model: nn.Module, found: FoundSizes) -> float:
    """The share of parameters with units of a group."""
    masks = {id(value): torch.zeros(value.shape, dtype=torch.bool) for value in model.parameters()}
    for group in found:
        for cut in group.cuts:
            value = getattr(cut.module, cut.name)
            if id(value) in masks:
                masks[id(value)].narrow(cut.dim, cut.start, group.length * cut.width).fill_(True)
    return sum(int(mask.sum()) for mask in masks.values()) / max(1, parameters(model))


def zeroed(whole: nn.Module, learner: ngn.Learner) -> nn.Module:
    """A copy of the plain model in which every product that reads a removed unit has a weight of zero for it."""
    result = copy.deepcopy(whole)
    paths = {id(module): path for path, module in learner.model.named_modules()}
    for axis in learner.axes:
        removed = (~axis.in_place(axis.retained()[0])).nonzero().flatten()
        assert isinstance(axis, HookedAxis)
        for consumer in axis.consumers:
            holder = result.get_submodule(paths[id(consumer.holder)])
            weight = getattr(holder, consumer.name)
            for cut in axis.cuts:
                if (cut.module, cut.name, cut.dim) == (consumer.holder, consumer.name, consumer.dim):
                    entries = cut.start + (removed[:, None] * cut.width + torch.arange(cut.width)).flatten()
                    weight.data.index_fill_(cut.dim, entries, 0.0)
            if nn.utils.parametrize.is_parametrized(holder, consumer.name):  # so far only its present value is zeroed
                setattr(holder, consumer.name, weight.data)
    return result


def halve(learner: ngn.Learner) -> None:
    """Put every boundary where half of the units are kept."""
    for axis in learner.axes:
        gate = axis.capacity
        assert isinstance(gate, ngn.CountGate)
        boundary = max(1e-4, max(1, axis.K // 2) - 1.0)
        gate.tau.data.copy_(softplus_inverse(torch.tensor(boundary, dtype=gate.tau.dtype) / gate.stride))


def train(learner: ngn.Learner, model: Model, row: Row, batch: Any) -> Row:
    """Train through the commit, where sizes are cut in place; compare the model before and after each cut.

    Returns:
        The state after KEPT steps, and what the model then computes on ``batch``.

    Raises:
        ValueError: if a size has no finite gradient, stays unsettled, or nothing is cut.
    """
    cut, body = learner.shrink, learner.body_parameters()
    before = sum(value.numel() for value in body)

    def shrink(*given: Any, **settings: Any) -> bool:
        if learner.wanted_components() is None:
            return cut(*given, **settings)
        with learner.mode("hard"):  # on the way gates are almost closed where it cuts; here, they are closed
            wanted = in_both_modes(learner, batch)
            if changed := cut(*given, **settings):
                differ(row, "masked", wanted, learner, batch)
        return changed

    learner.shrink = shrink  # type: ignore[method-assign]
    optimizer = torch.optim.AdamW(learner.parameters(), lr=RATE)
    batches, kept = [batch_of(model.example, seed) for seed in (3, 4)], {}
    for number in range(STEPS):
        learner.train()
        torch.manual_seed(number)
        loss = loss_of(learner, batches[number % 2]) + learner.penalty().sum()
        optimizer.zero_grad()
        loss.backward()
        slopes = [tau.grad for tau in learner.controller_parameters()]
        if number == 0 and any(slope is None or not bool(torch.isfinite(slope).all()) for slope in slopes):
            raise ValueError("a size without a finite gradient")
        optimizer.step()
        learner.step((number + 1) / STEPS, optimizer)
        if number + 1 == KEPT:
            kept = copy.deepcopy({"state": learner.state_dict(), "on the way": in_both_modes(learner, batch)})
    optimizer.zero_grad()
    learner.eval()
    del learner.shrink
    if not all(axis.capacity.committed for axis in learner.axes):
        raise ValueError("a size that is not settled")
    row["stay_masked"] = len(learner.masked)
    if sum(value.numel() for value in body) == before and row["stay_masked"] < len(learner.axes):
        raise ValueError("nothing is cut in place")
    return kept


def _sharing(model: nn.Module, names: set[str]) -> list[str]:
    """Those modules, and the others with a tensor of theirs, such as a layer tied to an embedding."""
    own = {id(value) for name in names for value in model.get_submodule(name).parameters(recurse=False)}
    return [
        name
        for name, module in model.named_modules()
        if name and (name in names or any(id(value) in own for value in module.parameters(recurse=False)))
    ]


def _embeddings(model: nn.Module) -> set[str]:
    """The embeddings that are tied to another module: their length is fixed where they are read, not by the output."""
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Embedding)]
    return {name for name in names if len(_sharing(model, {name})) > 1}


def check(model: Model, row: Row, folder: Path) -> None:
    """Hold all against a model, and note it in ``row``; files for the fresh process go to ``folder``."""
    whole, example, other = fresh(model), batch_of(model.example), batch_of(model.larger)
    row["parameters"] = parameters(whole)
    outputs(whole, other)
    row["modules"] = sum(not [*module.children()] for module in whole.modules())
    with noted(row, "found"):
        before = {name: value.clone() for name, value in whole.state_dict().items()}
        found = ngn.find_sizes(whole, example)
        if any(not torch.equal(value, before[name]) for name, value in whole.state_dict().items()):
            raise ValueError("find_sizes changed the model")
        if any(module.training for module in whole.modules()):
            raise ValueError("find_sizes changed a mode")
        row |= {"groups": len(found), "grouped": share_in_groups(whole, found)}
        row["unknown"] = sorted({part.split(" in ")[0] for part in (f.reason for f in found.fixed)})
        ending = {m for f in found.fixed if f.reason == "is that of an output" for m in f.members}
        row["last"] = _sharing(whole, ending or _embeddings(whole))
    if row["found"] != "yes":
        return
    row |= times(whole, example)
    plain = copy.deepcopy(whole)
    began = time.process_time()
    with noted(row, "half"):
        learner = ngn.learn_sizes(whole, found, example=example, stride=1.0)
        row["trial_seconds"] = time.process_time() - began
        row |= {"kept": len(learner.axes), "failed_trial": [f.reason for f in learner.found.fixed[len(found.fixed) :]]}
        row["kept_share"] = share_in_groups(whole, learner.found)
        halve(learner)
        small = learner.deploy(unsettled="allow")
        row["left"] = parameters(small) / row["parameters"]
    if row["half"] != "yes":
        return
    with noted(row, "equal"):
        differ(row, "equal", in_both_modes(zeroed(plain, learner), other), small, other)
    budget = ngn.Budget(parameters=parameters(small))
    del whole, plain, found, learner, small
    check_training(model, budget, row, folder)


def check_training(model: Model, budget: ngn.Budget, row: Row, folder: Path) -> None:
    """The same for a model that learns its sizes under a budget."""
    example, other = batch_of(model.example), batch_of(model.larger)
    with noted(row, "trained"):
        learner = ngn.learn_sizes(fresh(model), budget=budget, example=example)
        kept = train(learner, model, row, other)
        row.setdefault("masked", "yes")
    if row["trained"] != "yes":
        return
    with noted(row, "deployed"):
        small = learner.deploy(example=example)
        row["trained_left"] = parameters(small) / row["parameters"]
        differ(row, "deployed", in_both_modes(learner, other), small, other)
    if row["deployed"] != "yes":
        return
    with noted(row, "saved"):
        ngn.save(small, folder / "small.safetensors")
        torch.save(kept | {"small": in_both_modes(small, other), "budget": budget.parameters}, folder / "kept.pt")
    with noted(row, "exported"):
        args, named = arguments(copied(example))
        with torch.no_grad():
            program = torch.export.export(small, args, named).module()
            row["exported"] = verdict(apart(outputs(small, example), floating(program(*args, **named))))


def times(whole: nn.Module, example: Any) -> Row:
    """Seconds of a processor for a forward pass, and for finding the sizes."""
    passes, finds = [], []
    for _ in range(3):
        began = time.process_time()
        outputs(whole, example)
        passes.append(time.process_time() - began)
        began = time.process_time()
        ngn.find_sizes(whole, example)
        finds.append(time.process_time() - began)
    return {"pass_seconds": statistics.median(passes), "find_seconds": statistics.median(finds)}


def check_loaded(model: Model, row: Row, folder: Path) -> None:
    """In a fresh process: build the model from another seed, find its sizes again, and load what the other has kept."""
    kept, other = torch.load(folder / "kept.pt"), batch_of(model.larger)
    with noted(row, "loaded"):
        budget = ngn.Budget(parameters=kept["budget"])
        learner = ngn.learn_sizes(fresh(model, seed=7), budget=budget, example=batch_of(model.example))
        small = ngn.load(learner, folder / "small.safetensors")
        differ(row, "loaded", kept["small"], small, other)
        del small
    with noted(row, "resumed"):
        learner.load_state_dict(kept["state"])
        learner.resume(KEPT, KEPT / STEPS)
        differ(row, "resumed", kept["on the way"], learner, other)
