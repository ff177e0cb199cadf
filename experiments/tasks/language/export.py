"""Export learned low-rank terms as a peft folder, and adapters as safetensors and JSON.

Folders of exported models are whole or absent, with the digests of their files.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ngn
from experiments.core.reading import digest
from experiments.models.adapter import Adapter, attach_adapters
from experiments.tasks.language.fused import join_maps
from ngn.components.low_rank import LowRankLinear
from ngn.cut.truncation import deploy
from ngn.files import FileError, remove_stale_files, system_error, temporary_path, write_atomically
from ngn.integrations.peft import CONFIG, WEIGHTS
from ngn.methods.fixed import FixedCount
from ngn.tensor_files import read_checked, write_checked

SUMS = "SHA256SUMS"
"""The digests of the other files, in the form that ``sha256sum --check`` reads."""

READ = (".json", ".safetensors")
"""Suffixes of the files that hold a model. All of them are listed; other files may be added."""


class ExportError(FileError):
    """An export cannot be written or read, or does not reproduce the model."""


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that gets the name ``path``, with all of its files, if the block ends without an error.

    Of several processes with the same path one succeeds. What killed processes have left beside it is removed.

    Raises:
        ExportError: if ``path`` is there already, and is not an empty folder.
        OSError: if a file cannot be written.
    """
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and not (target.is_dir() and not os.listdir(target)):
        raise ExportError(_taken(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_files(target.parent)
    working = temporary_path(target)
    working.mkdir()
    try:
        try:
            yield working
            _seal(working)
        except OSError as fault:
            fault.filename = str(path)  # not the temporary name
            raise
        except Exception as fault:
            if "os error" not in str(fault):
                raise
            named = system_error(fault)  # safetensors and tokenizers have exceptions of their own for a full disk
            named.filename = str(path)
            raise named from None
        try:
            os.rename(working, target)
        except OSError:
            raise ExportError(_taken(path)) from None
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _seal(folder: Path) -> None:
    """Write the digests of the files in a folder, and flush all to the disk."""
    written = sorted(file for file in folder.rglob("*") if file.is_file())
    sums = "".join(f"{digest(file)}  {file.relative_to(folder).as_posix()}\n" for file in written)
    (folder / SUMS).write_text(sums)
    for place in (*written, folder / SUMS, folder):
        opened = os.open(place, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _taken(path: Path) -> str:
    return f"{path}: exists and is not an empty folder; remove it, or export to another folder"


def check_sums(folder: Path) -> None:
    """Check the files of an exported folder. Folders without digests are those of version 0.1.

    Raises:
        ExportError: if a file is missing or was changed.
    """
    try:
        lines = (folder / SUMS).read_text().splitlines()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as fault:
        raise ExportError(f"{folder / SUMS}: unreadable ({fault})") from None
    listed = {name: found for found, _, name in (line.partition("  ") for line in lines)}
    for name, found in listed.items():
        try:
            same = digest(folder / name) == found
        except (OSError, ValueError):  # ValueError: a name with a zero byte
            same = False
        if not same:
            raise ExportError(f"{folder / name}: missing, changed or damaged: {SUMS} does not match; export it again")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.suffix in READ and name not in listed:
            raise ExportError(f"{path}: is not listed in {SUMS}, which is damaged, or the file is of another model")


EMPTY = "EMPTY.txt"
ADAPTERS = "adapters.safetensors", "adapters.json"


def write_peft(deployed: nn.Module, folder: Path, base: str) -> dict[str, int]:
    """Write the low-rank terms of a deployed model with :func:`ngn.to_peft`; those of q, k and v as of the fused map.

    Args:
        folder: created if missing. Without any term it holds only a note, because peft refuses an empty adapter.
        base: name or path of the pretrained model.

    Returns:
        The rank of every map that has terms.

    Raises:
        ExportError: if peft would read another model, or an upper map is zero.
    """
    for name in (WEIGHTS, CONFIG, EMPTY):
        (folder / name).unlink(missing_ok=True)
    joined = join_maps(deploy(deployed, share_frozen=True))
    terms = {path: part for path, part in joined.named_modules() if isinstance(part, LowRankLinear)}
    if not terms:
        write_atomically(folder / EMPTY, f"No low-rank term was learned. The model equals {base}.\n".encode())
        return {}
    if zero := [path for path, part in terms.items() if not bool(part.up.any())]:
        raise ExportError(f"{folder}: the terms of {', '.join(zero)} are zero, so they were not trained")
    try:
        return ngn.to_peft(joined, folder, base=base)
    except ValueError as fault:
        raise ExportError(str(fault)) from fault


def check_peft(folder: Path, base: Any, deployed: nn.Module, ids: Tensor) -> float:
    """Load a written folder with stock peft beside the pretrained ``base``, and return :func:`logit_difference`.

    Args:
        base: the pretrained model, whose fused maps are put together again; peft modifies it.
    """
    from peft import PeftModel

    base = join_maps(base)
    if (folder / EMPTY).exists():
        return logit_difference(base, deployed, ids, 1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses an old name of transformers
        return logit_difference(PeftModel.from_pretrained(base, folder).eval(), deployed, ids, 1e-4)


@torch.no_grad()
def logit_difference(model: Any, deployed: Any, ids: Tensor, most: float = 1e-5) -> float:
    """Return the largest difference of two models' logits for ``ids`` [N, L], relative to the largest logit.

    Raises:
        ExportError: if the difference exceeds both ``most`` and the precision of the weights.
    """
    ours, theirs = deployed(input_ids=ids).logits.float(), model(input_ids=ids).logits.float()
    difference = float((ours - theirs).abs().max() / ours.abs().max())
    if not difference <= max(most, 8 * torch.finfo(next(deployed.parameters()).dtype).eps):
        raise ExportError(f"the model read back gives logits that differ by {difference:.1e} of the largest")
    return difference


def write_adapters(deployed: nn.Module, folder: Path, base: str) -> dict[str, int]:
    """Write the adapters of a deployed model: weights as safetensors, their description as JSON.

    Returns:
        Number of units of every layer that has an adapter.
    """
    parts = {name: part for name, part in deployed.named_modules() if isinstance(part, Adapter)}
    tensors = {f"{name}.{key}": getattr(part, key) for name, part in parts.items() for key in ("down", "up")}
    units = {name: part.down.shape[0] for name, part in parts.items()}
    described = {"type": "adapter", "formula": "h + up gelu(down h)", "base": base, "layers": units}
    write_checked(folder / ADAPTERS[0], tensors)
    write_atomically(folder / ADAPTERS[1], (json.dumps(described, indent=2) + "\n").encode(), replace=True)
    return units


def load_adapters(model: nn.Module, folder: Path) -> nn.Module:
    """Return the pretrained ``model``, frozen, with the adapters that :func:`write_adapters` wrote to a folder.

    Raises:
        ExportError: if a file was changed or is damaged, or the two files of the folder do not match.
        ValueError: if the model lacks one of the layers.
        OSError: if a file cannot be read.
    """
    check_sums(folder)
    try:
        units: dict[str, int] = dict(json.loads((folder / ADAPTERS[1]).read_bytes())["layers"])
    except (ValueError, KeyError, TypeError, RecursionError) as fault:
        raise ExportError(f"{folder / ADAPTERS[1]}: damaged ({fault})") from None
    tensors, _ = read_checked(folder / ADAPTERS[0])
    if tensors.keys() != {f"{name}.{key}" for name in units for key in ("down", "up")}:
        raise ExportError(f"{folder}: {ADAPTERS[0]} and {ADAPTERS[1]} come from different models")
    sizes: Sequence[int] = list(units.values())
    for features in {tensors[f"{name}.up"].shape[0] for name in units}:
        attach_adapters(model, list(units), features, lambda number: FixedCount(sizes[number], r=1.0), seed=0)
    for name in units:
        for key in ("down", "up"):
            model.get_submodule(name).get_parameter(key).data.copy_(tensors[f"{name}.{key}"])
    return deploy(model, share_frozen=True) if units else model.eval()
