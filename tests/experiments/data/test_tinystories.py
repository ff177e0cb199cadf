"""TinyStories: splitting, characters, and the download through the package datasets."""

import sys
import types

import numpy as np
from data_server import silent

from experiments.data import sets, texts, tinystories
from experiments.data.fetch import fetch
from experiments.data.tinystories import START, Characters


def test_stories_are_split_and_stripped():
    text = "\n A cat sat. <|endoftext|>\n<|endoftext|> Was it “fun”?\n"
    assert list(tinystories.split_stories(text)) == ["A cat sat.", "Was it “fun”?"]


def test_tokens_are_characters_and_rare_ones_share_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tinystories, "SCRATCH", tmp_path / "scratch")
    characters = Characters(["a cat " * 10, "é"])
    assert len(characters) == 2 + len("act ")
    tokens = characters.mapped(["tact", "à cat"])
    assert isinstance(tokens, np.memmap)
    assert tokens.dtype == np.uint8
    assert (tokens == START).tolist() == [True, *[False] * 4, True, *[False] * 5]
    assert characters.decode(tokens) == "\ntact\n\ufffd cat"
    assert not list((tmp_path / "scratch").iterdir()), "the file has no name"


def test_the_official_set_comes_through_datasets(tmp_path, monkeypatch):
    def load_dataset(name, cache_dir):
        assert name == "roneneldan/TinyStories"
        return {"train": {"text": [" A cat sat.\n", "Was it “fun”?"]}, "validation": {"text": ["A bat."]}}

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setattr(tinystories, "require_packages", lambda *names: None)
    info, fetched = fetch("tinystories", tmp_path, sets.ORIGINS["tinystories"], silent)
    assert fetched
    assert info.provenance == "roneneldan/TinyStories, through datasets"
    parts = texts.TINYSTORIES.load_data(tmp_path).parts
    assert list(tinystories.split_stories(parts["train.txt"])) == ["A cat sat.", "Was it “fun”?"]
    assert fetch("tinystories", tmp_path, sets.ORIGINS["tinystories"], silent) == (info, False)
