"""A model in one GGUF file as an ordinary folder of safetensors, which every tool loads."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from experiments.data.errors import DataError
from experiments.data.packages import need


def convert(gguf: Path, folder: Path) -> None:
    """Write the model, its tokenizer and its configuration to ``folder``, in bfloat16, whole or not at all.

    transformers reads GGUF but refuses to save what it has read, so the weights are put into a plain model first.

    Raises:
        DataError: if a package is missing, or the file is no GGUF file of an architecture that transformers knows.
    """
    need(f"{gguf.name}", "transformers", "gguf")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder.parent.mkdir(parents=True, exist_ok=True)
    working = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        try:
            place = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
            tokenizer = AutoTokenizer.from_pretrained(**place)
            read = AutoModelForCausalLM.from_pretrained(**place, dtype=torch.bfloat16)
        except Exception as fault:  # whatever a damaged file makes of the readers
            raise DataError(f"{gguf}: cannot be read as GGUF ({type(fault).__name__}: {fault})") from None
        settings = read.config.to_diff_dict()
        for key in ("quantization_config", "_name_or_path", "_model_name_or_path", "model_type", "dtype"):
            settings.pop(key, None)
        plain = type(read)._from_config(type(read.config)(**settings), dtype=torch.bfloat16)
        plain.load_state_dict(read.state_dict())
        plain.generation_config = read.generation_config
        plain.save_pretrained(working)
        tokenizer.save_pretrained(working)
        working.chmod(0o755)  # mkdtemp lets nobody else in
        os.replace(working, folder)
    finally:
        shutil.rmtree(working, ignore_errors=True)
