"""Files left by killed runs, and damaged files, cost no other run and no result."""

import json

import pytest
from record_samples import untimed
from waiting import leave_partial

from experiments.config import run_files
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.runs import phases
from experiments.runs.launch import launch
from experiments.store.records import Store
from ngn.files import temporary_path


def smoke(tmp_path, task="regression1d", **overrides):
    keys = {key.replace("__", "."): value for key, value in overrides.items()}
    usual = {"results": str(tmp_path / "results"), "progress": "never", "train.steps": 12}
    return compose({"task": task, "profile": "smoke"}, {**usual, **keys})


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_a_run_that_is_killed_while_it_is_scored_is_not_trained_again(tmp_path, monkeypatch, engine):
    """Answers of a language model can take longer than a training, and than the grace after a signal."""
    config = smoke(tmp_path, phases=["grown"], engine=engine, checkpoint_seconds=1e-9)
    expected = json.loads(launch([config])[0].path.read_text())
    Store(tmp_path / "results").path(run_id(config)).unlink()
    real = phases.measure_phase

    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(phases, "measure_phase", dies)
    with pytest.raises(KeyboardInterrupt):
        launch([config])
    assert list(run_files.SCRATCH.rglob(f"{run_id(config)}*/grown/step-0000000012.json")), "that of the last step"
    monkeypatch.setattr(phases, "measure_phase", real)
    (outcome,) = launch([config])
    got = json.loads(outcome.path.read_text())
    assert got["execution"]["resumed"] == 1
    assert untimed(got["phases"]) == untimed(expected["phases"])


def test_files_of_an_interrupted_run_are_used_only_by_the_code_that_wrote_them(tmp_path, monkeypatch, caplog):
    """test_checkpoint.py damages such files."""
    config = smoke(tmp_path, phases=["grown", "from_high"], engine="torch", checkpoint_seconds=1e-9)
    expected = json.loads(launch([config])[0].path.read_text())
    real, begun = phases.fit_phase, []

    def dies(stack, task, device, setup):
        begun.append(setup.name)
        done = real(stack, task, device, setup)
        if setup.name == "from_high" and len(begun) == 2:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(phases, "fit_phase", dies)
    Store(tmp_path / "results").path(run_id(config)).unlink()
    with pytest.raises(KeyboardInterrupt):
        launch([config])
    monkeypatch.setattr(phases, "sources_digest", lambda: "0" * 64)
    got = json.loads(launch([config])[0].path.read_text())
    assert begun[2:] == ["grown", "from_high"]
    assert "sources was" in caplog.text
    assert untimed(got["phases"]) == untimed(expected["phases"])
    assert got["execution"]["resumed"] == 0


def test_partial_files_of_dead_processes_are_removed(tmp_path):
    config = smoke(tmp_path)
    record = Store(tmp_path / "results").path(run_id(config))
    written = [record, tmp_path / "results" / ".sources" / "0123456789abcdef.sha256"]
    left = [temporary_path(path) for path in written]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    launch([config])
    assert all(path.exists() for path in left), "their process lives"
    for path in written:
        leave_partial(path)
    launch([config])
    assert sorted(tmp_path.rglob("*.part")) == sorted(left)
