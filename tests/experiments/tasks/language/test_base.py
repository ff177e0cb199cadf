"""Pretrained models: where they are loaded from, what their digest covers, and the error messages."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.core.blocks import ConfigError
from experiments.core.pretrained import BaseModel
from experiments.data import DataError
from experiments.tasks.language.base import byte_tokenizer, load_base, tiny_base
from experiments.tasks.language.model_files import digests_of
from experiments.tasks.language.packing import pack, token_losses
from experiments.tasks.language.prompts import prompt_ids, target_ids

CPU = torch.device("cpu")
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    base, made = tiny_base(CPU), tmp_path / "model"
    base.model.save_pretrained(made)
    base.tokenizer.save_pretrained(made)
    load_base.cache_clear()
    return made


def load(folder, **settings):
    return load_base(BaseModel(name="local", path=str(folder), **settings), folder, CPU)


def change(path, **keys):
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **keys}))


def sharded(folder, name):
    """Move the weights to ``name``, which an index gives."""
    weights = folder / "model.safetensors"
    keys = tiny_base(CPU).model.state_dict()
    (folder / name).parent.mkdir(exist_ok=True)
    weights.rename(folder / name)
    change(folder / INDEX, metadata={}, weight_map=dict.fromkeys(keys, name))


def test_shards_and_their_index_are_part_of_the_digest(folder):
    sharded(folder, "model-1.safetensors")
    first = load(folder).info.sha256
    assert {"model-1.safetensors", INDEX, "config.json"} <= digests_of(folder, folder).keys()
    change(folder / INDEX, metadata={"total_size": 3})
    load_base.cache_clear()
    assert load(folder).info.sha256 != first


def test_no_link_leads_out_of_the_folder(folder, tmp_path):
    weights = folder / "model.safetensors"
    weights.rename(tmp_path / "outside.safetensors")
    weights.symlink_to(tmp_path / "outside.safetensors")
    with pytest.raises(DataError, match=r"model\.safetensors: is a link to .*outside"):
        load(folder)
    for odd in ("model.safetensors", "nowhere", "/dev/zero"):  # a circle, nothing, an endless device
        weights.unlink()
        weights.symlink_to(odd)
        with pytest.raises(DataError, match=r"model\.safetensors"):
            load(folder)
    weights.unlink()
    os.mkfifo(weights)
    with pytest.raises(DataError, match=r"model\.safetensors: is no ordinary file"):
        load(folder)


def test_a_snapshot_of_the_hub_s_cache_has_links_to_its_blobs(folder, tmp_path):
    snapshot, blobs = tmp_path / "models--a" / "snapshots" / "f00", tmp_path / "models--a" / "blobs"
    snapshot.mkdir(parents=True)
    folder.rename(blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert load(snapshot).info.sha256


def keys(file, **changed):
    return lambda folder: change(folder / file, **changed)


def content(file, text):
    return lambda folder: (folder / file).write_bytes(text.encode(errors="surrogateescape"))


def without_a_block(folder):
    weights = folder / "model.safetensors"
    left = {name: t for name, t in load_file(weights).items() if ".1.mlp" not in name}
    save_file(left, weights, {"format": "pt"})


JSON = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
HARMS = [
    (lambda folder: sharded(folder, "../outside.safetensors"), rf"{INDEX}: names '\.\./outside\.safetensors'"),
    (lambda folder: sharded(folder, "pytorch_model.bin"), rf"{INDEX}: names 'pytorch_model\.bin'"),
    (keys("adapter_config.json", base_model_name_or_path="elsewhere"), r"adapter_config\.json"),
    (keys("config.json", transformers_weights="../model.safetensors"), r"config\.json"),
    (keys("tokenizer_config.json", fast_tokenizer_files=["../tokenizer.5.json"]), r"tokenizer_config\.json"),
    (keys("config.json", num_hidden_layers="2"), "cannot be loaded|cannot run"),
    (keys("config.json", model_type="none"), "cannot be loaded|cannot run"),
    *((content(file, text), r"local: |\.json") for file in JSON for text in ("[" * 100_000, "[]", "\udcff")),
    (content("model.safetensors", "short"), "cannot be loaded"),
    (without_a_block, r"lack 3 tensors of a LlamaForCausalLM, such as model\.layers\.1\.mlp"),
]


@pytest.mark.parametrize(("harm", "message"), HARMS)
def test_a_hostile_or_damaged_folder_is_refused(folder, harm, message):
    harm(folder)
    with pytest.raises(DataError, match=message):
        load(folder)


def test_a_folder_is_loaded_frozen_with_its_digest(folder):
    base = load(folder)
    assert not base.model.training
    assert not any(p.requires_grad for p in base.model.parameters())
    assert base.info.name == "local"
    batch = pack([([1, 2], [3])], CPU)
    assert torch.equal(token_losses(base.model, batch), token_losses(tiny_base(CPU).model, batch))
    (folder / "config.json").write_text((folder / "config.json").read_text() + "\n")
    load_base.cache_clear()
    assert load(folder).info.sha256 != base.info.sha256


def test_what_is_not_there_is_named(folder, tmp_path):
    with pytest.raises(DataError, match=r"no config\.json in"):
        load(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"x\.gguf is not in"):
        load(folder, file="x.gguf")


def test_an_encoder_is_no_decoder(tmp_path):
    from transformers import BertConfig, BertLMHeadModel

    tokenizer = byte_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    BertLMHeadModel(BertConfig(**sizes, vocab_size=len(tokenizer))).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    with pytest.raises(DataError, match="attends to later tokens; choose a decoder"):
        load(tmp_path / "bert")


def test_a_folder_s_model_is_another_run_in_another_folder():
    def name(model, path):
        choices = {"task": "wikisql_easy", "gate": "lora", "model": model}
        return run_id(compose(choices, {"gate.layers": 30, "model.path": path}))

    assert name("local", "one") != name("local", "other")
    assert name("smollm2_135m", "one") == name("smollm2_135m", "other")


def test_code_of_a_folder_is_not_run(folder, tmp_path):
    (folder / "config.json").write_text('{"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}')
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')")
    with pytest.raises(DataError, match="cannot be loaded"):
        load(folder)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("GatedRepoError", "is gated. Accept its licence at https://huggingface.co/a/b and log in"),
        ("RepositoryNotFoundError", "no such repository at a/b"),
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
