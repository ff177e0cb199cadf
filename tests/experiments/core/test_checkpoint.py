"""Checkpoints are complete or absent, checked when loaded, the previous one is kept; and signals stop after saving."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from waiting import leave_partial

from experiments.core import checkpoint, interrupt
from experiments.core.paths import ROOT


def write(folder, *steps, identity=None):
    for step in steps:
        checkpoint.save(folder, step, {"x": torch.full((3,), float(step))}, {"seconds": 1.0}, identity)


def test_two_checkpoints_are_kept_and_the_newest_is_loaded(tmp_path):
    assert checkpoint.latest(tmp_path) is None
    write(tmp_path, 10, 20, 30)
    step, tensors, meta = checkpoint.latest(tmp_path)
    assert (step, tensors["x"].tolist(), meta) == (30, [30.0] * 3, {"seconds": 1.0})
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        f"step-{s:010d}.{e}" for s in (20, 30) for e in ("json", "safetensors")
    ]


def described(**changed):
    """A change of the facts in a JSON file."""
    return lambda content: json.dumps({**json.loads(content), **changed}).encode()


OTHER = {"null": b"null", "a list": b"[]", "half": b"{", "deep": b"[" * 100_000, "no text": b"\xff"}
HARM = {
    **{name: ("json", lambda content, other=other: other) for name, other in OTHER.items()},
    "half the tensors": ("safetensors", lambda content: content[: len(content) // 2]),
    "a flipped bit": ("safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 1])),
    "no tensors": ("safetensors", lambda content: None),
    "a folder of tensors": ("safetensors", lambda content: "folder"),
    "a folder": ("json", lambda content: "folder"),
    "another step": ("json", described(step=39)),
    "no meta": ("json", described(meta={})),
    "another meta": ("json", described(meta={"seconds": 2.0})),
    "no seal": ("json", lambda content: content.replace(b'"seal"', b'"other"')),
}


@pytest.mark.parametrize("name", HARM)
def test_a_damaged_checkpoint_is_skipped_for_the_previous_one(tmp_path, name, caplog):
    write(tmp_path, 1, 2)
    end, harm = HARM[name]
    file = tmp_path / f"step-0000000002.{end}"
    content = harm(file.read_bytes())
    file.unlink()
    if content == "folder":
        (file / "below").mkdir(parents=True)
    elif content is not None:
        file.write_bytes(content)
    step, tensors, _ = checkpoint.latest(tmp_path)
    assert (step, float(tensors["x"][0])) == (1, 1.0)
    assert "cannot be used" in caplog.text
    assert file.with_suffix(".json").exists(), "latest must remove nothing"
    checkpoint.remove_newer(tmp_path, step)
    assert sorted(tmp_path.iterdir()) == [tmp_path / f"step-0000000001.{end}" for end in ("json", "safetensors")]
    write(tmp_path, 2)
    assert checkpoint.latest(tmp_path)[0] == 2


def test_without_a_usable_checkpoint_there_is_none_to_resume(tmp_path, caplog):
    write(tmp_path, 1, 2)
    (tmp_path / "step-0000000001.safetensors").write_bytes(b"junk")
    (tmp_path / "step-0000000002.json").write_text("null")
    assert checkpoint.latest(tmp_path) is None
    assert caplog.text.count("cannot be used") == 2
    checkpoint.remove_newer(tmp_path, None)
    assert not list(tmp_path.iterdir()), "otherwise the next save would keep the damaged ones, whose steps are higher"


def test_an_unreadable_disk_loses_no_checkpoint(tmp_path, monkeypatch):
    write(tmp_path, 1)
    before = sorted(tmp_path.iterdir())

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("experiments.core.reading.open_regular", fail)
    with pytest.raises(OSError, match="Input/output"):
        checkpoint.latest(tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_is_removed_completely_or_not_at_all(tmp_path, monkeypatch):
    """If the process is killed during the removal, no remaining file looks like a checkpoint."""
    write(tmp_path / "run", 1, 2)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    checkpoint.remove(tmp_path / "run")
    assert [p.name for p in tmp_path.iterdir()] == [f"run{checkpoint.REMOVED}"]


def test_what_a_killed_save_left_is_removed_when_the_training_resumes(tmp_path):
    write(tmp_path, 1, 2)
    before = sorted(tmp_path.iterdir())
    leave_partial(tmp_path / "step-0000000003.json")
    for step in (0, 3):  # killed while it removed a checkpoint, and before it described one
        (tmp_path / f"step-{step:010d}.safetensors").touch()
    checkpoint.remove_newer(tmp_path, 2)
    assert sorted(tmp_path.iterdir()) == before


def test_an_interrupted_save_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    write(tmp_path, 1)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fail(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path, 2)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_checkpoint_of_another_identity_is_skipped_with_a_warning(tmp_path, caplog):
    write(tmp_path, 100, 200, identity={"commit": "a", "engine": "torch"})
    assert checkpoint.latest(tmp_path, {"commit": "a", "engine": "torch"})[0] == 200
    assert checkpoint.latest(tmp_path)[0] == 200, "identity=None must accept every checkpoint"
    assert checkpoint.latest(tmp_path, {"commit": "b", "engine": "torch"}) is None
    assert "commit was a and is now b" in caplog.text
    assert "engine" not in caplog.text
    assert checkpoint.latest(tmp_path)[0] == 200, "latest must remove nothing"


def test_a_sealed_file_holds_what_was_written(tmp_path):
    path, identity = tmp_path / "finished.json", {"commit": "a"}
    facts = {"results": [{"mse": 0.1, "t": [float("inf")]}], "curves": []}
    checkpoint.write_sealed(path, facts, identity)
    assert checkpoint.read_sealed(path, identity) == facts | {"identity": identity}
    path.write_text(path.read_text().replace("0.1", "0.2"))
    with pytest.raises(ValueError, match="does not match"):
        checkpoint.read_sealed(path, identity)


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt.handled():
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.requested()
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


PROGRAM = """
import sys
from experiments.core import interrupt
with interrupt.handled(), interrupt.deferred():
    print("ready", flush=True)
    while not interrupt.requested():
        pass
    print("a progress bar", file=sys.stderr, flush=True)  # an OSError, if the terminal is gone
    open(sys.argv[1], "w").write("saved")
"""


def test_a_closed_terminal_does_not_stop_the_saving(tmp_path):
    mine, theirs = os.openpty()
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "checkpoint")]
    # setsid -c makes the terminal that of the program, so that closing it sends SIGHUP
    program = subprocess.Popen(["setsid", "-c", *words], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert os.read(mine, 100).strip() == b"ready"
    os.close(mine)
    assert program.wait(timeout=60) == 1, "the exception itself has nowhere to go"
    assert (tmp_path / "checkpoint").read_text() == "saved"
