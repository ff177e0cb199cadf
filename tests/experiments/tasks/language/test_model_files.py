"""The digest of a local model covers all that is loaded, and nothing outside its folder is followed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from experiments.core.pretrained import BaseModel
from experiments.data import DataError, smollm2
from experiments.tasks.language.base import load_base, tiny_base
from experiments.tasks.language.model_files import digests_of

CPU = torch.device("cpu")
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path) -> Path:
    base, made = tiny_base(CPU), tmp_path / "model"
    base.model.save_pretrained(made)
    base.tokenizer.save_pretrained(made)
    load_base.cache_clear()
    return made


def load(folder: Path):
    return load_base(BaseModel(name="local", path=str(folder)), folder, CPU)


def change(path: Path, **keys) -> None:
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **keys}))


def sharded(folder: Path, name: str) -> None:
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


@pytest.mark.parametrize("name", ["../outside.safetensors", "sub/x.safetensors", "pytorch_model.bin"])
def test_an_index_names_files_of_the_folder_alone(folder, name):
    sharded(folder, name)
    with pytest.raises(DataError, match=rf"{INDEX}: names '{name}'"):
        load(folder)


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


@pytest.mark.parametrize(
    ("file", "keys"),
    [
        ("adapter_config.json", {"base_model_name_or_path": "elsewhere"}),
        ("config.json", {"transformers_weights": "../model.safetensors"}),
        ("config.json", {"transformers_weights": "pytorch_model.bin"}),
        ("tokenizer_config.json", {"fast_tokenizer_files": ["../tokenizer.5.json"]}),
        ("config.json", {"num_hidden_layers": "2"}),
        ("config.json", {"vocab_size": 10**9}),
        ("config.json", {"model_type": "none"}),
        ("config.json", {"max_position_embeddings": "x"}),
    ],
)
def test_an_absurd_or_hostile_configuration_is_refused(folder, file, keys):
    change(folder / file, **keys)
    with pytest.raises(DataError, match=rf"{file}|cannot be loaded|cannot run"):
        load(folder)


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "\udcff"])
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_a_damaged_description_is_named(folder, file, content):
    (folder / file).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DataError, match=r"local: |\.json"):
        load(folder)


def test_a_file_beside_the_fetched_model_is_not_read_unseen(tmp_path):
    (tmp_path / "added_tokens.json").write_text("{}")
    with pytest.raises(DataError, match=r"added_tokens\.json: is not a file of smollm2"):
        smollm2.check_others(tmp_path, {"config.json": "0", "added_tokens.json": "1"})
