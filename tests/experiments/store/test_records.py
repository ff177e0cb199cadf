"""Records are valid, written once, and named after their run."""

import contextlib
import copy
import json
import multiprocessing
import os

import numpy as np
import pytest
import record_samples as samples

from experiments.config.compose import compose
from experiments.store import provenance
from experiments.store.curves import MAX_CURVE_BYTES
from experiments.store.records import RecordError, Store, parse, read_record
from ngn.files import remove

RECORD = samples.record(compose({"task": "cora"}), {"grown": samples.grown([1.0], 80.0, 80.0, "accuracy")})
STEPS = {"grown.step": np.arange(3), "grown.loss": np.ones(3), "grown.task": np.ones(3), "grown.t": np.ones((3, 1))}


def changed(**top):
    return {**copy.deepcopy(RECORD), **top}


def without_digests(record):
    return {key: value for key, value in record.items() if key not in ("sha256", "curves_sha256")}


def test_a_written_record_is_read_back(tmp_path):
    store = Store(tmp_path)
    assert store.get(RECORD["run_id"]) is None
    assert store.write(RECORD, STEPS)
    assert without_digests(store.get(RECORD["run_id"])) == RECORD
    assert store.path(RECORD["run_id"]) == tmp_path / "cora" / f"{RECORD['run_id']}.json"
    assert store.curves(RECORD["run_id"])["grown.step"].tolist() == [0, 1, 2]


def test_a_record_is_written_once_unless_replaced(tmp_path):
    store = Store(tmp_path)
    assert store.write(RECORD)
    later = changed(time={"started": "2027-01-01T00:00:00+00:00", "seconds": 9.0})
    assert not store.write(later)
    assert without_digests(store.get(RECORD["run_id"])) == RECORD
    assert store.write(later, replace=True)
    assert store.get(RECORD["run_id"])["time"]["seconds"] == 9.0


def test_nan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        Store(tmp_path).write(json.loads(_set(RECORD, "phases.grown.soft.accuracy", float("nan"))))


def test_a_record_of_many_boundaries_is_not_refused(tmp_path):
    """All digits of t and r in four phases, with the largest allowed rest of the record."""
    sizes = {"t": [np.pi] * 1000, "r": [1 / 3] * 1000, "count": [1024] * 1000}
    phase = {**RECORD["phases"]["grown"], **sizes, "integer": [False] * 1000}
    phases = dict.fromkeys(("grown", "fixed", "from_high", "continue_1"), phase)
    record = changed(phases=phases, hardware={"cpu": "x" * 4000})
    assert Store(tmp_path).write(record)
    assert without_digests(Store(tmp_path).get(RECORD["run_id"])) == record


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", json.dumps({"schema": 1}), json.dumps({**RECORD, "run_id": f"{RECORD['run_id'][:-1]}x"})],
)
def test_damaged_or_foreign_files_are_named(tmp_path, content):
    path = Store(tmp_path).path(RECORD["run_id"])
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(RecordError, match=path.name):
        read_record(path)


def _write(root, barrier, number, answers):
    barrier.wait()
    record = changed(time={"started": "x", "seconds": float(number)})
    answers.put(Store(root).write(record, {**STEPS, "grown.step": np.arange(3) + number}))


