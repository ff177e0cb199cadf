"""The compiled libraries of this package, and the struct that their functions take.

A function takes one struct, ``Job`` of ``training.h``, which is the only declaration. A library contains its text and
the size of the struct. This module makes the ctypes struct from the text and compares the sizes.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from experiments.models.kernels.build import load_library

FOLDER = Path(__file__).parent
_TYPES = {"int64_t": ctypes.c_int64, "double": ctypes.c_double}


def struct_type(declaration: str, size: int) -> type[ctypes.Structure]:
    """Make the ctypes struct of a C declaration, such as ``int64_t n; const float *x, *y;``.

    Args:
        declaration: the fields: int64_t, double, and pointers.
        size: size of the struct in the library, in bytes.

    Raises:
        RuntimeError: if a field has another type, or the struct has another size.
    """
    fields: list[tuple[str, type]] = []
    for line in filter(None, (part.strip() for part in declaration.split(";"))):
        kind, names = re.sub(r"^const ", "", line).split(" ", 1)
        for name in names.split(","):
            pointer = name.strip().startswith("*")
            if not pointer and kind not in _TYPES:
                raise RuntimeError(f"the kernel's struct has a field of an unknown type: {line}")
            fields.append((name.strip(" *"), ctypes.c_void_p if pointer else _TYPES[kind]))
    made = type("Job", (ctypes.Structure,), {"_fields_": fields})
    if ctypes.sizeof(made) != size:
        raise RuntimeError(f"the kernel's struct has {size} bytes, but its declaration {ctypes.sizeof(made)}")
    return made


class Library:
    """A loaded library with the struct that its functions take.

    Raises:
        RuntimeError: if the struct does not match its declaration.
    """

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self.loaded = loaded
        loaded.ngn_job_declaration.restype, loaded.ngn_job_size.restype = ctypes.c_char_p, ctypes.c_int64
        self._job = struct_type(loaded.ngn_job_declaration().decode(), loaded.ngn_job_size())

    def call(self, function: str, values: Mapping[str, int | float | Tensor]) -> None:
        """Call a function with a struct of ``values``. Arrays are contiguous tensors on the CPU.

        Raises:
            RuntimeError: if the values do not match the fields of the struct, or the function refuses them.
            MemoryError: if the function runs out of memory.
        """
        fields = {field[0] for field in self._job._fields_}
        if fields != values.keys():
            raise RuntimeError(f"the kernel's struct and its values differ in {sorted(fields ^ values.keys())}")
        job = self._job(**{n: v.data_ptr() if isinstance(v, Tensor) else v for n, v in values.items()})
        entry = getattr(self.loaded, function)
        entry.restype, entry.argtypes = ctypes.c_int64, [ctypes.c_void_p]
        code = entry(ctypes.byref(job))
        if code:
            if code == 2:
                raise MemoryError("the kernel ran out of memory")
            raise RuntimeError(f"the kernel returned error code {code}")


@functools.cache
def library(name: str) -> Library | None:
    """Return the library of ``<name>.cpp``, or None if it cannot be built. Raises as :class:`Library`."""
    loaded = load_library(FOLDER / f"{name}.cpp")
    return None if loaded is None else Library(loaded)
