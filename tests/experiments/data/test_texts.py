"""Text data sets: reading, fetching, and one message with file, line and key for what has not their form."""

import hashlib
import json
import shutil
import sys
import types
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import data_samples as samples
import numpy as np
import pytest
import torch
from data_server import CONTENT, origin_of, remotes_of, serving, silent

from experiments.analysis.collect import unofficial_parts
from experiments.config.compose import compose
from experiments.data import DataError, sets, synthetic, texts, tinystories
from experiments.data.fetch import DataOrigin, Remote, fetch
from experiments.data.smollm2 import convert_to_safetensors
from experiments.data.source import Folder
from experiments.data.texts import SETS
from experiments.data.tinystories import START, Characters
from experiments.tasks import make_task


def lines(*records):
    return "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in records).encode()


WIKISQL = {name: lines(*part) for name, part in synthetic.corpora()["wikisql"].parts.items()}


def test_adopted_files_are_read_with_their_provenance_and_official_ones_come_first(tmp_path):
    for name in ("wikisql", "spider", "gsm8k", "squad"):
        parts = synthetic.corpora()[name].parts
        files = {f: lines(*part) if f.endswith("l") else json.dumps(part).encode() for f, part in parts.items()}
        samples.put(tmp_path / name, files)
        sets.adopt(name, tmp_path, "made up")
        read = SETS[name].load_data(tmp_path)
        assert (read.parts, read.info.provenance) == (parts, "made up")
    whole = {f"{part}{end}": WIKISQL[f"dev{end}"] for part in ("train", "test") for end in (".jsonl", ".tables.jsonl")}
    samples.put(tmp_path / "wikisql", whole)
    sets.adopt("wikisql", tmp_path, "made up")
    assert set(SETS["wikisql"].load_data(tmp_path).parts) == set(whole)


def test_spider_is_official_by_the_digests_of_its_blobs_fetched_or_laid_by_hand(tmp_path, monkeypatch):
    files = {name: json.dumps(part).encode() for name, part in synthetic.corpora()["spider"].parts.items()}
    blobs = {name: "git:" + hashlib.sha1(b"blob %d\0" % len(file) + file).hexdigest() for name, file in files.items()}
    monkeypatch.setitem(sets._READERS, "spider", replace(texts.SPIDER, OFFICIAL=blobs))
    with serving() as server:
        server.files |= files
        remotes = tuple(Remote(name, blob, (server.url(name),)) for name, blob in blobs.items())
        origin = DataOrigin(remotes, partial(sets.verify, "spider"), sets.ORIGINS["spider"].install)
        fetched = fetch("spider", tmp_path, origin, silent)[0]
    samples.put(tmp_path / "hand" / "spider", files)
    assert fetch("spider", tmp_path / "hand", origin, silent) == (fetched, False)
    assert not unofficial_parts(fetched.provenance)


def test_an_archive_is_unpacked_with_a_manifest_that_names_it(tmp_path):
    samples.put(tmp_path / "packed" / "data", WIKISQL)
    made = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "packed", "data")
    name = "packed.zip"
    install = partial(sets.install_members, name, {f"data/{part}": part for part in WIKISQL}, "an archive")
    with serving() as server:
        server.files[name] = Path(made).read_bytes()
        origin = DataOrigin(remotes_of(server), partial(sets.verify, "wikisql"), install)
        info, fetched = fetch("wikisql", tmp_path, origin, silent)
    assert fetched
    assert info.provenance == "official files, unpacked from an archive"


def test_an_archive_that_lacks_a_file_is_refused(tmp_path):
    zipfile.ZipFile(tmp_path / "a.zip", "w").close()
    with pytest.raises(DataError, match=r"a\.zip: cannot be unpacked"):
        sets.install_members("a.zip", {"x": "x"}, "", tmp_path, tmp_path / "out")


