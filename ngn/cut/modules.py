"""Repair modules after their tensors were cut: attributes, parametrisations, layer numbers and hooks."""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from ngn.axis import OrderedAxis
from ngn.checks import value_of
from ngn.components.low_rank import Bottleneck
from ngn.cuts import is_conv1d
from ngn.methods.base import Capacity

WHOLE, LAYERS = "_ngn_whole", "_ngn_layers"
"""Where :func:`noted` puts its notes, and where a list of layers has its length before a cut, and what is left."""


def without_parametrizations(module: nn.Module, original: nn.Module) -> None:
    """Turn the parametrised tensors of ``module`` into plain parameters with the values of ``original``."""
    if "parametrizations" in module._modules:
        names = [name for name, _ in module._modules.pop("parametrizations").named_children()]  # type: ignore[union-attr]
        module.__class__ = module.__class__.__bases__[0]
        for name in names:
            module.register_parameter(name, nn.Parameter(value_of(original, name).detach().clone()))


def numbers_of(module: nn.Module) -> dict[str, Any]:
    """The integers and lists of a module and of its configuration, and the shapes of its tensors, by name."""
    config = getattr(vars(module).get("config"), "__dict__", {})
    given = {**vars(module), **{f"config.{name}": value for name, value in config.items() if name[0] != "_"}}
    plain = {
        name: value
        for name, value in given.items()
        if isinstance(value, (int, tuple, list)) and not isinstance(value, bool) and name[0] != "_"
    }
    tensors = (*module._parameters.items(), *module._buffers.items())
    return plain | {name: [*value.shape] for name, value in tensors if value is not None}


@contextmanager
def noted(model: nn.Module) -> Iterator[None]:
    """Let the modules of ``model`` note what a cut within the context changes, as it was before any cut.

    Copies and pickles keep these notes, from which a file says how its model differs from the plain one.
    """
    before = [(m, numbers_of(m)) for m in model.modules() if not isinstance(m, (OrderedAxis, Capacity, Bottleneck))]
    yield
    seen: set[tuple[int, str]] = set()  # several modules may share a configuration: the first one notes it
    for module, old in before:
        new, config = numbers_of(module), id(vars(module).get("config"))
        changed = {n: value for n, value in old.items() if new.get(n, value) != value and (config, n) not in seen}
        seen |= {(config, name) for name in changed if name.startswith("config.")}
        if changed:
            vars(module)[WHOLE] = changed | vars(module).get(WHOLE, {})


def cut_parts(model: nn.Module) -> list[Any]:
    """The tensors and lists of layers of ``model`` that were ever cut."""
    held = [({**part._parameters, **part._buffers}, vars(part).get(WHOLE, {})) for part in model.modules()]
    tensors = [tensors[name] for tensors, noted in held for name in noted if name in tensors]
    return tensors + [part for part in model.modules() if LAYERS in vars(part)]


