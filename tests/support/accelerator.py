"""A made-up accelerator on which the suite really computes, for machines without one.

Its tensors hold tensors of the host and compute with them. So losses, scores and generated tokens are real, backward
passes run in a thread of the device, and an operation that CUDA would refuse is refused:

- operands on two devices, except single numbers of the host in elementwise operations;
- index tensors of the accelerator for a tensor of the host (``FakeTensor`` does not check these);
- random generators of the host.

Inside :func:`accelerator`, every value that the host waits for is counted by the line that asks for it.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, library
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

NAME = "pretended"
ROOT = Path(__file__).parents[2]
aten: Any = torch.ops.aten
COPIES = (aten.copy_.default, aten._to_copy.default)
INDEXED = (
    aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default,
)  # fmt: skip
READ = (
    aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default, aten.masked_select.default,
    aten._unique2.default,
)  # fmt: skip
"""Operations whose result, or its shape, the host waits for."""


class _Module(backend_registration._DummyBackendModule):
    """What torch asks of the module of a backend, in autocast and in checkpointing of activations."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.zeros(1, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        pass

    def device(self, device: Any) -> Any:
        return nullcontext()


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    """Without these answers, every test of the process would find an accelerator."""

    def is_available(self) -> bool:
        return False

    def has_primary_context(self, number: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module(), hook=_Hooks())
DEVICE = torch.device(NAME, 0)


class OnDevice(Tensor):
    """A tensor of the accelerator, with its numbers in ``host``."""

    host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, host: Tensor) -> OnDevice:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls, host.shape, strides=host.stride(), storage_offset=host.storage_offset(), dtype=host.dtype,
            device=DEVICE,
        )  # fmt: skip

    def __init__(self, host: Tensor) -> None:
        self.host = host

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnDevice({self.host})"

    @property
    def data(self) -> Tensor:
        return torch._C.TensorBase.data.__get__(self)  # type: ignore[attr-defined, no-any-return]

    @data.setter
    def data(self, new: OnDevice) -> None:
        torch._C.TensorBase.data.__set__(self, new)  # type: ignore[attr-defined]
        self.host = new.host

    def tolist(self) -> Any:
        return self.cpu().tolist()  # torch has it for its own classes only


_waits: Counter[str] = Counter()


class _Everywhere(TorchDispatchMode):
    """Also sees operations without a tensor of the accelerator, such as ``torch.zeros(3, device=...)``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def accelerator() -> Iterator[Counter[str]]:
    """Offer :data:`DEVICE` within the context. Yield how often the host waited for it: "file:function" → times."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # keeps tied parameters tied
    _waits.clear()
    try:
        with _Everywhere():
            yield _waits
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def _is_ours(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _host(value: Any) -> Any:
    return value.host if isinstance(value, OnDevice) else value


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    leaves = tree_leaves((args, kwargs))
    given = any(isinstance(leaf, OnDevice) for leaf in leaves)
    wanted = kwargs.get("device")
    made_here = _is_ours(wanted) if wanted is not None else given
    _refuse(func, args, leaves, given or made_here)
    _count(func, args, given, made_here)
    plain, named = tree_map(_host, (args, kwargs))
    if _is_ours(wanted):
        named["device"] = torch.device("cpu")
    result = func(*plain, **named)
    if func is aten.copy_.default:
        return args[0]
    if func is aten._local_scalar_dense.default or not made_here:
        return result
    if func is aten._to_copy.default:
        result = result.clone()  # on the host, a copy to the host may be the tensor itself
    wrapped = tree_map(lambda value: OnDevice(value) if isinstance(value, Tensor) else value, result)
    return return_and_correct_aliasing(func, args, kwargs, wrapped) if given else wrapped


def _refuse(func: Any, args: Any, leaves: list[Any], ours: bool) -> None:
    """Raise a RuntimeError where CUDA raises one for its own tensors."""
    if not ours or func in COPIES:
        return
    if any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError(f"{func}: expected a generator of {NAME}, but found one of the cpu")
    of_host = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, OnDevice)]
    if func in INDEXED:
        if not isinstance(args[0], OnDevice):
            raise RuntimeError(f"{func}: indices should be on the cpu, as the indexed tensor is")
        of_host = [value for value in args[2:3] if isinstance(value, Tensor) and not isinstance(value, OnDevice)]
    # Number-like tensors of the host are operands of elementwise operations everywhere.
    if any(tensor.dim() or torch.Tag.pointwise not in func.tags for tensor in of_host) and func not in (
        aten.fill_.Tensor, aten.where.self,
    ):  # fmt: skip
        raise RuntimeError(f"{func}: expected all tensors on one device, but found {DEVICE} and cpu")


def _count(func: Any, args: Any, given: bool, made_here: bool) -> None:
    """Note the caller if the host waits for the result."""
    to_host = func in COPIES and given and not (isinstance(args[0], OnDevice) if "copy_" in str(func) else made_here)
    masked = func in INDEXED and any(
        isinstance(index, OnDevice) and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    )
    if given and (to_host or masked or func in READ):
        suite = str(ROOT / "ngn"), str(ROOT / "experiments")
        frames = (frame for frame in reversed(traceback.extract_stack()) if frame.filename.startswith(suite))
        _waits[next((f"{Path(f.filename).relative_to(ROOT)}:{f.name}" for f in frames), "?")] += 1


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    _host(target).copy_(_host(source))
    return target


KERNELS: tuple[tuple[str, Callable[..., Tensor]], ...] = (
    ("empty.memory_format", lambda size, dtype=None, **_: OnDevice(torch.empty(size, dtype=dtype))),
    ("empty_strided", lambda size, stride, dtype=None, **_: OnDevice(torch.empty_strided(size, stride, dtype=dtype))),
    ("_copy_from", _copy_from),
)  # fmt: skip
"""What ``torch.tensor(..., device=...)`` calls without dispatching to Python."""
_kernels = library.Library("aten", "IMPL")
for _name, _kernel in KERNELS:
    _kernels.impl(_name, _kernel, "PrivateUse1")