def test_of_sixteen_writers_exactly_one_succeeds(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(16), context.Queue()
    writers = [context.Process(target=_write, args=(tmp_path, barrier, n, answers)) for n in range(16)]
    for writer in writers:
        writer.start()
    got = [answers.get(timeout=60) for _ in writers]
    for writer in writers:
        writer.join()
    assert sorted(got) == [False] * 15 + [True]
    assert len(list((tmp_path / "cora").iterdir())) == 2
    written, curves = Store(tmp_path).get(RECORD["run_id"]), Store(tmp_path).curves(RECORD["run_id"])
    assert curves["grown.step"][0] == written["time"]["seconds"], "curves of another writer"


@pytest.mark.parametrize("damage", ["cut", "garbled", "empty", "no curves", "too many"])
def test_damaged_curves_are_named_and_not_returned(tmp_path, damage, caplog):
    store = Store(tmp_path)
    store.write(RECORD, {name: np.resize(curve, (300, *curve.shape[1:])) for name, curve in STEPS.items()})
    path = store.curves_path(RECORD["run_id"])
    content = path.read_bytes()
    if damage == "no curves":
        np.savez(path)
    elif damage == "too many":
        np.savez_compressed(path, x=np.zeros(MAX_CURVE_BYTES))
    else:
        garbled = content[:60] + bytes(99) + content[159:]
        path.write_bytes({"cut": content[:-40], "garbled": garbled, "empty": b""}[damage])
    assert store.curves(RECORD["run_id"]) is None
    assert path.name in caplog.text
    assert "force=true" in caplog.text


def flipped(content):
    """Yield copies of a content with one changed bit each."""
    for at in range(0, 8 * len(content), 37):
        copy = bytearray(content)
        copy[at // 8] ^= 1 << at % 8
        yield bytes(copy)


def test_a_changed_bit_of_a_record_or_its_curves_is_found(tmp_path):
    store, name = Store(tmp_path), RECORD["run_id"]
    store.write(RECORD, STEPS)
    path, beside = store.path(name), store.curves_path(name)
    intact, record = path.read_bytes(), store.get(name)
    for content in flipped(intact):
        with contextlib.suppress(RecordError):
            assert parse(content, "here") == record
    for content in flipped(beside.read_bytes()):
        beside.write_bytes(content)
        assert store.curves(name) is None
    assert path.read_bytes() == intact


def test_a_record_without_a_digest_is_read(tmp_path):
    store = Store(tmp_path)
    store.write(RECORD, STEPS)
    store.path(RECORD["run_id"]).write_text(json.dumps(RECORD))
    assert store.get(RECORD["run_id"]) == RECORD
    assert store.curves(RECORD["run_id"]).keys() == STEPS.keys()


def _set(record, path, value):
    """Return the JSON text of a record in which one value, by its dotted path, is another."""
    record = copy.deepcopy(record)
    *before, last = path.split(".")
    part = record
    for key in before:
        part = part[key]
    part[last] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("schema", 2, "schema version 2"),
        ("extra", 1, "extra"),
        ("run_id", "../../etc/passwd", "run_id"),
        ("phases.grown.soft.mse", -0.5, "phases.grown.soft: mse must be at least 0"),
        ("phases.grown.truncated.accuracy", 100.5, "accuracy must be at most 100"),
        ("phases.grown.soft.score", True, "phases.grown.soft.score: .* valid number .given: True."),
        ("phases.other", RECORD["phases"]["grown"], "phases.other"),
        ("phases.grown.kept", {"early": [1], "middle": [1, 2], "late": [1, 2]}, "kept.early"),
        ("phases.grown.r", None, "phases.grown.r: "),
        ("base", None, "base: "),
        ("config", {"task": {}}, "config: must have gate, method"),
        ("code.clean", 1, "code.clean"),
        ("phases.grown.t", [-1e-9], "t"),
        ("phases.grown.t", [1.0, 2.0], "t has 2 entries"),
        ("phases.grown.r", [1.5], "r"),
        ("phases.grown.count", [2.0], "integer"),
        ("phases.grown.n", {"accuracy": 1e30}, "n"),
        ("phases.grown.seconds", 1e300, "seconds"),
        ("phases.grown.prefixes", [-1e-9], "negative score"),
        ("data.provenance", "official files\n\\write18{x}", "data.provenance has the control character U\\+000A"),
        ("data.name", "co\u2028ra", "U\\+2028"),
        ("packages", {"to\u202erch": "1"}, "U\\+202E"),
        ("config.seed", "\ud800", "U\\+D800"),
        ("phases.grown.samples", {"soft": "Once\x07"}, "U\\+0007"),
    ],
)
def test_what_no_run_can_have_is_refused(tmp_path, path, value, named):
    """In a record without a digest, as an older one is, and by the writer."""
    text = _set(RECORD, path, value)
    with pytest.raises(RecordError, match=named) as refused:
        parse(text.encode(), "here")
    assert str(refused.value).isprintable()
    with pytest.raises(RecordError, match=named):
        Store(tmp_path).write(json.loads(text))


