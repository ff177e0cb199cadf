"""The frame of records is the same with and without its index."""

import json
import os
import zipfile

import pandas as pd
import pytest
from record_samples import diverged, fixed, grown, record

from experiments.analysis import frame as frames
from experiments.analysis.frame import INDEX, frame
from experiments.config.compose import compose
from experiments.store.records import Store


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write runs of two tasks, in a folder that is large enough for an index."""
    monkeypatch.setattr(frames, "INDEXED", 4)
    store = Store(tmp_path / "runs")
    for seed, price in enumerate((1e-4, 1e-4, 1e-3)):
        config = compose({}, {"seed.value": seed, "schedule.lambda0": price})
        store.write(record(config, {"grown": grown([2.0 + seed], 0.1, 0.1)}))
    chain = compose({"task": "twist", "gate": "chain"}, {"train.steps": 7})
    store.write(record(chain, {"grown": grown([9.0], 1.0, 1.0), "fixed": fixed(3, 0.5)}))
    store.write(record(compose({"method": "ste"}), {"grown": diverged()}))
    return store.root


def anew(folder):
    """Return the frame of a copy that has no index, as its records are listed one by one."""
    return frame(sorted(folder.glob("*/*.json")))


def same(folder):
    """Return whether the frame with the index equals the one without, at the first and the second time."""
    for _ in range(2):
        pd.testing.assert_frame_equal(frame(folder), anew(folder))
    return (folder / INDEX).is_file()


def test_a_row_has_settings_and_numbers_with_their_types(folder):
    table = frame(folder)
    assert [*table["run_id"]] == sorted(path.stem for path in folder.glob("*/*.json"))
    plain = table[(table["task.name"] == "regression1d") & (table["status"] == "complete")]
    assert [*plain["schedule.lambda0"]] == [1e-4, 1e-4, 1e-3]
    assert [*plain["grown.t"]] == [2.0, 3.0, 4.0]
    assert [*plain["grown.count"]] == [3, 4, 5]
    assert plain["grown.count"].dtype == table["fixed.count"].dtype == "Int64"
    assert table["fixed.count"].notna().sum() == 1
    assert all(isinstance(value, str) for value in table["phases"])
    assert (table["task.name"] == "twist").sum() == 1
    assert table.loc[table["status"] == "diverged", "grown.t"].isna().all()


def test_with_an_index_nothing_is_read_again(folder, monkeypatch):
    first = frame(folder)
    read = []
    monkeypatch.setattr(frames, "read_record", read.append)
    pd.testing.assert_frame_equal(frame(folder), first)
    assert not read


def test_added_changed_and_removed_records_are_noticed(folder):
    assert same(folder)
    first, *_, last = sorted(folder.glob("regression1d/*.json"))
    last.unlink()
    assert same(folder)
    content = json.loads(first.read_text())
    Store(folder).write(
        content | {"hardware": {"cpu": "other"}, "time": {**content["time"], "seconds": 77.0}}, replace=True
    )
    assert 77.0 in frame(folder)["seconds"].to_list()
    assert same(folder)
    autoencoder = compose({"task": "manifold", "gate": "latent"}, {})
    Store(folder).write(record(autoencoder, {"grown": grown([1.0], 0.1, 0.1, "nmse")}))
    assert "grown.truncated.nmse" in frame(folder)
    assert same(folder)


def test_a_damaged_record_is_named_each_time(folder, caplog):
    assert same(folder)
    first, *_ = folder.glob("regression1d/*.json")
    first.write_text("{")
    for _ in range(2):
        caplog.clear()
        assert len(frame(folder)) == 4
        (warning,) = caplog.messages
        assert str(first) in warning


@pytest.mark.parametrize("harm", ["cut", "bits", "text", "folder", "pipe", "other code", "parts", "places"])
def test_a_damaged_index_is_made_again(folder, harm, monkeypatch):
    table, index = frame(folder), folder / INDEX
    content = index.read_bytes()
    if harm in ("folder", "pipe"):
        index.unlink()
        index.mkdir() if harm == "folder" else os.mkfifo(index)
    elif harm == "bits":
        for at in range(0, len(content), len(content) // 12):
            index.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
            pd.testing.assert_frame_equal(frame(folder), table)
    elif harm == "other code":
        monkeypatch.setattr(frames, "_version", lambda: "later")
        read = []
        reader = frames.read_record
        monkeypatch.setattr(frames, "read_record", lambda path: read.append(path) or reader(path))
        assert len(frame(folder)) == len(read) == 5
    elif harm in ("parts", "places"):
        with zipfile.ZipFile(index) as packed:
            parts = {name: packed.read(name) for name in packed.namelist()}
        columns = json.loads(parts["texts"])["columns"]
        if harm == "parts":
            parts[str([*columns].index("grown.t"))] += bytes(8)
        else:
            name = str([*columns].index("task.name"))
            parts[name] = (9).to_bytes(4, "little") + parts[name][4:]
        with zipfile.ZipFile(index, "w") as packed:
            for name, part in parts.items():
                packed.writestr(name, part)
        assert not frames._read_index(index)[0]
    else:
        index.write_bytes(content[:-40] if harm == "cut" else b"none")
    pd.testing.assert_frame_equal(frame(folder), table)


def test_a_folder_that_cannot_be_written_has_the_same_frame(folder, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(frames, "write_atomically", refuse)
    pd.testing.assert_frame_equal(frame(folder), anew(folder))
    assert not (folder / INDEX).exists()
