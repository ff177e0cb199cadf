"""Export deployed models as programs, which run without the model's Python class."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ngn.checks import arguments
from ngn.comparison import check_equal
from ngn.differences import check_deployed
from ngn.files import chosen_file, remove_stale_files, temporary_path, write_atomically


def export(model: nn.Module, path: str | Path, example: Any, batch: bool = True) -> None:
    """Write a deployed model as a program, which runs without its class: ``.pt2`` for ``torch.export.load``, ``.onnx``.

    Args:
        model: the result of :meth:`~ngn.learner.Learner.deploy`.
        example: an input; a tuple for several arguments, a dictionary for named ones.
        batch: let the first dimension of every tensor in the example have any length, the same for all.

    Raises:
        TypeError: if the model is a learner.
        ValueError: if sizes are still learned, the suffix is unknown, the example has one sample, or the model would
            return a cache. Also if the ``.pt2`` program differs from the model on the example.
        OSError: if the file cannot be written, or ``path`` is a folder or a device.
        ImportError: if ``.onnx`` is asked for and ONNX is not installed.

    >>> import tempfile, torch, ngn
    >>> mlp, x = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)), torch.randn(4, 3)
    >>> small = ngn.learn_sizes(mlp, {"": ngn.Width(8, t0=2.0)}, example=x).deploy(unsettled="allow")
    >>> with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
    ...     ngn.export(small, file.name, example=x)
    ...     torch.export.load(file.name).module()(torch.randn(7, 3)).shape
    torch.Size([7, 2])
    """
    path = Path(path)
    check_deployed(model, "export")
    if path.suffix not in (".pt2", ".onnx"):
        raise ValueError(f"{path.name}: the suffix must be .pt2 (torch) or .onnx")
    args, named = arguments(example)
    config = getattr(model, "config", None)
    if getattr(config, "use_cache", False) and named.get("use_cache", True):
        raise ValueError("a program cannot return a cache of keys and values: set model.config.use_cache = False")
    dim = torch.export.Dim("batch")

    def first(value: Any) -> Any:
        if not batch or not isinstance(value, Tensor) or not value.dim():
            return None
        if len(value) == 1:
            raise ValueError(
                "a program for any batch size needs an example of two samples or more; for one sample, pass batch=False"
            )
        return {0: dim}

    shapes = tree_map(first, named or args)
    model.eval()
    if path.suffix == ".onnx":
        if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
            raise ImportError(f"ONNX needs more packages: pip install {' '.join(missing)}")
        with torch.no_grad():
            program = torch.onnx.export(model, args, kwargs=named, dynamo=True, dynamic_shapes=shapes, verbose=False)
        assert program is not None
        _write(path, program.save)
        return
    with torch.no_grad():
        exported = torch.export.export(model, args, named, dynamic_shapes=shapes)
    check_equal(model, exported.module(), example)
    _write(path, functools.partial(torch.export.save, exported))


def _write(path: Path, save: Callable[[str], object]) -> None:
    """Let ``save`` write a program and its files of large tensors, if any, to ``path``; the program comes last."""
    file = chosen_file(path)
    remove_stale_files(file.parent)
    place = temporary_path(file)
    place.mkdir(parents=True)
    try:
        save(str(place / file.name))
        for written in sorted(place.iterdir(), key=lambda one: one.name == file.name):
            write_atomically(file.with_name(written.name), functools.partial(os.replace, written), replace=True)
    finally:
        shutil.rmtree(place)
