"""Passes of a model that leave it as it was: its axes, its calls and what they return, its modes and values."""

from __future__ import annotations

import copy
import dataclasses
import random
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of an example: a tuple has several, a dictionary named ones."""
    if isinstance(example, dict):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


def is_frozen(value: Tensor) -> bool:
    """Whether ``value`` is a parameter that does not require gradients."""
    return isinstance(value, nn.Parameter) and not value.requires_grad


def places_in(model: nn.Module) -> Iterator[tuple[nn.Module, dict[str, Any], str, Tensor]]:
    """Yield where modules hold parameters and buffers: module, table, name and tensor, a tied one several times."""
    for module in model.modules():
        for table in (module._parameters, module._buffers):
            yield from ((module, table, name, value) for name, value in table.items() if value is not None)


def floating(outputs: Any) -> list[Tensor]:
    """The real or complex tensors in the output of a model, also within data classes."""
    if dataclasses.is_dataclass(outputs) and not isinstance(outputs, (type, Mapping)):
        outputs = vars(outputs)
    if isinstance(outputs, Tensor):
        return [outputs] if outputs.is_floating_point() or outputs.is_complex() else []
    leaves = tree_leaves(outputs)
    return [part for leaf in leaves if leaf is not outputs for part in floating(leaf)]


class Written(TorchDispatchMode):
    """Keeps the values of parameters and buffers of ``model`` that operations within the context write into."""

    supports_higher_order_operators = True

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        tensors = {id(value): value for value in (*model.parameters(), *model.buffers())}
        self.own = [(value, value.data) for value in tensors.values()]
        self.kept: dict[int, Tensor] = {}
        self.swapped: set[int] = set()
        self.places: dict[int, list[int]] = {}
        for number, (_, value) in enumerate(self.own):
            self.places.setdefault(_storage(value), []).append(number)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.swapped |= {n for n, (value, data) in enumerate(self.own) if _storage(value) != _storage(data)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.note(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def note(self, func: Any, args: Any, kwargs: Any) -> None:
        """Keep what ``func`` is about to write into; a batch norm does so without saying it."""
        if isinstance(func, HigherOrderOperator):
            return
        if not func._schema.is_mutable and "batch_norm" not in func._schema.name:
            return
        for argument, value in [*zip(func._schema.arguments, args, strict=False), *kwargs.items()]:
            name = getattr(argument, "name", argument)
            if getattr(argument, "alias_info", True) or name.startswith("running_"):
                for part in value if isinstance(value, (list, tuple)) else (value,):
                    for number in self.places.get(_storage(part), ()) if isinstance(part, Tensor) else ():
                        self.kept.setdefault(number, self.own[number][1].clone())

    @torch.no_grad()
    def put_back(self) -> None:
        """Give these parameters and buffers the values of before."""
        for number in self.swapped:
            self.own[number][0].data = self.own[number][1]
        for number, data in self.kept.items():
            self.own[number][1].copy_(data)


def _storage(value: Tensor) -> int:
    """What tells the memory of a tensor; that of one that consists of others, such as a ``DTensor``, is unknown: 0."""
    try:
        return value.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return 0


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into ``eval()`` mode, and restore the mode of every module afterwards.

    Some layers merge weights in ``eval()`` and undo it in ``train()``. So a ``train()`` that is not torch's is called,
    and what it rounds is put back.
    """
    modes = [(each, each.training) for each in model.modules() if hasattr(each, "training")]  # not of frozen scripts
    with ExitStack() as after:
        if any(training for _, training in modes):
            with Written(model) as entering:
                enter(model, training=False)
            after.callback(entering.put_back)
        try:
            yield
        finally:
            if any(module.training != training for module, training in modes):
                with Written(model) as leaving:
                    set_modes(modes)
                after.callback(leaving.put_back)


def value_of(module: nn.Module, name: str) -> Any:
    """``module.name``; a parametrised tensor in eval mode, since reading some in training mode changes them."""
    parametrised = getattr(module, "parametrizations", {})
    if name not in parametrised:
        return getattr(module, name)
    with evaluating(parametrised[name]):
        return getattr(module, name)


def enter(model: nn.Module, training: bool) -> None:
    """Put ``model`` into train or eval mode; an :class:`ExampleError` if a part of it has only one."""
    try:
        model.train() if training else model.eval()
    except NotImplementedError as fault:
        raise ExampleError(
            f"a part of the model has no other mode ({fault}): an exported program computes in one mode only. Use the "
            "module that it was exported from"
        ) from fault


def set_modes(modes: Sequence[tuple[nn.Module, bool]]) -> None:
    """Put each module into its mode, those around it first: an own ``train()`` also sets the modules within."""
    for module, training in modes:
        if module.training != training:
            if getattr(module.train, "__func__", None) is not nn.Module.train:
                module.train(training)
            module.training = training


