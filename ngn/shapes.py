"""Save and load deployed models. Where a file does not say what was cut, shapes say how to cut a fresh model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import is_frozen, places_in, value_of
from ngn.components.attention import with_stock_attention
from ngn.components.low_rank import Bottleneck
from ngn.cut import cut_copy, distinct
from ngn.cut.copying import duplicate
from ngn.cut.modules import update_adapters, without_parametrizations
from ngn.cut.truncation import without_tensors
from ngn.cuts import Choice, is_stack, owned
from ngn.differences import check_deployed, own_sizes, resize
from ngn.files import FileError
from ngn.front import FrontLearner
from ngn.front.family import FRONT, member_of, said_of, take_family
from ngn.learner import Learner
from ngn.tensor_files import read_checked, tensors_digest, tensors_of, write_checked
from ngn.tracing.found import listed

FROZEN, TIED, SIZES = "frozen_sha256", "tied", "sizes"
"""Metadata of a file: the digest of frozen parameters left out; as JSON, further names of tensors, and what was cut."""
AS_TRAINED = "Build the model, and call ngn.learn_sizes, as for the training"


def save(model: nn.Module, path: str | Path, frozen: bool = True) -> None:
    """Write the parameters and buffers of a deployed model as safetensors, a tied tensor once.

    Of a learner of a front, the file holds the whole family: :func:`load` cuts its members.

    The file is complete or absent, and holds a SHA-256 of its content, which :func:`load` checks. If ``path`` is a
    link, the file that it leads to is written.

    Args:
        frozen: also write frozen parameters. Without them the file holds their digest, and :func:`load` uses those of
            its model if they agree.

    Raises:
        TypeError: if the model is a learner.
        ValueError: if sizes are still learned, or the model has a state that is no tensor.
        OSError: if the file cannot be written, or ``path`` is a folder or a device.

    >>> import tempfile, torch, ngn
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     ngn.save(torch.nn.Linear(3, 2), file.name)
    """
    metadata: dict[str, str] = {}
    family: dict[str, Tensor] = {}
    if isinstance(model, FrontLearner):
        model, family, metadata[FRONT] = said_of(model)
    check_deployed(model, "save")
    tensors = tensors_of(model)
    if others := [name for name, value in tensors.items() if not isinstance(value, Tensor)]:
        raise ValueError(f"a file holds tensors only, and {listed(others)} is none: leave it out of get_extra_state()")
    left_out = {name: value for name, value in tensors.items() if not frozen and is_frozen(value)}
    kept = {name: value for name, value in tensors.items() if name not in left_out}
    metadata |= {FROZEN: _digest(left_out)} if left_out else {}
    first = {id(value): name for name, value in tensors.items()}
    every = model.state_dict(keep_vars=True).items()
    if tied := {name: held for name, value in every if (held := first.get(id(value), name)) != name and held in kept}:
        metadata[TIED] = json.dumps(tied, sort_keys=True)
    if sizes := own_sizes(model):
        metadata[SIZES] = json.dumps(sizes, sort_keys=True)
    write_checked(path, kept | family, metadata)


def load(model: nn.Module, path: str | Path, budget: str | float | None = None) -> nn.Module:
    """Load a deployed model from a file of :func:`save`.

    Args:
        model: the plain model. A file that does not say what was cut needs it with learned sizes, as for the training,
            with at least as many components on every axis; or its learner. It is not modified. Tensors that the file
            holds may be on the meta device; buffers that it does not hold may not.
        budget: of a front, the cost of the member to cut, or a share of the whole model's such as "40%". None: the
            whole model.

    Returns:
        A copy of ``model`` in eval mode with the sizes and values of the file. It shares the frozen parameters that the
        file leaves out with ``model``. Nothing in a file is run.

    Raises:
        ValueError: if the file is damaged or of another model, a buffer has no values, or the frozen parameters that
            the file leaves out are not those of ``model``, cut in the same order of importance.

    >>> import tempfile, torch, ngn
    >>> from ngn.components.low_rank import LowRankLinear
    >>> from ngn.cut.truncation import deploy
    >>> def model(): return LowRankLinear(torch.nn.Linear(6, 6), ngn.CountGate(8, t0=2.1), seed=0, name="map")
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     ngn.save(deploy(model()), file.name)
    ...     ngn.load(model(), file.name).down.shape
    torch.Size([3, 6])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"load takes a model, then a file; the model is a {type(model).__name__}")
    if isinstance(model, Learner):
        model = model.model
    stored, metadata = read_checked(path)
    family = take_family(stored)
    if budget is not None and FRONT not in metadata:
        raise ValueError(f"{path} holds one model and no front: leave budget= out")
    tied = json.loads(metadata.get(TIED, "{}"))
    stored |= {name: stored[held] for name, held in tied.items()}
    axes = [module for module in model.modules() if isinstance(module, OrderedAxis) and module.cuts]
    if axes and FRONT in metadata:
        raise ValueError(f"{path} holds a front: pass the plain model, before ngn.learn_sizes")
    plain = (SIZES in metadata or FRONT in metadata) and not axes
    if plain:
        result = _resized(model, metadata.get(SIZES, "{}"), stored, path)
    else:
        stacks = [axis for axis in axes if any(is_stack(owned(cut)) for cut in axis.cuts)]
        if stacks and len(stacks) < len(axes):  # cut layers first: the kept ones have new numbers in the file
            model = _shaped(model, stacks, stored, path)
            axes = [module for module in model.modules() if isinstance(module, OrderedAxis) and module.cuts]
        result = _shaped(model, axes, stored, path)
    if callable(tie := getattr(result.eval(), "tie_weights", None)):  # transformers are untied on the meta device
        tie()
    places: dict[int, list[tuple[dict[str, Any], str]]] = {}
    for _, held, name, value in places_in(result):
        places.setdefault(id(value), []).append((held, name))
    wanted = tensors_of(result)
    free = plain and FROZEN in metadata  # learn_sizes may have frozen what the plain model trains
    shared = {n for n, value in wanted.items() if n not in stored and (free or is_frozen(value)) and not value.is_meta}
    alone = {"file": stored.keys() - wanted.keys() - tied.keys(), "model": wanted.keys() - shared - stored.keys()}
    for holder, only in alone.items():
        if only:
            names = listed(sorted(only))
            raise ValueError(f"{path} belongs to another model: only the {holder} has {names}. {AS_TRAINED}")
    if FROZEN in metadata and metadata[FROZEN] != _digest({name: wanted[name] for name in shared}):
        raise ValueError(
            f"{path} leaves frozen parameters out, and those of the model are others: build it with the same "
            "pretrained weights, and learn its sizes with the same by_importance and calibration"
        )
    made: dict[int, nn.Parameter] = {}  # by tensor of the file: what it ties stays so in a model that is not tied yet
    for name, value in wanted.items():
        if name in shared:
            continue
        if stored[name].shape != value.shape:
            given, expected = tuple(stored[name].shape), tuple(value.shape)
            raise ValueError(f"{name} has shape {given} in {path}, but {expected} in the model. {AS_TRAINED}")
        floats = stored[name].is_floating_point() and value.is_floating_point()  # they may have another precision
        if not floats and stored[name].dtype != value.dtype:
            raise FileError(f"{name} has the type {stored[name].dtype} in {path}, but {value.dtype} in the model")
        new: Any = stored[name]
        if isinstance(value, nn.Parameter):
            new = made.setdefault(id(new), nn.Parameter(new, value.requires_grad))
        for held, key in places[id(value)]:
            held[key] = new
    if empty := [name for name, buffer in result.named_buffers() if buffer.is_meta]:
        raise ValueError(
            f"{path} does not hold {', '.join(empty)}, so they must not be on the meta device: build the model on "
            "the CPU, or under accelerate.init_empty_weights()"
        )
    update_adapters(result, deployed=True)
    return member_of(result, family, metadata[FRONT], budget, path) if FRONT in metadata else result


