"""Read the pickles of old data sets without running any code that they name.

A pickle is a program that may call anything it can import. This reader looks every name up in a short list of
stand-ins and refuses all others. A stand-in takes the recorded state of a numpy or scipy object, checks it, and turns
it into an array.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.errors import DataError


class _Dtype:
    """State of a pickled ``numpy.dtype``: a plain number type and its byte order."""

    def __init__(self, code: str, align: Any = None, copy: Any = None) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"b1|[iu][1248]|f[48]", code):
            raise pickle.UnpicklingError(f"the array type {code!r} is refused: only plain numbers are read")
        self.code, self.order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"the byte order {state[1]!r} is unknown")
        self.order = state[1]


class _Array:
    """State of a pickled ``numpy.ndarray``."""

    def __new__(cls, kind: Any = None, shape: Any = None, code: Any = None) -> _Array:
        if kind is not _NDArray:
            raise pickle.UnpicklingError("an array of another kind than numpy.ndarray is refused")
        return super().__new__(cls)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, kind, fortran, raw = state
        if not isinstance(kind, _Dtype):
            raise pickle.UnpicklingError("an array without a number type is refused")
        # Python 2 wrote the bytes as its str, which arrives as latin-1 text.
        data = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        dtype = np.dtype(kind.order + kind.code)
        array = np.frombuffer(bytearray(data), dtype).reshape(shape, order="F" if fortran else "C")
        self.value = array.astype(dtype.newbyteorder("="), copy=False)


class _NDArray:
    """Stand-in for the name ``numpy.ndarray``, which a pickle only passes as an argument."""

    def __new__(cls) -> _NDArray:
        raise pickle.UnpicklingError("numpy.ndarray is not called here")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("numpy.ndarray has no state here")


class _Csr:
    """State of a pickled ``scipy.sparse.csr_matrix``."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        shape = state.get("_shape", state.get("shape"))
        parts = [state.get(name) for name in ("data", "indices", "indptr")]
        if not (isinstance(shape, tuple) and len(shape) == 2 and all(isinstance(part, _Array) for part in parts)):
            raise pickle.UnpicklingError("not the state of a sparse matrix")
        rows, columns = (int(size) for size in shape)
        data, indices, indptr = (part.value for part in parts if part is not None)
        if len(indptr) != rows + 1 or indptr[0] != 0 or indptr[-1] != len(data) or len(data) != len(indices):
            raise pickle.UnpicklingError("the parts of a sparse matrix do not fit one another")
        if (np.diff(indptr) < 0).any() or (len(indices) and not 0 <= indices.min() <= indices.max() < columns):
            raise pickle.UnpicklingError("a sparse matrix has entries outside its shape")
        self.value = np.zeros((rows, columns), dtype=np.float32)
        # As in scipy, duplicate entries add up.
        np.add.at(self.value, (np.repeat(np.arange(rows), np.diff(indptr)), indices), data)


class _Dict(dict[Any, Any]):
    """A ``defaultdict``, without its default."""

    def __init__(self, factory: Any = None) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a dictionary has no state here")


class _Encode:
    """``_codecs.encode``, which Python 3 uses to write bytes for Python 2."""

    def __new__(cls, text: str, encoding: str) -> bytes:  # type: ignore[misc]
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"the encoding {encoding!r} is refused")
        return text.encode("latin1")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("bytes have no state here")


_ALLOWED: dict[tuple[str, str], type] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _NDArray,
    ("numpy", "dtype"): _Dtype,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): _Dict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _Encode,
}


class _Restricted(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> type:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, which is refused") from None


def _plain(value: Any) -> Any:
    """Replace stand-ins by their arrays, at the top and in dictionaries, which is where data sets have them."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return value.value if isinstance(value, (_Array, _Csr)) else value


def safe_load(content: np.ndarray, path: Path | str) -> Any:
    """Return the object in a pickle: numbers, strings, lists, dictionaries and arrays.

    Sparse matrices become float32 [rows, columns].

    Args:
        content: uint8 [bytes] of the pickle.
        path: its name, for the message.

    Raises:
        DataError: if it names anything outside the list above, or is damaged.
    """
    try:
        return _plain(_Restricted(io.BytesIO(content.tobytes()), encoding="latin1").load())
    except Exception as fault:  # a damaged pickle can fail in any way, which makes no difference to the caller
        raise DataError(f"{path}: refused as a pickle: {fault}") from fault
