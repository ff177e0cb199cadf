"""The same for Torch-Pruning: every group at half, the smallest norms removed."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from zoo.comparing import Row, apart, batch_of, fresh, loss_of, noted, outputs, parameters, verdict
from zoo.models import Model

from ngn.checks import arguments, copied


def check(model: Model, row: Row, last: list[str]) -> None:
    """Hold Torch-Pruning against a model, and note it in ``row``.

    Args:
        last: the modules whose results are outputs of the model. Torch-Pruning would cut them, and is told not to.
    """
    import torch_pruning as tp

    whole, example = fresh(model), batch_of(model.example)
    plain = copy.deepcopy(whole)
    args, named = arguments(copied(example))
    wanted = outputs(whole, example)
    removed: dict[nn.Module, list[int]] = {}
    left: dict[nn.Module, list[int]] = {}
    with noted(row, "cut", quiet=True):
        pruner = tp.BasePruner(
            whole,
            dict(named) if named else args[0] if len(args) == 1 else args,
            tp.importance.GroupMagnitudeImportance(),
            pruning_ratio=0.5,
            ignored_layers=[whole.get_submodule(name) for name in last],
            in_channel_groups={},  # their defaults are shared between calls
            out_channel_groups={},
            num_heads={},
        )
        for group in pruner.step(interactive=True):
            for dep, idxs in group.items:
                layer = dep.target.module
                if not pruner.DG.is_in_channel_pruning_fn(dep.handler) or not isinstance(layer, (nn.Linear, _ConvNd)):
                    continue
                if 1 < getattr(layer, "groups", 1) == layer.in_channels:
                    continue  # it reads no other units than its own
                size = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
                now = left.setdefault(layer, [*range(size)])
                gone = {now[int(number)] for number in _plain(idxs)}
                removed.setdefault(layer, []).extend(gone)
                left[layer] = [each for each in now if each not in gone]
            group.prune()
        row["left"] = parameters(whole) / parameters(plain)
        if row["left"] == 1:
            raise ValueError("it removes nothing")
    if row["cut"] != "yes":
        return
    with noted(row, "runs", quiet=True):
        got = outputs(whole, example)
        if [value.shape for value in got] != [value.shape for value in wanted]:
            row["runs"] = "outputs of another shape"
    if row["runs"] != "yes":
        return
    with noted(row, "equal", quiet=True):
        paths = {id(module): path for path, module in whole.named_modules()}
        for layer, entries in removed.items():
            _zero(plain.get_submodule(paths[id(layer)]), entries)
        row["difference"] = apart(outputs(plain, example), got)
        row["equal"] = verdict(row["difference"])
    with noted(row, "step", quiet=True):
        step(whole, example)


def step(model: nn.Module, example: Any) -> None:
    """Train one step.

    Raises:
        ValueError: if the loss is not finite, or nothing has a gradient.
    """
    loss_of(model.train(), example).backward()
    if not any(value.grad is not None and bool(value.grad.any()) for value in model.parameters()):
        raise ValueError("no gradient")
    torch.optim.SGD([value for value in model.parameters() if value.requires_grad], 1e-4).step()


def _zero(layer: Any, entries: list[int]) -> None:
    """Give a linear layer or a convolution weights of zero for some of its inputs."""
    weight, groups = layer.weight.data, getattr(layer, "groups", 1)
    if isinstance(layer, _ConvNd) and layer.transposed:
        weight.index_fill_(0, torch.tensor(entries), 0.0)
        return
    size, outs = weight.shape[1], len(weight) // groups
    for entry in entries:
        group, number = divmod(entry, size)
        weight[group * outs : (group + 1) * outs, number] = 0.0


def _plain(idxs: Any) -> list[int]:
    return [int(getattr(each, "idx", each)) for each in idxs]