def _resized(model: nn.Module, said: str, stored: Mapping[str, Tensor], path: str | Path) -> nn.Module:
    """Copy the plain ``model``, resized as the file ``path`` says; tensors that it does not replace are shared."""
    result, _ = duplicate(model, {id(value): value for value in tensors_of(model).values()})
    for name, part in [*result.named_modules()]:
        if {f"{name}.{key}".lstrip(".") for key in getattr(part, "parametrizations", ())} & stored.keys():
            without_parametrizations(part, model.get_submodule(name))
    try:
        sizes = json.loads(said)
        resize(result, sizes)
    except (ValueError, RecursionError) as fault:
        raise FileError(f"{path} is damaged or belongs to another model: {fault}") from None
    if lost := sorted(sizes.get("shapes", {}).keys() - stored.keys()):
        raise ValueError(f"{path} leaves out frozen tensors that were cut: {listed(lost)}. Save with frozen=True")
    return result


def _digest(frozen: Mapping[str, Tensor]) -> str:
    """A digest of frozen parameters, the same in single precision and in bfloat16."""
    floats = {name: value.bfloat16() for name, value in frozen.items() if value.is_floating_point()}
    return tensors_digest({**frozen, **floats}, {})


def _shaped(model: nn.Module, axes: list[OrderedAxis], stored: dict[str, Tensor], path: str | Path) -> nn.Module:
    """Copy ``model`` with its ``axes`` cut to the shapes of ``stored``, the tensors of the file ``path``."""
    names = {id(value): name for name, value in tensors_of(model).items()}
    paths = {id(module): name for name, module in model.named_modules()}
    beside = {module.axis for module in model.modules() if isinstance(module, Bottleneck)}
    cuts = {axis: [*distinct(axis).items()] for axis in axes}
    choices = {}
    for axis in axes:
        called, missing = paths[id(axis)] or "the axis", None
        scale = stored.get(f"{paths[id(axis)]}.scale".lstrip("."))
        mask = torch.ones(axis.K, dtype=torch.bool)
        for (key, _, _), cut in cuts[axis]:
            if cut.name in getattr(cut.module, "shared_biases", ()):  # a bank sums it over the components that are left
                continue
            tensor = owned(cut)
            if is_stack(tensor):
                inside = f"{paths[id(tensor)]}."
                size, width = len(tensor), 1
                left = len({name[len(inside) :].split(".")[0] for name in stored if name.startswith(inside)})
                if not left and any(map(is_frozen, tensor.parameters())):
                    continue
            else:
                shape = value_of(cut.module, cut.name).shape
                there = [(other, c) for other in axes for (part, _, _), c in cuts[other] if part == key]
                same = [(other, c.width) for other, c in there if (c.dim - cut.dim) % len(shape) == 0]
                if any(other is not axis for other, _ in same):
                    continue
                name = names.get(key, f"{paths[id(cut.module)]}.{cut.name}".lstrip("."))
                if name not in stored and axis in beside:  # no component was left
                    mask[:] = False
                    break
                if name not in stored:
                    missing = missing or (None if is_frozen(tensor) else name)
                    continue
                if stored[name].dim() != len(shape):
                    wrong = f"{name} has {stored[name].dim()} dimensions, not {len(shape)}"
                    raise ValueError(f"{path} belongs to another model: {wrong}. {AS_TRAINED}")
                size, left = shape[cut.dim], stored[name].shape[cut.dim]
                width = sum(own for _, own in same) * axis.per
            if left > size:
                raise ValueError(f"{path} has more components on {called} than the model. Build the model with more")
            mask[axis.K - (size - left) // width :] = False
            bare = without_tensors(axis)
            mask[:bare] = scale is None or len(scale) > int(mask[bare:].sum())
            break
        else:
            if missing:
                raise ValueError(f"{path} belongs to another model: it does not hold {missing}. {AS_TRAINED}")
            raise ValueError(
                f"the size of {called} does not follow from the tensors of {path}: save with frozen=True, or add a cut "
                "of a tensor that no other axis cuts in that dimension"
            )
        choices[axis] = Choice(axis.in_place(mask), None, scale)
    return with_stock_attention(cut_copy(model, choices, share="frozen"))