def test_where_pip_cannot_the_other_source_is_tried(tmp_path, monkeypatch):
    (python := tmp_path / "python").write_text("#!/bin/sh\necho no network >&2; exit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))

    def otherwise(working, folder):
        if folder.parent.name == "b":
            raise DataError("nor there")
        (folder / "one.bin").write_bytes(CONTENT)

    origin = replace(origin_of("pip:tiny==1.0"), otherwise=otherwise)
    assert fetch("tiny", tmp_path / "a", origin, silent)[1]
    with pytest.raises(DataError, match=r"(?s)pip: no network.*nor there.*brought from elsewhere"):
        fetch("tiny", tmp_path / "b", origin, silent)


def test_a_damaged_gguf_is_named(tmp_path):
    samples.put(tmp_path, {"x.gguf": b"GGUF and nothing more"})
    with pytest.raises(DataError, match=r"x\.gguf: cannot be read as GGUF"):
        convert_to_safetensors(tmp_path / "x.gguf", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]


QUESTION = {"table_id": "t", "question": "?", "sql": {"sel": 0, "agg": 0, "conds": [[1, 0, "x"]]}}
TABLE = {"id": "t", "header": ["a", "b"]}
SUM = {"question": "1 + 1?", "answer": "#### 2"}
QUERY = {"question": "?", "query": "SELECT a", "db_id": "d"}
COLUMNS = "column_names_original"
DATABASE = {"db_id": "d", "table_names_original": ["t"], "column_names_original": [[-1, "*"], [0, "a"]]}


def sql(**change):
    return QUESTION | {"sql": QUESTION["sql"] | change}


def wikisql(questions=(QUESTION,), tables=(TABLE,)):
    return {"dev.jsonl": lines(*questions), "dev.tables.jsonl": lines(*tables)}


def gsm8k(*records):
    return {"train.jsonl": lines(*records), "test.jsonl": lines(SUM)}


def spider(questions=(QUERY,), tables=(DATABASE,)):
    whole = {"train_spider.json": questions, "dev.json": [QUERY], "tables.json": tables}
    return {name: json.dumps(content).encode() for name, content in whole.items()}


def read(root, name, files):
    samples.put(root / name, files)
    return SETS[name].read_folder(Folder(root, name, {}, adopting=True)).parts


HOSTILE = {
    "a text for a column": ("wikisql", wikisql([sql(sel="0")]), r"sql\.sel: .* valid integer"),
    "column 2 of 2": ("wikisql", wikisql([sql(sel=2)]), r"record 1 names column 2 of a table with 2 columns"),
    "no such table": ("wikisql", wikisql([QUESTION | {"table_id": "u"}]), r"asks table 'u', which dev\.tables"),
    "a table twice": ("wikisql", wikisql(tables=[TABLE, TABLE]), r"tables\.jsonl: the id 't' stands there twice"),
    "a key twice": ("gsm8k", gsm8k('{"question": "", "answer": "#### 1", "answer": "#### 2"}'), r"'answer' stands"),
    "not a number": ("wikisql", wikisql([sql(conds=[[0, 0, float("nan")]])]), r"NaN is not a finite number"),
    "half a line": ("gsm8k", gsm8k(SUM, '{"question": "'), r"train\.jsonl, line 2: unreadable"),
    "no answer's mark": ("gsm8k", gsm8k(SUM | {"answer": "2"}), r"answer: .*match"),
    "half of a surrogate pair": ("gsm8k", gsm8k(SUM | {"question": "\ud800"}), r"line 1: unreadable .*surrogates"),
    "no object": ("spider", spider() | {"dev.json": b"3"}, r"must be a list of records"),
    "no such database": ("spider", spider([QUERY | {"db_id": "e"}]), r"asks database 'e', which tables\.json lacks"),
    "table 1 of 1": ("spider", spider(tables=[DATABASE | {COLUMNS: [[1, "a"]]}]), r"names table 1 of 1"),
    "no questions": (
        "squad",
        {"xquad.en.json": b'{"data": [{"paragraphs": []}]}'},
        r"xquad\.en\.json: holds no question",
    ),
    "no text": ("wikitext2", {"test.txt": b" \n"}, r"test\.txt: holds no text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_message(tmp_path, name):
    kind, files, fault = HOSTILE[name]
    with pytest.raises(DataError, match=fault):
        read(tmp_path, kind, files)


@pytest.mark.parametrize("break_", ["\u2028", "\u2029", "\x85"])
def test_only_a_line_feed_ends_a_line(tmp_path, break_):
    record = json.dumps(SUM | {"question": f"1 +{break_}1?"}, ensure_ascii=False)
    assert read(tmp_path, "gsm8k", gsm8k(record, SUM))["train.jsonl"][0]["question"] == f"1 +{break_}1?"
    assert read(tmp_path, "gsm8k", gsm8k(f"{record}\r", "", SUM))["train.jsonl"][1] == SUM


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


def test_official_sets_come_through_datasets_with_their_revision(tmp_path, monkeypatch):
    def load_dataset(name, revision, cache_dir):
        assert (name, revision) in (("roneneldan/TinyStories", "abc"), ("NeelNanda/pile-10k", "abc"))
        return {"train": {"text": ["\n A cat sat. \n", " ", "Was it “fun”?"]}, "validation": {"text": ["A bat."]}}

    hub = types.SimpleNamespace(dataset_info=lambda *_, timeout: types.SimpleNamespace(sha="abc"))
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    monkeypatch.setattr(tinystories, "require_packages", lambda *names: None)
    info, fetched = fetch("pile10k", tmp_path, sets.ORIGINS["pile10k"], silent)
    assert not unofficial_parts(f"forgetting on {info.name}: {info.provenance}")
    assert [each["text"] for each in texts.PILE10K.load_data(tmp_path).parts["pile-10k.jsonl"]][2] == "Was it “fun”?"
    info, fetched = fetch("tinystories", tmp_path, sets.ORIGINS["tinystories"], silent)
    assert fetched
    assert info.provenance == "roneneldan/TinyStories, revision abc"
    part = compose({"task": "tinystories"}, {"task.corpus": "whole", "data_root": str(tmp_path)})
    with pytest.raises(DataError, match="has 2 stories, the whole 2,000,000 or more"):
        make_task(part, torch.device("cpu"))
    parts = texts.TINYSTORIES.load_data(tmp_path).parts
    assert list(tinystories.split_stories(parts["train.txt"])) == ["A cat sat.", "Was it “fun”?"]
    assert fetch("tinystories", tmp_path, sets.ORIGINS["tinystories"], silent) == (info, False)
