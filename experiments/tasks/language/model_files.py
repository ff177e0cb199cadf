"""The files of a pretrained model in a folder: which are read, their digests, and what is refused before loading.

transformers follows names that files of the folder give: shards in an index, weights in the configuration, tokenizers,
the base of an adapter. All such names must be those of files that are hashed, or the digest would not identify the
model.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from experiments.data.fetch import known_digest
from experiments.data.source import DataError

FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")
"""Files read from a folder or a repository; never code."""
TEMPLATES = "additional_chat_templates"
"""The only folder inside a model's folder that transformers reads."""
SETTINGS = {"generation_config.json", "special_tokens_map.json", "added_tokens.json"}
"""Files that transformers leaves out without a word if they are damaged."""


def digests_of(folder: Path, root: Path) -> dict[str, str]:
    """Return the digest of each file that loading the model in ``folder`` can read, by its name in the folder.

    Args:
        root: the data root, for notes of the digests of large files.

    Raises:
        DataError: if a file cannot be read, lies elsewhere, or names a file that is not among them.
    """
    top = {path for pattern in FILES for path in folder.glob(pattern)}
    paths = {path.relative_to(folder).as_posix(): path for path in {*top, *(folder / TEMPLATES).glob("*.jinja")}}
    digests = {}
    for name, path in sorted(paths.items()):
        try:
            _require_inside(path, folder)
            digests[name] = known_digest(path, root)
        except OSError as fault:
            raise DataError(f"{path}: unreadable ({fault.strerror or fault})") from None
    if "adapter_config.json" in paths:
        raise DataError(f"{folder}: holds an adapter (adapter_config.json); merge it into its model first")
    for name in sorted(paths):
        if name.endswith(".index.json"):
            for shard in _names(_object(paths[name]).get("weight_map"), paths[name]):
                _require_named(shard, paths[name], digests, ".safetensors")
    for name in SETTINGS & paths.keys():
        _object(paths[name])
    if (weights := _object(folder / "config.json").get("transformers_weights")) is not None:
        _require_named(weights, folder / "config.json", digests, (".safetensors", ".safetensors.index.json"))
    if "tokenizer_config.json" in paths:
        listed = _object(paths["tokenizer_config.json"]).get("fast_tokenizer_files", [])
        for each in listed if isinstance(listed, list) else [listed]:
            _require_named(each, paths["tokenizer_config.json"], digests, ".json")
    return digests


def _require_inside(path: Path, folder: Path) -> None:
    """Raise a DataError if ``path`` is no ordinary file of ``folder``, or of the hub's cache that the folder is in."""
    real, whole = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    allowed = [whole, whole.parent.parent / "blobs"] if whole.parent.name == "snapshots" else [whole]
    if not stat.S_ISREG(real.stat().st_mode):
        raise DataError(f"{path}: is no ordinary file")
    if not any(real.is_relative_to(place) for place in allowed):
        raise DataError(f"{path}: is a link to {real}, outside the folder; put the file itself there")


def _object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as fault:
        raise DataError(f"{path}: unreadable ({fault})") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: is not a JSON object")
    return content


def _names(shards: Any, index: Path) -> list[Any]:
    if not isinstance(shards, dict) or not shards:
        raise DataError(f"{index}: has no weight_map from tensors to files")
    return list(dict.fromkeys(map(str, shards.values())))


def _require_named(name: Any, by: Path, digests: dict[str, str], suffix: str | tuple[str, ...]) -> None:
    """Raise a DataError if a name in the file ``by`` is not that of a hashed file with this suffix."""
    if not isinstance(name, str) or not name.endswith(suffix):
        raise DataError(f"{by}: names {name!r}, but only files of safetensors and JSON are read")
    if name not in digests:
        raise DataError(f"{by}: names {name!r}, which is not a file of this folder")