def test_a_record_is_in_utf_8():
    """In UTF-16, a separator of lines looks like two letters."""
    with pytest.raises(RecordError, match="unreadable"):
        parse(json.dumps(changed(hardware={"cpu": "a\u2028b"}), ensure_ascii=False).encode("utf-16"), "here")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (provenance.Code("c", True, "git"), None),
        (provenance.Code("c", False, "git", tuple("abcd")), "uncommitted changes (a, b, c and 1 more); commit them"),
        (provenance.Code(None, False, "none"), "names no commit; use a git clone"),
    ],
)
def test_what_will_not_count_says_why(monkeypatch, code, said):
    monkeypatch.setattr(provenance, "code", lambda: code)
    why = provenance.why_not_counted()
    assert why is None if said is None else said in why


def test_a_tree_without_git_names_no_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.code.__wrapped__() == provenance.Code(None, False, "none")


def test_stories_may_have_several_lines():
    assert parse(_set(RECORD, "phases.grown.samples", {"soft": "Once\nupon"}).encode(), "here")


def test_a_key_that_stands_twice_is_refused():
    text = json.dumps(RECORD)
    other = json.dumps({"grown": {**RECORD["phases"]["grown"], "t": [7.0], "count": [8]}})
    with pytest.raises(RecordError, match="'phases' stands there twice"):
        parse(f'{text[:-1]}, "phases": {other}}}'.encode(), "here")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"grown.t": np.ones((3, 2))}, "grown.t has shape"),
        ({"grown.t": None}, "needs loss, step, t, task"),
        ({"grown.t": np.full((3, 1), np.nan)}, "NaN or infinity"),
        ({"grown.t": np.full((3, 1), -1.0)}, "negative"),
        ({"grown.loss": np.array(["a", "b", "c"])}, "type <U1"),
        ({"grown.step": np.array([2, 1, 0])}, "does not rise"),
        ({"grown.step": np.ones(3)}, "type float64"),
        ({"other.step": np.arange(3)}, "of grown, other"),
        ({"grown.path": np.ones(3)}, "path"),
    ],
)
def test_curves_of_another_form_are_refused(tmp_path, changes, named, caplog):
    """Also those that the record names: their digest is right."""
    store = Store(tmp_path)
    store.write(RECORD, {name: curve for name, curve in {**STEPS, **changes}.items() if curve is not None})
    assert store.curves(RECORD["run_id"]) is None
    assert named in caplog.text


def test_curves_of_another_run_are_refused(tmp_path, caplog):
    store, name, other = Store(tmp_path), RECORD["run_id"], RECORD["run_id"].replace("s0", "s1")
    store.write(RECORD, STEPS)
    store.write(changed(run_id=other), {**STEPS, "grown.loss": np.zeros(3)})
    store.curves_path(other).replace(store.curves_path(name))
    assert store.curves(name) is None
    assert "curves of another training" in caplog.text
    store.write(RECORD, replace=True)
    store.curves_path(name).write_bytes(b"")
    assert store.curves(name) is None, "this training left no curves"


def test_nothing_but_a_small_regular_file_is_read(tmp_path, caplog):
    store = Store(tmp_path)
    store.write(RECORD, STEPS)
    for path in (store.path(RECORD["run_id"]), store.curves_path(RECORD["run_id"])):
        content = path.read_bytes()
        for fault, make in {
            "no regular file": lambda path=path: os.mkfifo(path),
            "is no regular": lambda path=path: path.symlink_to("/dev/zero"),
            "no regular": lambda path=path: path.mkdir(),
            "more than the limit": lambda path=path: path.touch() or os.truncate(path, 2**35),
        }.items():
            path.unlink()
            make()
            if path.suffix == ".json":
                with pytest.raises(RecordError, match=fault):
                    store.get(RECORD["run_id"])
            else:
                assert store.curves(RECORD["run_id"]) is None
                assert fault in caplog.text
            remove(path)
            path.write_bytes(content)
