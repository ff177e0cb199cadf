"""Load a frozen, pretrained causal language model with its tokenizer, or make a tiny one for smoke runs."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.core.blocks import ConfigError
from experiments.core.pretrained import BaseModel
from experiments.core.task import DataInfo
from experiments.data import resnets, smollm2
from experiments.data.fetch import known_digest
from experiments.data.source import DataError, require_packages
from experiments.store.provenance import combined_digest
from experiments.tasks.language.fused import FUSED, KINDS, split_maps
from experiments.tasks.language.model_files import FILES, digests_of
from experiments.tasks.language.packing import use_by_sequence

MAPS = {
    **{kind: (f"{kind}_proj", f"{FUSED}.{kind}") for kind in KINDS},
    "gate": ("gate_proj",),
    "o": ("o_proj", "attention.dense"),
    "up": ("up_proj", "dense_h_to_4h"),
    "down": ("down_proj", "dense_4h_to_h"),
}
"""Kind → names of the linear map in a layer, in the Llama family and in GPT-NeoX (q, k and v once taken apart)."""


@dataclass(frozen=True)
class PretrainedModel:
    """A frozen model in ``eval`` mode and its tokenizer.

    Attributes:
        info: name, one sha256 over the files, and where they come from.
        end: ids of the tokens that end an answer; the tokenizer's own is first.
    """

    model: Any
    tokenizer: Any
    info: DataInfo
    end: tuple[int, ...]

    @property
    def layers(self) -> list[str]:
        """Return the full names of the decoder layers, first to last."""
        blocks = [(name, block) for name, block in self.model.named_modules() if isinstance(block, nn.ModuleList)]
        count = self.model.config.num_hidden_layers
        name = next((name for name, block in blocks if len(block) == count), None)
        if name is None:
            raise DataError(f"{self.info.name}: {type(self.model).__name__} has no list of its {count} decoder layers")
        return [f"{name}.{number}" for number in range(count)]

    def maps(self, kinds: Sequence[str] = ("q", "v")) -> list[str]:
        """Return full names of linear maps of these kinds (:data:`MAPS`), layer by layer, in the order of ``kinds``.

        Raises:
            ConfigError: if a layer has no such linear map.
        """
        names = {name for name, module in self.model.named_modules() if isinstance(module, nn.Linear)}
        chosen = []
        for layer in self.layers:
            inside = [name for name in names if name.startswith(f"{layer}.")]
            for kind in kinds:
                fitting = [name for name in inside if name.endswith(tuple(f".{called}" for called in MAPS[kind]))]
                if len(fitting) != 1:
                    has = ", ".join(sorted({name.rpartition(".")[2] for name in inside}))
                    raise ConfigError(
                        f"{self.info.name}: {layer} of {type(self.model).__name__} has no linear map of its own for "
                        f"{kind}; it has: {has or 'none'}. With gate=lora, type the kinds that it has as gate.targets "
                        f"(GPT-NeoX: any of q, k, v, o, up, down); gate=adapter works with every model"
                    )
                chosen += fitting
        return chosen

    def taken_apart(self) -> PretrainedModel:
        """Return the model with maps of their own for q, k and v, where they are fused (GPT-NeoX); else itself."""
        if self.model.config.model_type != "gpt_neox":  # others have maps of this name with other rows
            return self
        return replace(self, model=split_maps(self.shared_copy(), self.model.config.num_attention_heads))

    def shared_copy(self) -> Any:
        """Copy the module tree but share frozen parameters and buffers, so that components can be attached."""
        shared = {id(tensor): tensor for tensor in (*self.model.parameters(), *self.model.buffers())}
        return copy.deepcopy(self.model, shared)


def _base(model: Any, tokenizer: Any, info: DataInfo, device: torch.device) -> PretrainedModel:
    model.to(device).requires_grad_(False).eval()
    use_by_sequence(model)
    if tokenizer.eos_token_id is None:
        raise DataError(f"{info.name}: its tokenizer has no end-of-text token, which must end each answer")
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise DataError(f"{info.name}: its tokenizer has {len(tokenizer)} tokens, but the model only {rows}")
    try:
        _check_causal(model, info)
    except (RuntimeError, IndexError) as fault:
        why = f"{type(fault).__name__}: {fault}".splitlines()[0]
        raise DataError(f"{info.name}: a {type(model).__name__} of this configuration cannot run ({why})") from None
    listed = model.generation_config.eos_token_id
    listed = listed if isinstance(listed, list) else [] if listed is None else [listed]
    end = tuple(dict.fromkeys([tokenizer.eos_token_id, *listed]))
    return PretrainedModel(model, tokenizer, info, end)


@torch.no_grad()
def _check_causal(model: Any, info: DataInfo) -> None:
    """Raise a DataError if a later token changes the logits of an earlier one, as in an encoder."""
    rows = torch.tensor([[1, 2, 3], [1, 2, 0]], device=model.device)
    logits = model(input_ids=rows, use_cache=False).logits[:, 1]
    expected, other = logits.double()
    if float((expected - other).abs().max()) > 100 * torch.finfo(logits.dtype).eps * float(expected.abs().max()):
        raise DataError(f"{info.name}: a {type(model).__name__} attends to later tokens; choose a decoder")


INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"


def missing_file(folder: Path) -> str | None:
    """Return the name of a file that a folder of safetensors lacks; None if configuration and weights are complete."""
    names = ["config.json", WEIGHTS]
    if (folder / INDEX).is_file():
        try:
            names[1:] = sorted({str(name) for name in json.loads((folder / INDEX).read_bytes())["weight_map"].values()})
        except (ValueError, KeyError, TypeError, AttributeError):
            return INDEX
    return next((name for name in names if not (folder / name).is_file()), None)


def _from_hub(settings: BaseModel, fetch: bool) -> Path:
    """Return the snapshot of ``settings.source``, downloaded where ``fetch`` allows it; a DataError says why not."""
    require_packages(f"model={settings.name}", "huggingface_hub")
    from huggingface_hub import HfApi, errors, snapshot_download

    wanted: dict[str, Any] = {"repo_id": settings.source, "revision": settings.revision, "allow_patterns": list(FILES)}
    partial = ""
    try:
        folder = Path(snapshot_download(**wanted, local_files_only=True))
        # Whoever asked for the tokenizer alone has left a snapshot without weights.
        if (lacking := missing_file(folder)) is None:
            return folder
        partial = f"the hub's cache has only a part of it, without {lacking}; "
    except errors.LocalEntryNotFoundError:
        pass
    way_out = f"or use a local folder: model.path=FOLDER (from `hf download {settings.source} --local-dir FOLDER`)"
    if not fetch:
        raise DataError(f"model={settings.name}: {settings.source} is not in the hub's cache; fetch it, {way_out}")
    try:
        # One request with a time limit finds the error before a download with many retries.
        HfApi().model_info(wanted["repo_id"], revision=settings.revision, timeout=10)
        return Path(snapshot_download(**wanted))
    except errors.GatedRepoError:
        raise DataError(
            f"model={settings.name}: {settings.source} is gated. Accept its licence at "
            f"https://huggingface.co/{settings.source} and log in with `hf auth login`; {way_out}"
        ) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as fault:
        what = f"revision {settings.revision}" if isinstance(fault, errors.RevisionNotFoundError) else "such repository"
        raise DataError(f"model={settings.name}: no {what} at {settings.source}; {way_out}") from None
    except Exception as fault:  # the client's errors differ between its versions
        why = f"{type(fault).__name__}: {fault}".splitlines()[0]
        raise DataError(
            f"model={settings.name}: {settings.source} cannot be downloaded ({why}); {partial}{way_out}"
        ) from None


def find_folder(settings: BaseModel, root: Path, fetch: bool = True) -> tuple[Path, str]:
    """Return the folder of safetensors that the settings name, fetched or converted if it must be, and its origin.

    Args:
        fetch: whether the hub may be asked.

    Raises:
        DataError: if a file is missing; the message says what to do.
    """
    if settings.path is not None:
        folder, provenance = Path(settings.path).expanduser().absolute(), f"local folder {Path(settings.path).name}"
        if settings.file is not None:
            gguf = folder / settings.file
            if not gguf.is_file():
                raise DataError(f"model={settings.name}: {settings.file} is not in {folder}")
            digest = f"sha256:{known_digest(gguf, root)}"
            folder, provenance = root / "converted" / f"{gguf.stem}-{digest[7:17]}", f"{settings.file}, {digest}"
            if not folder.exists():
                smollm2.convert_to_safetensors(gguf, folder)
    else:
        folder = _from_hub(settings, fetch)
        provenance = f"{settings.source}, revision {folder.name}"
    if not (folder / "config.json").is_file():
        raise DataError(
            f"model={settings.name}: no config.json in {folder}; a model folder needs it next to model.safetensors"
        )
    return folder, provenance


def _folder(settings: BaseModel, root: Path) -> tuple[Path, DataInfo]:
    """Return the folder of safetensors that the settings name, and the identity of its files."""
    if settings.path is None and settings.data == "smollm2":
        folder, info = smollm2.load_data(root)
        smollm2.check_others(folder, digests_of(folder, root))
        return folder, info
    folder, provenance = find_folder(settings, root)
    digests = {name: f"sha256:{digest}" for name, digest in digests_of(folder, root).items()}
    return folder, DataInfo(settings.name, combined_digest(digests), provenance)


def digest_of(settings: BaseModel, root: Path) -> str | None:
    """Return the digest of the model's files, as in a record; None for one of the hub or not on this machine.

    Raises:
        DataError: if a file is damaged.
    """
    if settings.path is not None and not (path := Path(settings.path).expanduser()).is_dir():
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    if settings.path is None and settings.data is None:
        return None
    if settings.data == "resnets":
        return resnets.load_data(root).info.sha256
    return _folder(settings, root)[1].sha256


@lru_cache(maxsize=1)
def load_base(settings: BaseModel, root: Path, device: torch.device) -> PretrainedModel:
    """Load the model that the settings name, frozen, on ``device``; runs of one process share it.

    Args:
        root: the data root.

    Raises:
        DataError: if a file is missing, damaged or does not fit; the message says what to do.
    """
    require_packages(f"model={settings.name}", "transformers", "tokenizers")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = getattr(torch, settings.dtype)
    folder, info = _folder(settings, root)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        read: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, trust_remote_code=False, use_safetensors=True, attn_implementation="sdpa",
            output_loading_info=True,
        )  # fmt: skip
    except Exception as fault:  # a damaged file can make the readers fail in any way
        why = f"{type(fault).__name__}: {fault}".splitlines()[0]
        raise DataError(f"model={settings.name}: {folder} cannot be loaded ({why})") from None
    model, said = read  # ``said``: which tensors were missing or had another shape
    if lost := sorted({*said["missing_keys"], *(each[0] for each in said["mismatched_keys"])}):
        raise DataError(
            f"model={settings.name}: the files in {folder} lack {len(lost)} tensors of a "
            f"{type(model).__name__}, such as {lost[0]}"
        )
    return _base(model, tokenizer, DataInfo(settings.name, info.sha256, info.provenance), device)


def byte_tokenizer() -> Any:
    """Make a tokenizer with one token per byte and an end of text."""
    require_packages("the smoke profile", "transformers", "tokenizers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE(vocab={symbol: number for number, symbol in enumerate(alphabet)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    plain.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>", pad_token="<end>")


@lru_cache(maxsize=1)
def tiny_base(device: torch.device, layers: int = 2) -> PretrainedModel:
    """Make a random Llama with two small layers over bytes, from seed 0, for smoke runs and tests."""
    require_packages("the smoke profile", "transformers", "tokenizers")
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_tokenizer()
    shape = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(shape)
    state = model.state_dict()
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in state.values())).hexdigest()
    info = DataInfo("tiny", digest, "random weights, made by the suite itself (seed 0)")
    return _base(model, tokenizer, info, device)
