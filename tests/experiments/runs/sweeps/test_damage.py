"""A damaged file beside the records stops no command, and no command counts a damaged record as a result."""

import io
import json
import os
import sys

import pytest
from faulty import child
from record_samples import grown, record

from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps import slurm, status, worker
from experiments.store.leases import Leases
from experiments.store.records import RecordError, Store
from experiments.studies import STUDIES
from experiments.studies.model import Study
from scripts import sweep


@pytest.fixture
def complete(monkeypatch, tmp_path):
    """Make a study of three runs with records. Return a function that runs the script on it."""
    base = STUDIES["smoke"].make()
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "three", lambda: [base[0].with_seeds(range(3))]))
    store = Store(tmp_path)
    for run in STUDIES["tiny"].runs():
        store.write(record(run.config, {"grown": grown([2.0], 1e-3, 1e-3)}))
    return lambda *words: sweep.main([words[0], "tiny", f"--results={tmp_path}", *words[1:]])


@pytest.mark.parametrize("content", ["", '{"schema": 2}', "NaN"])
def test_a_study_with_a_damaged_record_is_not_complete(complete, tmp_path, capsys, content):
    assert complete("run") == 0
    Store(tmp_path).path(next(STUDIES["tiny"].runs()).id).write_text(content)
    capsys.readouterr()
    assert complete("run") == 1
    assert (
        f"1 records do not count: python scripts/sweep.py status tiny --results {tmp_path}" in capsys.readouterr().out
    )
    assert complete("plan", "--again", "refused") == 0
    assert "1 runs in 1 tasks" in capsys.readouterr().out


def test_damaged_failure_files_do_not_hide_the_rest(tmp_path, caplog):
    sound = json.dumps({"job": "1_0", "plan": "p", "task": 0})
    (tmp_path / "jobs.jsonl").write_text(f'{sound}\n{{"job": "1_1", "pl\n[]\n{sound.replace("0}", "[]}")}\n\n{sound}\n')
    assert [job.job for job in slurm.submitted(tmp_path)] == ["1_0", "1_0"]
    assert caplog.text.count("jobs.jsonl: skipping a damaged line") == 3
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "x.json").write_text("{")
    assert "is damaged" in status.failures(tmp_path)["x"]
    (tmp_path / "plan-abc.jsonl").write_text("")
    assert plans._plans(tmp_path) == []


@pytest.mark.parametrize("content", ["", "[]", "[1]", "[" * 100_000, None])
def test_worker_and_status_name_a_damaged_plan(complete, tmp_path, monkeypatch, capsys, content):
    """``content=None`` removes the task's line."""
    runs = list(STUDIES["tiny"].runs())
    path = plans.freeze(plans.folder_of("tiny", tmp_path), "tiny", tmp_path, runs, 10)
    head, _ = path.read_text().splitlines()
    path.write_text(head + "\n" + ("" if content is None else f"{content}\n"))
    statuses = worker.run_task(path, 0)
    assert len(statuses) == 3
    assert all(str(path) in why and "write a new plan" in why for why in statuses.values())
    jobs = [{"job": f"7_{task}", "plan": str(path), "task": task} for task in range(2)]
    (path.parent / "jobs.jsonl").write_text("\n".join(map(json.dumps, jobs)))
    monkeypatch.setattr(slurm, "in_queue", lambda jobs: {job.job: "RUNNING" for job in jobs})
    capsys.readouterr()
    assert complete("status") == 0
    assert "job 7_1: its runs are unknown" in capsys.readouterr().err
    path.write_text("{")
    assert complete("status") == 0
    assert str(path) in capsys.readouterr().err


def test_a_folder_in_place_of_the_lock_is_named_before_training(tmp_path):
    (tmp_path / ".leases" / ".lock").mkdir(parents=True)
    with Leases(tmp_path) as leases, pytest.raises(RecordError, match=r"\.lock: is a folder, .*; remove the folder"):
        leases.take(["a"])
    assert [path.name for path in (tmp_path / ".leases").iterdir()] == [".lock"]


PLACES = {"nowhere": "nothing", "circle": "", "unreadable": "/proc/self/mem"}
"""What a link in place of a file leads to; "" is itself. Not even root can read the last."""


def put_odd(path, place):
    """Put something else in place of a file."""
    path.unlink(missing_ok=True)
    if place == "folder":
        (path / "below").mkdir(parents=True)
    elif place == "pipe":
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(PLACES[place] or path.name)


@pytest.mark.parametrize("place", ["folder", "pipe", *PLACES])
@pytest.mark.parametrize("file", ["plan", "older plan", "jobs", "failure", "lease", "record", "curves"])
def test_what_stands_in_place_of_a_file_ends_no_command(complete, tmp_path, capsys, caplog, monkeypatch, file, place):
    runs = list(STUDIES["tiny"].runs())
    name, store = runs[0].id, Store(tmp_path)
    store.path(name).unlink()
    folder = plans.folder_of("tiny", tmp_path)
    plan = plans.freeze(folder, "tiny", tmp_path, runs, 10)
    (folder / "jobs.jsonl").write_text(json.dumps({"job": "7_0", "plan": str(plan), "task": 0}) + "\n")
    monkeypatch.setattr(slurm, "in_queue", lambda jobs: {job.job: "RUNNING" for job in jobs})
    paths = {
        "plan": plan,
        "older plan": folder / "plan-0000.jsonl",
        "jobs": folder / "jobs.jsonl",
        "failure": worker.failure_path(plan, name),
        "lease": tmp_path / ".leases" / f"{name}.lease",
        "record": store.path(name),
        "curves": store.curves_path(name),
    }
    put_odd(paths[file], place)
    assert complete("status") in (0, 1, 2)
    if file in ("record", "plan", "jobs", "failure"):
        assert str(paths[file]) in "".join(capsys.readouterr()) + caplog.text
    assert complete("plan", "--again", "refused") in (0, 1, 2)
    if file == "plan":
        assert complete("run", "--plan", str(plan)) in (1, 2)
        assert str(plan) in capsys.readouterr().err
        monkeypatch.setattr("sys.argv", ["worker", str(plan)])
        monkeypatch.setattr("sys.stdin", io.StringIO("0\n"))
        assert child(lambda: sys.exit(10 + worker.main())) == 11  # in a process of its own, whose output it redirects
    if file == "curves":
        assert store.curves(name) is None
    if file == "lease":
        with Leases(tmp_path) as leases:
            assert leases.owner(name) is None
            assert leases.take([name]) == [name]
