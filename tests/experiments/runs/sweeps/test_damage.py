"""A damaged file beside the records stops no command, and no command counts a damaged record as a result.

The fault ``damaged_beside`` damages every file in every way, and puts folders, links and pipes in their place.
"""

import json

import pytest
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


def test_a_study_with_a_damaged_record_is_not_complete(complete, tmp_path, capsys):
    assert complete("run") == 0
    Store(tmp_path).path(next(STUDIES["tiny"].runs()).id).write_text('{"schema": 2}')
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
    with pytest.raises(RecordError, match=r"\.lock: is a folder, .*; remove the folder"):
        Leases(tmp_path).take(["a"])
    assert [path.name for path in (tmp_path / ".leases").iterdir()] == [".lock"]
