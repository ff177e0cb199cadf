"""Copies of a model that share no state with it: ``deepcopy`` shares functions with all that they hold, and weak
references."""

from __future__ import annotations

import copy
import gc
import operator
import sys
import weakref
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

WEAK = (weakref.ref, *weakref.ProxyTypes, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)
CONSTANT = (type, ModuleType, CodeType, FrameType, bool, int, float, complex, str, bytes, type(None), torch.dtype)
"""What holds no state of a model."""
ELSEWHERE = ("torch.distributed", "torch._C")
"""Where the types of what stands for other processes and devices are."""


class CopyError(ValueError):
    """A model holds something that cannot be copied."""


def duplicate(model: nn.Module, memo: Mapping[int, Any]) -> tuple[nn.Module, dict[int, Any]]:
    """Copy ``model`` deeply, with the functions that hold parts or state of it; ``memo``: the copies of some, by ids.

    A hook that is a closure over a dictionary of the model then reads and writes that of the copy. What the classes of
    its modules hold is as global as they are, and stays shared. The result is the copy, and the memo with all copies.
    It is a :class:`CopyError` if something cannot be copied, with the module and the attribute.
    """
    copies = _Copies(model, memo)
    try:
        return copy.deepcopy(model, copies), copies
    except Exception as fault:
        raise CopyError(
            f"{_uncopied(model, memo)} holds what cannot be copied ({fault}), and the small model is a copy. Remove it "
            "before, and set it again on the result"
        ) from fault


def _uncopied(model: nn.Module, memo: Mapping[int, Any]) -> str:
    """The first attribute that cannot be copied, with its module."""
    copies = _Copies(model, {**memo, **{id(module): module for module in model.modules()}})
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            try:
                copy.deepcopy(value, copies)
            except Exception:
                kind = "a hook" if name.endswith("_hooks") else f".{name}"
                return f"{path or 'the model'}: {kind}"
    return type(model).__name__


class _Copies(dict[int, Any]):
    """The memo of a ``deepcopy`` of ``model``, which also copies functions and weak references when they are met."""

    def __init__(self, model: nn.Module, memo: Mapping[int, Any]) -> None:
        super().__init__(memo)
        self.reached = reached(model)
        self.special: dict[int, Any] = {}
        for key, value in self.reached.items():
            if type(value) in WEAK or (isinstance(value, FUNCTIONS) and _holds(value, set())):
                self.special[key] = value
            elif isinstance(value, Tensor):
                if not value.is_leaf and key not in self:  # a result of a forward pass, which deepcopy refuses
                    self[key] = value.detach().clone()
            elif isinstance(value, (ModuleType, torch.jit.ScriptFunction)):
                self[key] = value
            elif isinstance(value, torch.jit.ScriptModule):  # it has nothing in common with other modules
                self[key] = copy.deepcopy(value)
        bases = {base for module in model.modules() for base in type(module).__mro__}
        for defined in (value for base in bases if base.__module__[:6] != "torch." for value in vars(base).values()):
            function = getattr(defined, "fget", getattr(defined, "__func__", defined))
            for part in _parts(function) if isinstance(function, FunctionType) else ():
                if not isinstance(part, (*CONSTANT, *FUNCTIONS, nn.Module, Tensor)):  # what is around a local class
                    self.setdefault(id(part), part)

    def get(self, key: int, default: Any = None) -> Any:
        if key not in self and key in self.special:
            self._copy(key, self.special[key])
        return super().get(key, default)

    def _copy(self, key: int, value: Any) -> None:
        """Put a copy of a function or a weak reference in its place."""
        if isinstance(value, FunctionType):
            cells = [(cell, self.setdefault(id(cell), CellType())) for cell in value.__closure__ or ()]
            new = FunctionType(value.__code__, value.__globals__, value.__name__, None, tuple(own for _, own in cells))
            self[key] = new  # before its parts, which may hold it
            new.__module__, new.__qualname__, new.__doc__ = value.__module__, value.__qualname__, value.__doc__
            new.__annotations__ = value.__annotations__
            new.__defaults__, new.__kwdefaults__ = copy.deepcopy((value.__defaults__, value.__kwdefaults__), self)
            vars(new).update(copy.deepcopy(vars(value), self))
            for cell, own in cells:
                if _filled(cell) and not _filled(own):
                    own.cell_contents = copy.deepcopy(cell.cell_contents, self)
        elif isinstance(value, MethodType):
            function, own = value.__func__, copy.deepcopy(value.__self__, self)
            of_class = getattr(type(own), function.__name__, None) is function
            self[key] = MethodType(function if of_class else copy.deepcopy(function, self), own)
        elif isinstance(value, BuiltinFunctionType):
            self[key] = getattr(copy.deepcopy(value.__self__, self), value.__name__)
        elif isinstance(value, (weakref.WeakKeyDictionary, weakref.WeakValueDictionary)):
            weak: Any = type(value)()
            self[key] = weak
            for one, other in value.items():
                weak[self._own(one)] = self._own(other)
        elif type(value) in weakref.ProxyTypes:
            target = next(value.modules(), None) if isinstance(value, nn.Module) else None
            self[key] = value if target is None else weakref.proxy(self._own(target))
        else:
            target = value()
            self[key] = value if target is None else weakref.ref(self._own(target))

    def _own(self, value: Any) -> Any:
        """The copy of what the model also holds by itself; what it only refers to is not its own."""
        return copy.deepcopy(value, self) if id(value) in self.reached else value


def reached(model: nn.Module) -> dict[int, Any]:
    """All objects that ``model`` holds, by their ids, with what functions hold; not what classes and modules do."""
    reached: dict[int, Any] = {}
    work: list[Any] = [model]
    while work:
        value = work.pop()
        if id(value) in reached:
            continue
        reached[id(value)] = value
        if type(value) in weakref.ProxyTypes or isinstance(value, (Tensor, ModuleType, torch.jit.ScriptModule)):
            continue
        parts = _parts(value) if isinstance(value, FunctionType) else gc.get_referents(value)
        work += [part for part in parts if isinstance(part, ModuleType) or not isinstance(part, CONSTANT)]
    return reached


def _filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True


def _parts(function: FunctionType) -> Iterator[Any]:
    """What a function holds: the variables around it, defaults, attributes."""
    yield from (cell.cell_contents for cell in function.__closure__ or () if _filled(cell))
    yield from (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *vars(function).values())


def _holds(value: Any, seen: set[int]) -> bool:
    """Whether ``value`` is or holds what is not constant, so that a copy of it has to be another object."""
    if id(value) in seen or isinstance(value, CONSTANT) or type(value).__module__.startswith(ELSEWHERE):
        return False
    seen.add(id(value))
    if isinstance(value, FunctionType):
        return not _is_global(value) and any(_holds(part, seen) for part in _parts(value))
    if isinstance(value, MethodType):
        return _holds(value.__func__, seen) or _holds(value.__self__, seen)
    if isinstance(value, BuiltinFunctionType):
        return _holds(value.__self__, seen)
    if isinstance(value, (tuple, frozenset)):
        return any(_holds(part, seen) for part in value)
    return True


def _is_global(function: FunctionType) -> bool:
    """Whether a module or a class has the function under its name, so that every model uses this one."""
    if not function.__code__.co_qualname.rpartition(".")[0].endswith("<locals>"):
        return True
    try:
        return operator.attrgetter(function.__qualname__)(sys.modules[function.__module__]) is function
    except (AttributeError, KeyError):
        return False
