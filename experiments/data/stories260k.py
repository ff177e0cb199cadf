"""Read the trained Llama of llama2.c with 260 thousand parameters from its binary format, for tests and trials."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.core.task import DataInfo
from experiments.data.errors import DataError
from experiments.data.packages import require_packages
from experiments.data.source import Folder

NAME = "stories260k"
OFFICIAL = {
    "stories260K.bin": "sha256:b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696",
    "tok512.bin": "sha256:037cb335abb25d1fa9e8ecae30ed2a3a8ace9302862ebcdc05d51a6bbb10c312",
}
"""Digests of the files in ``stories260K/`` of ``karpathy/tinyllamas`` on the hub."""
BOS, EOS = 1, 2


class Files(NamedTuple):
    """The bytes of the weights and of the tokenizer."""

    weights: np.ndarray
    pieces: np.ndarray
    info: DataInfo


def read_folder(folder: Folder) -> Files:
    """Read both files; see :func:`load_data`."""
    base, root = folder.path, folder.root
    weights, pieces = OFFICIAL
    layouts = [[(base / weights,), (base / pieces,)], [(root / "models" / weights,), (root / "tokenizers" / pieces,)]]
    content = [folder.read(path) for path in folder.choose(layouts)]
    return Files(content[0], content[1], folder.info())


def load_data(root: Path) -> Files:
    """Read the files below a data root.

    Source: Karpathy, llama2.c, 2023; MIT.

    Raises:
        DataError: if a file is missing or damaged.
    """
    return read_folder(Folder(root, NAME, OFFICIAL))


def build_model(files: Files) -> tuple[Any, Any]:
    """Build the transformers model (float32) and its tokenizer.

    Raises:
        DataError: if transformers is not installed, or the vocabulary has duplicates.
    """
    require_packages(f"model={NAME}", "transformers", "tokenizers")
    return _model(files.weights), _tokenizer(files.pieces)


def _model(content: np.ndarray) -> Any:
    """Build the model from llama2.c's format: seven int32, then float32 tensors with all layers stacked."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    dim, hidden, layers, heads, kv_heads, vocabulary, length = struct.unpack("7i", content[:28].tobytes())
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=dim, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=length, rms_norm_eps=1e-5,
        tie_word_embeddings=True, bos_token_id=BOS, eos_token_id=EOS,
    )  # fmt: skip
    numbers, at = torch.from_numpy(content[28:].view(np.float32)), 0

    def take(*shape: int) -> torch.Tensor:
        nonlocal at
        begin, at = at, at + int(np.prod(shape))
        return numbers[begin:at].reshape(shape)

    def halves(maps: torch.Tensor, count: int) -> torch.Tensor:
        """Reorder rotary pairs: llama2.c interleaves them; transformers has all first entries, then all second."""
        return maps.view(layers, count, -1, 2, dim).transpose(2, 3).reshape(maps.shape)

    small = dim // heads * kv_heads
    state = {"model.embed_tokens.weight": take(vocabulary, dim)}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    stacked = {"input_layernorm": take(layers, dim), "self_attn.q_proj": halves(take(layers, dim, dim), heads)}
    stacked["self_attn.k_proj"] = halves(take(layers, small, dim), kv_heads)
    stacked |= {"self_attn.v_proj": take(layers, small, dim), "self_attn.o_proj": take(layers, dim, dim)}
    stacked |= {"post_attention_layernorm": take(layers, dim), "mlp.gate_proj": take(layers, hidden, dim)}
    stacked |= {"mlp.down_proj": take(layers, dim, hidden), "mlp.up_proj": take(layers, hidden, dim)}
    state["model.norm.weight"] = take(dim)
    state |= {f"model.layers.{n}.{name}.weight": value[n] for name, value in stacked.items() for n in range(layers)}
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    return model


def _tokenizer(content: np.ndarray) -> Any:
    """Build the tokenizer: SentencePiece's merges in the order of their scores, bytes for unknown characters."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    data, at, pieces = content.tobytes(), 4, []
    while at < len(data):
        score, length = struct.unpack_from("fi", data, at)
        pieces.append((data[at + 8 : at + 8 + length].decode(), score))
        at += 8 + length
    names = dict(enumerate(("<unk>", "<s>", "</s>")))
    vocabulary = {names.get(i, text.replace(" ", "▁")): i for i, (text, _) in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        raise DataError(f"tok512.bin: {len(pieces)} pieces, but only {len(vocabulary)} different ones")
    merges = []
    for text, _ in sorted(pieces[259:], key=lambda piece: -piece[1]):
        word = text.replace(" ", "▁")
        halves = [(word[:i], word[i:]) for i in range(1, len(word))]
        merges += [pair for pair in halves if pair[0] in vocabulary and pair[1] in vocabulary]
    plain = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    plain.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    plain.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    plain.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="</s>"
    )
