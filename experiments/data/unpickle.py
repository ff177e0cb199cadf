"""Read the pickles of old data sets without running any code that they name.

A pickle is a program that may call anything it can import. This reader looks every name up in a short list of numpy's
and scipy's arrays and of containers, and refuses all others.
"""

from __future__ import annotations

import importlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.source import DataError

_ALLOWED: dict[tuple[str, str], tuple[str, str]] = {
    ("numpy.core.multiarray", "_reconstruct"): ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"): ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"): ("numpy", "ndarray"),
    ("numpy", "dtype"): ("numpy", "dtype"),
    ("scipy.sparse.csr", "csr_matrix"): ("scipy.sparse", "csr_matrix"),
    ("scipy.sparse._csr", "csr_matrix"): ("scipy.sparse", "csr_matrix"),
    ("collections", "defaultdict"): ("collections", "defaultdict"),
    ("__builtin__", "list"): ("builtins", "list"),
    ("builtins", "list"): ("builtins", "list"),
    ("_codecs", "encode"): ("_codecs", "encode"),  # Python 3 writes bytes for Python 2 with it
}
"""Name in a pickle → module and name of what it stands for."""


class _Restricted(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            module, name = _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module_name}.{global_name}, which is refused") from None
        return getattr(importlib.import_module(module), name)


def safe_load(content: np.ndarray, path: Path | str) -> Any:
    """Return the object in a pickle: numbers, strings, lists, dictionaries and arrays of numbers.

    A sparse matrix becomes float32 [rows, columns]; duplicate entries add up.

    Args:
        content: uint8 [bytes] of the pickle.
        path: its name, for the message.

    Raises:
        DataError: if it names anything outside the list above, or is damaged.
    """
    try:
        value = _Restricted(io.BytesIO(content.tobytes()), encoding="latin1").load()
        if hasattr(value, "check_format"):
            value.check_format(full_check=True)
            return value.toarray().astype(np.float32)
        if getattr(value, "dtype", np.dtype(int)).kind not in "biuf":
            raise pickle.UnpicklingError(f"an array of {value.dtype} is refused: only plain numbers are read")
        return value
    except Exception as fault:  # a damaged pickle can fail in any way, which makes no difference to the caller
        raise DataError(f"{path}: refused as a pickle: {fault}") from fault
