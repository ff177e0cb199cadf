"""Convert a model from one GGUF file to a folder of safetensors, which every tool loads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from experiments.data.source import DataError, require_packages
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