def update_attributes(module: nn.Module, name: str, dim: int) -> None:
    """Set the size attributes of a torch module from its tensor ``name``, which was cut along ``dim``."""
    shape = getattr(module, name).shape
    if isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif is_conv1d(module):
        module.nx, module.nf = module.weight.shape  # type: ignore[assignment,misc]
    elif isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        module.num_embeddings, module.embedding_dim = module.weight.shape
    elif isinstance(module, _ConvNd) and name == "weight":
        if 0 in shape:
            raise ValueError(
                f"torch cannot compute a convolution without channels: give the gate of the axis of {name} delta=0.5"
            )
        size, per_group = module.weight.shape[:2]
        if module.groups > 1:
            if breaks_groups(module, dim, size):
                raise ValueError(
                    "a grouped convolution can only be cut by whole groups: make width a multiple of the group size"
                )
            module.groups = max(1, size // _group(module))
        both = size, per_group * module.groups
        module.in_channels, module.out_channels = both if module.transposed else both[::-1]
    elif isinstance(module, _NormBase):
        module.num_features = shape[0]
    elif isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        module.normalized_shape = tuple(shape)
    elif isinstance(module, nn.PReLU):
        module.num_parameters = shape[0]
    elif isinstance(module, nn.GroupNorm) and name == "weight":
        per_group = module.num_channels // module.num_groups
        module.num_channels, module.num_groups = shape[0], shape[0] // per_group


def breaks_groups(module: nn.Module, dim: int, size: int) -> bool:
    """Whether a cut of the weight along ``dim``, to ``size`` entries, divides a group of a grouped convolution."""
    if not isinstance(module, _ConvNd) or module.groups == 1:
        return False
    return dim % module.weight.dim() != 0 or bool(size % _group(module))


def _group(module: _ConvNd) -> int:
    """The entries of one group along dimension 0 of the weight, which has the inputs in a transposed convolution."""
    return (module.in_channels if module.transposed else module.out_channels) // module.groups


def update_adapters(model: nn.Module, deployed: bool = False) -> None:
    """Let the LoRA layers of peft in ``model``, and its configurations, name the ranks that are left after a cut.

    peft loads an adapter into layers that it builds from a configuration. Their scale follows from alpha and the rank,
    so alpha is changed with the rank. If no configuration describes a deployed copy, its ``save_pretrained`` says so.
    A merged adapter that was cut is a ValueError, since the base holds all of its components.
    """
    if "peft" not in sys.modules:
        return
    for path, layer in _adapted(model).items():
        for adapter, terms in _terms(layer).items():
            r, scale, alpha = layer.r[adapter], layer.scaling[adapter], layer.lora_alpha[adapter]
            rank = terms[0].shape[0] // getattr(layer, "num_experts", 1)
            if rank == r:
                continue
            if adapter in getattr(layer, "merged_adapters", ()):
                raise ValueError(f"{path} has merged the adapter {adapter!r}: call model.unmerge_adapter() before")
            rooted = getattr(layer, "use_rslora", {}).get(adapter, math.isclose(scale * math.sqrt(r), alpha))
            layer.r[adapter], layer.lora_alpha[adapter] = rank, scale * (math.sqrt(rank) if rooted else rank)
    changed = {id(part) for part in cut_parts(model)}
    holders: dict[int, list[Any]] = {}  # a PeftModel, its tuner, and last the base, where names begin
    for module in model.modules():
        if isinstance(configs := getattr(module, "peft_config", None), dict):
            holders.setdefault(id(configs), []).append(module)
    for outer, *_, base in ([*modules, modules[-1]] for modules in holders.values()):
        layers = _adapted(base)
        faults: list[str | None] = []
        for adapter, config in outer.peft_config.items():
            if any(id(term) in changed for layer in layers.values() for term in _terms(layer).get(adapter, ())):
                faults.append(_name_ranks(config, adapter, layers))
        if deployed and (fault := next(filter(None, [*faults, _cut_beside(outer)]), None)):
            outer.save_pretrained = functools.partial(_no_folder, fault)


def _adapted(model: nn.Module) -> dict[str, Any]:
    """The LoRA layers of peft in ``model``, by their paths."""
    return {path: part for path, part in model.named_modules() if _terms(part)}


def _terms(layer: nn.Module) -> dict[str, list[Tensor]]:
    """The tensors with the rank of each adapter of a LoRA layer, the first along dimension 0; {} for other modules."""
    ranks = getattr(layer, "r", None)
    if not isinstance(ranks, dict) or hasattr(layer, "lora_E"):  # AdaLoRA has other ranks
        return {}
    maps = [getattr(layer, f"lora_{name}", {}) for name in ("A", "B", "embedding_A", "embedding_B")]
    found = {key: [getattr(each[key], "weight", each[key]) for each in maps if key in each] for key in ranks}
    return {key: terms for key, terms in found.items() if terms}


def _cut_beside(model: nn.Module) -> str | None:
    """Why an adapter alone does not make a deployed copy: more was cut than ranks, or an axis still multiplies."""
    ranks = {id(term) for layer in _adapted(model).values() for terms in _terms(layer).values() for term in terms}
    scaled = any(isinstance(part, OrderedAxis) and part.scale is not None for part in model.modules())
    if not scaled and all(id(part) in ranks for part in cut_parts(model)):
        return None
    choice = '.without("**.base_layer").only("**.lora_A.*")'
    return f"other sizes than ranks of LoRA were learned, too. To learn the ranks alone, take found{choice}"


def _name_ranks(config: Any, adapter: str, layers: Mapping[str, Any]) -> str | None:
    """Write the ranks of ``layers``, by their paths in the base, into a configuration; say why that does not do."""
    ranks: dict[str, int] = {}
    alphas: dict[str, float] = {}
    for path, layer in layers.items():
        if adapter in _terms(layer):
            variant = type(getattr(layer, "lora_variant", {}).get(adapter)).__name__
            if not variant.startswith(("NoneType", "Dora", "ALora")):
                return f"{variant} may depend on the rank"
            if isinstance(parameter := getattr(layer, "parameter_name", None), str):  # one of target_parameters
                path = f"{re.sub(r'([.]base_layer)+$', '', path)}.{parameter}"
            key = f"^{re.escape(path)}"  # without ^, peft also takes it for longer paths that end so
            ranks[key], alphas[key] = layer.r[adapter], layer.lora_alpha[adapter]
    config.rank_pattern = {key: rank for key, rank in ranks.items() if rank != config.r}
    config.alpha_pattern = {key: alpha for key, alpha in alphas.items() if alpha != config.lora_alpha}
    if getattr(config, "target_modules_to_tie", None):
        return "ensure_weight_tying ties adapters, but their ranks were learned one by one"
    if config.init_lora_weights == "orthogonal":  # it refuses odd ranks, and loading overwrites it
        config.init_lora_weights = True
    if config.init_lora_weights in (True, False, "gaussian", "eva"):
        return None
    return f"init_lora_weights={config.init_lora_weights!r} changes the base by as many components as the rank had"


def guard_folders(model: nn.Module, guarded: bool = True) -> None:
    """Let ``save_pretrained`` in ``model`` refuse as long as others would read masked components as open ones."""
    for module in model.modules():
        if guarded and hasattr(module, "save_pretrained"):
            vars(module)["save_pretrained"] = functools.partial(_whole_folder, module)
        else:
            vars(module).pop("save_pretrained", None)


def _whole_folder(module: Any, *args: object, **options: object) -> Any:
    axes = [part for part in module.modules() if isinstance(part, OrderedAxis) and part.capacity is not None]
    if masked := [axis.name for axis in axes if int(axis.capacity.count().amax()) < axis.K]:
        raise ValueError(
            f"sizes are still learned, and others would read the folder without masks: {', '.join(masked[:4])}. Write "
            "that of learner.deploy(), or keep learner.state_dict() as a checkpoint"
        )
    return type(module).save_pretrained(module, *args, **options)


def _no_folder(fault: str, *args: object, **options: object) -> NoReturn:
    raise ValueError(f"stock peft could not load this adapter: {fault}. ngn.save keeps the whole model")


def keep_layers(layers: nn.ModuleList, numbers: Sequence[int]) -> None:
    """Keep these layers of a list, noting which of the first ones they are; their numbers index the cache of keys."""
    length, left = vars(layers).get(LAYERS, (len(layers), range(len(layers))))
    vars(layers)[LAYERS] = length, [left[number] for number in numbers]
    stay = [layers[number] for number in numbers]
    layers._modules.clear()
    layers.extend(stay)
    for number, layer in enumerate(layers):
        for module in layer.modules():
            if hasattr(module, "layer_idx"):
                module.layer_idx = number  # type: ignore[assignment]


class TrainingHook(functools.partial[Any]):
    """A hook for loading a state that truncation removes."""

    of_training = True


def remove_idle_axes(model: nn.Module) -> None:
    """Remove the axes called by hooks, and these hooks, if no coefficients are left to multiply by.

    Likewise hooks of objects that are ``of_training``.
    """
    axes = [part for part in model.modules() if isinstance(part, OrderedAxis) and part.hooked]
    idle = {id(axis) for axis in axes if axis.capacity is None and axis.scale is None}
    for module in [*model.modules()]:
        remove_calls(module, lambda part: id(part) in idle or getattr(part, "of_training", False))


def remove_calls(module: nn.Module, gone: Callable[[Any], bool]) -> None:
    """Remove the children of ``module`` that are ``gone``, and its hooks that are methods of such objects."""
    names = ("forward_pre_hooks", "forward_hooks", "state_dict_pre_hooks", "load_state_dict_pre_hooks")
    kinds = ("forward_pre_hooks_with_kwargs", "forward_hooks_with_kwargs", "forward_hooks_always_called")
    tables = [getattr(module, f"_{name}") for name in (*names, *kinds)]
    for key, hook in [item for table in tables[: len(names)] for item in table.items()]:
        hook = getattr(hook, "hook", hook)  # torch wraps those for loading
        if gone(getattr(getattr(hook, "func", hook), "__self__", hook)):
            for table in tables:
                table.pop(key, None)
    for name in [name for name, child in module._modules.items() if gone(child)]:
        del module._modules[name]