@contextmanager
def own_randomness() -> Iterator[None]:
    """Give random numbers of torch, Python and NumPy their state of before at the end."""
    python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's own stream
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(of_numpy)  # noqa: NPY002


def snapshot(model: nn.Module) -> Callable[[], None]:
    """Note the attributes of all modules, with what is in containers among them; the result puts them back.

    Likewise those of parameters and plain objects, where quantised layers keep how their values are laid out.
    """
    kinds = [(module, type(module)) for module in model.modules()]
    held = [*model.parameters(), *(value for module, _ in kinds for value in vars(module).values())]
    held += [value for each in held if _is_plain(each) for value in vars(each).values()]
    tables: list[Any] = [vars(each) for each in (*(module for module, _ in kinds), *filter(_is_plain, held))]
    tables += [each for each in held if isinstance(each, (dict, list, set, deque))]
    contents = [(table, table.copy()) for table in {id(table): table for table in tables}.values()]
    trained = [(p, p.requires_grad) for p in model.parameters()]

    def put_back() -> None:
        for table, content in contents:  # keep the containers themselves: handles of hooks refer to them
            table.clear()
            (table.extend if isinstance(table, (list, deque)) else table.update)(content)
        for module, kind in kinds:
            if type(module) is not kind:  # scripted modules would set it elsewhere
                module.__class__ = kind
        for p, wanted in trained:
            p.requires_grad_(wanted)

    return put_back


def _is_plain(value: object) -> bool:
    return hasattr(value, "__dict__") and not callable(value) and not isinstance(value, ModuleType)


@contextmanager
def untouched(model: nn.Module) -> Iterator[Written]:
    """Put back what passes in any mode change: modes, values, attributes, random numbers.

    What it yields notes values that are written into, in operations within its context or given to its ``note``.
    """
    modes = [(each, each.training) for each in model.modules() if hasattr(each, "training")]
    written, put_back = Written(model), snapshot(model)
    try:
        with own_randomness():
            yield written
    finally:
        with written:
            set_modes(modes)
        put_back()
        written.put_back()


Also = Mapping[str, Sequence[Any]]
"""Further inputs of a model, by the method that takes them."""
NONE: Also = MappingProxyType({})


def calls_of(example: Any, also: Also) -> list[tuple[str, Any]]:
    """Calls of a model: the name of the method, and an input of it; ``also``: method → further inputs."""
    if not isinstance(also, Mapping) or not all(isinstance(given, (list, tuple)) for given in also.values()):
        kind = type(also).__name__ + " with other values" * isinstance(also, Mapping)
        raise TypeError(f"also= takes a dictionary, method -> list of inputs: also={{'forward': [x]}}, not a {kind}")
    further = [(method, given) for method, several in also.items() for given in several]
    return [("forward", example), *further]


def summed(value: Tensor) -> Tensor:
    """``value``, summed in place over the processes of a distributed training."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.all_reduce(value)
    return value


FAULTS = (RuntimeError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError)
"""What a model raises that does not fit an input, or its own cut tensors."""


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run compiled parts as they are written, so that a trace sees all operations, and hooks compile nothing."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and the import takes seconds
        yield
    else:
        with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
            for said in ("Using `torch.compile", "flex_attention called without"):  # what is not compiled, or is hooked
                warnings.filterwarnings("ignore", said)
            yield


def summary(fault: Exception) -> str:
    """The first line of a message; TorchScript says at the end what is wrong."""
    lines = str(fault).strip().splitlines() or [type(fault).__name__]
    return lines[-1 if "TorchScript" in lines[0] else 0]


def called(model: nn.Module, example: Any, method: str = "forward") -> Any:
    """The result of a method of ``model`` on a copy of ``example``."""
    args, named = arguments(copied(example))
    with uncompiled():
        return (model if method == "forward" else getattr(model, method))(*args, **named)


class ExampleError(ValueError):
    """The model itself fails on the example, at any size."""


def outputs_on(model: nn.Module, example: Any, method: str = "forward") -> list[Tensor]:
    """The floating-point tensors that a method returns for a copy of ``example``; else an :class:`ExampleError`."""
    try:
        return floating(called(model, example, method))
    except FAULTS as fault:
        hint = {list: ". Give several arguments as a tuple", np.ndarray: ". Give a tensor: torch.from_numpy(example)"}
        raise ExampleError(f"the model fails on the example: {summary(fault)}{hint.get(type(example), '')}") from fault


def copied(example: Any) -> Any:
    """A copy of the example, which the model may write into; caches in it are copied, too."""
    tensors = [part for part in tree_leaves(example) if isinstance(part, Tensor)]
    return copy.deepcopy(example, {id(tensor): tensor.detach().clone() for tensor in tensors})
