"""Deployed models in files: what is stored are tensors, and their shapes say how far a fresh model is to be cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from ngn.axis import OrderedAxis
from ngn.checks import axes_of, is_frozen, tensors_of
from ngn.components.low_rank import Bottleneck
from ngn.contract import Learner
from ngn.cut_modules import value_of
from ngn.files import publish_tensors
from ngn.truncation import Choice, is_stack, owned, truncated, without_tensors


def check_deployed(model: nn.Module, call: str) -> None:
    """Refuse what still learns its sizes, for a function that is named ``call``."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{call} takes a model and a file, not a {type(model).__name__}")
    if isinstance(model, Learner):
        raise TypeError(f"{call} takes a deployed model: {call}(learner.deploy(), ...)")
    if axes_of(model):
        raise ValueError("the model has sizes that are still learned: deploy it first")


def save(model: nn.Module, path: str | Path, frozen: bool = True) -> None:
    """Write the parameters and buffers of a deployed model as safetensors, a tied tensor once.

    Args:
        frozen: whether frozen parameters are written, too; without them :func:`load` takes those of its model.

    Raises:
        TypeError: if the model is a learner.
        ValueError: if sizes are still to be learned.

    >>> import tempfile, torch, ngn
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     ngn.save(torch.nn.Linear(3, 2), file.name)
    """
    check_deployed(model, "save")
    kept = {name: value for name, value in tensors_of(model).items() if frozen or not is_frozen(value)}
    publish_tensors(Path(path), kept)


def load(model: nn.Module, path: str | Path) -> nn.Module:
    """A deployed model from a file of :func:`save`.

    Args:
        model: built as the trained one was, with at least as many components on every axis; or its learner. Values
            that the file holds do not matter, so such parameters may be on the meta device, but not buffers that no
            file holds. It is left as it is.

    Returns:
        A copy of ``model``, in eval mode, with the sizes and the values of the file. Frozen parameters that the file
        leaves out are the model's own, shared with it.

    Raises:
        ValueError: if the file is damaged or not of such a model, or a buffer has no values.

    >>> import tempfile, torch, ngn
    >>> def model(): return ngn.LowRankLinear(torch.nn.Linear(6, 6), ngn.CountGate(8, t0=2.1), seed=0, name="map")
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     ngn.save(ngn.deploy(model()), file.name)
    ...     ngn.load(model(), file.name).down.shape
    torch.Size([3, 6])
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"load takes a model and a file, not a {type(model).__name__}")
    if isinstance(model, Learner):
        model = model.model
    try:
        stored = safetensors.torch.load(Path(path).read_bytes())
    except safetensors.SafetensorError as fault:
        raise ValueError(f"{path} is no file of ngn.save, or damaged ({fault})") from None
    axes = [module for module in model.modules() if isinstance(module, OrderedAxis) and module.cuts]
    stacks = [axis for axis in axes if any(is_stack(owned(cut)) for cut in axis.cuts)]
    if stacks and len(stacks) < len(axes):  # first, as the layers that stay have other names in the file
        model = _shaped(model, stacks, stored, path)
        axes = [module for module in model.modules() if isinstance(module, OrderedAxis) and module.cuts]
    result = _shaped(model, axes, stored, path).eval()
    if callable(
        tie := getattr(result, "tie_weights", None)
    ):  # transformers' models: on the meta device they are not tied
        tie()
    places: dict[int, list[tuple[dict[str, Any], str]]] = {}
    for module in result.modules():
        for held in (module._parameters, module._buffers):
            for name, value in held.items():
                if value is not None:
                    places.setdefault(id(value), []).append((held, name))
    wanted = tensors_of(result)
    shared = {name for name, value in wanted.items() if is_frozen(value) and not value.is_meta} - stored.keys()
    if wanted.keys() - shared != stored.keys():
        raise ValueError(f"{path} is of another model: they differ in {sorted(wanted.keys() - shared ^ stored.keys())}")
    for name, value in wanted.items():
        if name in shared:
            continue
        if stored[name].shape != value.shape:
            hint = "" if axes else "; call ngn.learn_sizes on the model first, as before the training"
            raise ValueError(
                f"{name} has the shape {tuple(stored[name].shape)} in {path}, not {tuple(value.shape)}{hint}"
            )
        new: Any = stored[name]
        if isinstance(value, nn.Parameter):
            new = nn.Parameter(new, value.requires_grad)
        for held, key in places[id(value)]:
            held[key] = new
    if empty := [name for name, buffer in result.named_buffers() if buffer.is_meta]:
        raise ValueError(
            f"no file holds {', '.join(empty)}, which must not be on the meta device: build the model under "
            "accelerate.init_empty_weights(), or on the CPU"
        )
    return result


def _shaped(model: nn.Module, axes: list[OrderedAxis], stored: dict[str, Tensor], path: str | Path) -> nn.Module:
    """A copy of ``model`` with its ``axes`` cut to the shapes of ``stored``, which ``path`` holds."""
    names = {id(value): name for name, value in tensors_of(model).items()}
    paths = {id(module): name for name, module in model.named_modules()}
    beside = {module.axis for module in model.modules() if isinstance(module, Bottleneck)}
    dims = [(id(owned(cut)), cut.dim, axis) for axis in axes for cut in axis.cuts]
    choices = {}
    for axis in axes:
        scale = stored.get(f"{paths[id(axis)]}.scale".lstrip("."))
        mask = torch.ones(axis.K, dtype=torch.bool)
        for cut in axis.cuts:
            tensor = owned(cut)
            alone = all(other is axis for part, dim, other in dims if (part, dim) == (id(tensor), cut.dim))
            if is_stack(tensor):
                inside = f"{paths[id(tensor)]}."
                size, width = len(tensor), 1
                left = len({key[len(inside) :].split(".")[0] for key in stored if key.startswith(inside)})
            elif tensor is not None and alone and not cut.merge:
                name = names.get(id(tensor), f"{paths[id(cut.module)]}.{cut.name}".lstrip("."))
                if name not in stored and axis in beside:  # truncated to none, it vanished
                    mask[:] = False
                    break
                if name not in stored:
                    raise ValueError(f"{path} holds no {name}: it is of another model")
                size, left = value_of(cut.module, cut.name).shape[cut.dim], stored[name].shape[cut.dim]
                width = sum(c.width for c in axis.cuts if owned(c) is tensor and c.dim == cut.dim)
            else:
                continue
            if left > size:
                raise ValueError(f"the model needs more components on {paths[id(axis)] or 'its axis'} to hold {path}")
            mask[axis.K - (size - left) // width :] = False
            bare = without_tensors(axis)
            mask[:bare] = scale is None or len(scale) > int(mask[bare:].sum())
            break
        else:
            raise ValueError(
                f"the size of {paths[id(axis)] or 'the axis'} cannot be told from the shapes of its tensors"
            )
        choices[axis] = Choice(axis.in_place(mask), None, scale)
    return truncated(model, choices, share="frozen")
