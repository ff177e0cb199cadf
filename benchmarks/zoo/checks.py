"""All that is held against one model: NGN's side. Each check is "yes", or says in a few words why it failed."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from zoo.models import Model

import ngn
from ngn.checks import arguments, copied, floating
from ngn.gate import softplus_inverse
from ngn.sizes.found import FoundAxis
from ngn.tracing.found import FoundSizes

EQUAL = 1e-4
"""Largest difference of two outputs that rounding explains, relative to the largest entry."""
Row = dict[str, Any]


def fresh(model: Model, seed: int = 0) -> nn.Module:
    """The model with random weights in which nothing hides a difference: no zeros, no layer scale of 1e-6."""
    torch.manual_seed(seed)
    made = model.build().eval()
    with torch.no_grad():
        for value in made.parameters():
            if value.dim() <= 1 or float(value.abs().max()) < 1e-3 or not float(value.std()) > 0:
                value.add_(0.1 * torch.randn_like(value))
        for name, buffer in made.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.1 * torch.randn_like(buffer))
            if name.endswith("running_var"):
                buffer.mul_(0.5 + torch.rand_like(buffer))
    return made


def example_of(model: Model) -> Any:
    """An input of ``model``."""
    torch.manual_seed(1)
    return model.example()


@torch.no_grad()
def outputs(model: nn.Module, example: Any) -> list[Tensor]:
    """The floating-point tensors that ``model`` returns."""
    torch.manual_seed(2)
    args, named = arguments(copied(example))
    return [value.clone() for value in floating(model(*args, **named))]


def apart(wanted: list[Tensor], got: list[Tensor]) -> float | str:
    """The largest difference of outputs relative to the largest entry, or how they differ in shape."""
    if [value.shape for value in wanted] != [value.shape for value in got]:
        return "another shape"
    if not sum(value.numel() for value in wanted):
        return "no output to compare"
    worst = 0.0
    for want, other in zip(wanted, got, strict=True):
        if want.numel():
            worst = max(worst, float((want - other).abs().max()) / max(1e-30, float(want.abs().max())))
    return worst if worst == worst else "not a number"


def verdict(difference: float | str) -> str:
    """ "yes" for equal outputs, else how they differ."""
    if isinstance(difference, str):
        return difference
    return "yes" if difference <= EQUAL else f"differs by {difference:.1e}"


def said(fault: Exception) -> str:
    """The kind of an error and the first line of its message."""
    lines = str(fault).strip().splitlines() or [""]
    return f"{type(fault).__name__}: {lines[0]}"[:200]


@contextmanager
def noted(row: Row, check: str) -> Iterator[None]:
    """Note whether a check passes: a failure is kept as its kind and the first line of its message."""
    try:
        yield
        row.setdefault(check, "yes")
    except Exception as fault:
        row[check] = said(fault)


def parameters(model: nn.Module) -> int:
    """The number of parameters, a tied one once."""
    return sum(value.numel() for value in model.parameters())


def share_in_groups(model: nn.Module, found: FoundSizes) -> float:
    """The share of parameters with units of a group."""
    masks = {id(value): torch.zeros(value.shape, dtype=torch.bool) for value in model.parameters()}
    for group in found:
        for cut in group.cuts:
            value = getattr(cut.module, cut.name)
            if id(value) in masks:
                masks[id(value)].narrow(cut.dim, cut.start, group.length * cut.width).fill_(True)
    return sum(int(mask.sum()) for mask in masks.values()) / max(1, parameters(model))


def zeroed(whole: nn.Module, learner: ngn.CapacityLearner) -> nn.Module:
    """A copy of the plain model in which every product that reads a removed unit has a weight of zero for it."""
    result = copy.deepcopy(whole)
    paths = {id(module): path for path, module in learner.model.named_modules()}
    for axis in learner.axes:
        removed = (~axis.in_place(axis.retained()[0])).nonzero().flatten()
        assert isinstance(axis, FoundAxis)
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


def halve(learner: ngn.CapacityLearner) -> None:
    """Put every boundary where half of the units are kept."""
    for axis in learner.axes:
        gate = axis.capacity
        assert isinstance(gate, ngn.CountGate)
        boundary = max(1e-4, max(1, axis.K // 2) - 1.0)
        gate.tau.data.copy_(softplus_inverse(torch.tensor(boundary, dtype=gate.tau.dtype) / gate.stride))


def step(model: nn.Module, example: Any, more: Callable[[], Tensor | float] = lambda: 0.0) -> None:
    """Train one step, on the mean square of all outputs.

    Raises:
        ValueError: if the loss is not finite, or nothing has a gradient.
    """
    args, named = arguments(copied(example))
    model.train()
    losses = [value.float().square().mean() for value in floating(model(*args, **named)) if value.requires_grad]
    loss = sum(losses) + more()
    if not isinstance(loss, Tensor) or not bool(torch.isfinite(loss)):
        raise ValueError(f"the loss is {loss}")
    loss.backward()
    if not any(value.grad is not None and bool(value.grad.any()) for value in model.parameters()):
        raise ValueError("no gradient")
    torch.optim.SGD([value for value in model.parameters() if value.requires_grad], 1e-4).step()
    model.eval()


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
    whole, example = fresh(model), example_of(model)
    row["parameters"] = parameters(whole)
    outputs(whole, example)
    row["modules"] = sum(not [*module.children()] for module in whole.modules())
    with noted(row, "found"):
        before = {name: value.clone() for name, value in whole.state_dict().items()}
        found = ngn.find_sizes(whole, example)
        if any(not torch.equal(value, before[name]) for name, value in whole.state_dict().items()):
            raise ValueError("find_sizes changed the model")
        row |= {"groups": len(found), "grouped": share_in_groups(whole, found)}
        row["unknown"] = sorted({part.split(" in ")[0] for part in (f.reason for f in found.fixed)})
        ending = {m for f in found.fixed if f.reason == "is that of an output" for m in f.members}
        row["last"] = _sharing(whole, ending or _embeddings(whole))
    if row["found"] != "yes":
        return
    passes, times = [], []
    for _ in range(3):
        began = time.process_time()
        outputs(whole, example)
        passes.append(time.process_time() - began)
        began = time.process_time()
        ngn.find_sizes(whole, example)
        times.append(time.process_time() - began)
    row["pass_seconds"], row["find_seconds"] = statistics.median(passes), statistics.median(times)
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
        row["difference"] = apart(outputs(zeroed(plain, learner).eval(), example), outputs(small, example))
        row["equal"] = verdict(row["difference"])
    del plain
    with noted(row, "step"):
        step(learner, example, lambda: learner.penalty().sum())
        slopes = [tau.grad for tau in learner.controller_parameters()]
        if any(slope is None or not bool(torch.isfinite(slope).all()) for slope in slopes):
            raise ValueError("a size without a finite gradient")
        learner.zero_grad()
    with noted(row, "deployed"):
        small = learner.deploy(example=example, unsettled="allow")
    if row["deployed"] != "yes":
        return
    with noted(row, "saved"):
        ngn.save(small, folder / "small.safetensors")
        torch.save(outputs(small, example), folder / "outputs.pt")
    with noted(row, "exported"):
        small.eval()
        args, named = arguments(copied(example))
        with torch.no_grad():
            program = torch.export.export(small, args, named).module()
        row["exported"] = verdict(apart(outputs(small, example), outputs(program, example)))


def check_loaded(model: Model, row: Row, folder: Path) -> None:
    """In a fresh process: build the model again, find its sizes again, and load the file."""
    example = example_of(model)
    with noted(row, "loaded"):
        learner = ngn.learn_sizes(fresh(model), example=example)
        small = ngn.load(learner, folder / "small.safetensors")
        row["loaded"] = verdict(apart(torch.load(folder / "outputs.pt"), outputs(small, example)))
