"""Pretrained models: where they are loaded from, what runs share, and the error messages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.core.blocks import ConfigError
from experiments.core.pretrained import BaseModel
from experiments.data import DataError
from experiments.tasks.language.base import byte_tokenizer, load_base, tiny_base
from experiments.tasks.language.packing import pack, token_losses
from experiments.tasks.language.prompts import prompt_ids, target_ids

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The tiny model, saved by transformers."""
    base, folder = tiny_base(CPU), tmp_path_factory.mktemp("model")
    base.model.save_pretrained(folder)
    base.tokenizer.save_pretrained(folder)
    return folder


def local(folder: Path, **settings) -> BaseModel:
    return BaseModel(name="local", path=str(folder), **settings)


def test_a_folder_is_loaded_frozen_with_its_digest(folder, tmp_path):
    base = load_base(local(folder), tmp_path, CPU)
    assert not base.model.training
    assert not any(p.requires_grad for p in base.model.parameters())
    assert base.info.name == "local"
    batch = pack([([1, 2], [3])], CPU)
    assert torch.equal(token_losses(base.model, batch), token_losses(tiny_base(CPU).model, batch))
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    load_base.cache_clear()
    assert load_base(local(folder), tmp_path, CPU).info.sha256 != base.info.sha256


def test_what_cannot_be_loaded_is_named(folder, tmp_path):
    with pytest.raises(DataError, match=r"no config\.json in"):
        load_base(local(tmp_path / "nowhere"), tmp_path, CPU)
    with pytest.raises(DataError, match=r"x\.gguf is not in"):
        load_base(local(folder, file="x.gguf"), tmp_path, CPU)
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"short")
    with pytest.raises(DataError, match="cannot be loaded"):
        load_base(local(damaged), tmp_path, CPU)


def test_a_model_of_which_something_is_missing_is_not_made_up(folder, tmp_path):
    part = shutil.copytree(folder, tmp_path / "part")
    tensors = load_file(part / "model.safetensors")
    save_file(
        {name: t for name, t in tensors.items() if ".1.mlp" not in name}, part / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(DataError, match=r"lack 3 tensors of a LlamaForCausalLM, such as model\.layers\.1\.mlp"):
        load_base(local(part), tmp_path, CPU)


def test_an_encoder_is_no_decoder(tmp_path):
    from transformers import BertConfig, BertLMHeadModel

    tokenizer = byte_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    BertLMHeadModel(BertConfig(**sizes, vocab_size=len(tokenizer))).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    with pytest.raises(DataError, match="attends to later tokens; choose a decoder"):
        load_base(local(tmp_path / "bert"), tmp_path, CPU)


def test_a_folder_s_model_is_another_run_in_another_folder():
    def name(model, path):
        choices = {"task": "wikisql_easy", "gate": "lora", "model": model}
        return run_id(compose(choices, {"gate.layers": 30, "model.path": path}))

    assert name("local", "one") != name("local", "other")
    assert name("smollm2_135m", "one") == name("smollm2_135m", "other")


def test_code_of_a_folder_is_not_run(folder, tmp_path):
    odd = shutil.copytree(folder, tmp_path / "odd")
    (odd / "config.json").write_text('{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}')
    (odd / "mine.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    with pytest.raises(DataError, match="cannot be loaded"):
        load_base(local(odd), tmp_path, CPU)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("GatedRepoError", "is gated. Accept its licence at https://huggingface.co/a/b and log in"),
        ("RepositoryNotFoundError", "no such repository at a/b"),
        ("RevisionNotFoundError", "no revision x at a/b"),
        (None, "a/b cannot be downloaded .*no network"),
    ],
)
def test_what_the_hub_refuses_is_said_in_one_message(tmp_path, monkeypatch, fault, said):
    import huggingface_hub

    asked = []

    def refuse(self, repo_id, **rest):
        asked.append(rest["timeout"])
        kind = OSError if fault is None else getattr(huggingface_hub.errors, fault)
        error = kind.__new__(kind)
        Exception.__init__(error, "no network")
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(DataError, match=f"{said}.*model.path=FOLDER"):
        load_base(BaseModel(name="m", source="a/b", revision="x"), tmp_path, CPU)
    assert asked == [10]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"file": "../../x"}, "file: must be the name of a file in model.path"),
        ({"file": "a/x.gguf"}, "without a folder"),
        ({"name": "a/b"}, "name: "),
        ({"path": "/a\x1b[2J"}, r"path contains the control character U\+001B"),
        ({"fille": "x.gguf"}, "fille: "),
    ],
)
def test_wrong_settings_are_explained_also_when_given_to_the_class(settings, message):
    with pytest.raises(ConfigError, match=message) as refused:
        BaseModel(**{"name": "m", "path": "/a", **settings})
    assert "validation error" not in str(refused.value)


def with_start(tokenizer):
    """The byte tokenizer with a start of text, which both it and its chat template add, as in Llama."""
    from tokenizers import processors

    tokenizer.add_special_tokens({"bos_token": "<start>"})
    number = tokenizer.convert_tokens_to_ids("<start>")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<start> $A", special_tokens=[("<start>", number)]
    )
    tokenizer.chat_template = "<start>{% for m in messages %}[{{ m.content }}]{% endfor %}"
    return tokenizer, number


@pytest.mark.parametrize("style", ["plain", "chat"])
def test_there_is_one_start_of_text(style):
    tokenizer, start = with_start(byte_tokenizer())
    ids = prompt_ids(tokenizer, "hi", style)
    assert ids[0] == start
    assert ids.count(start) == 1
    assert start not in target_ids(tokenizer, "yes", style)
    assert target_ids(tokenizer, "yes", style)[-1] == tokenizer.eos_token_id


def test_a_chat_needs_a_template():
    with pytest.raises(ConfigError, match=r"no chat template.*task\.prompt=plain"):
        prompt_ids(byte_tokenizer(), "hi", "chat")
