"""Leases, how processes share runs, and what killed runs leave. tests/support/faults.py injects the faults."""

import json
import os
import platform
import signal

import faulty
import pytest
from record_samples import untimed
from waiting import leave_partial
from whole_runs import smoke

from experiments.config import identity
from experiments.config.identity import run_id, runs_of
from experiments.runs import launch, outcome, phases, training
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps import worker
from experiments.store import leases
from experiments.store.leases import Leases
from experiments.store.records import Store
from ngn.files import temporary_path


def several(tmp_path, seeds):
    return [smoke(tmp_path, gate__K=3, seed__value=seed) for seed in seeds]


def test_one_process_holds_a_run_until_it_releases_it(tmp_path):
    one, other = Leases(tmp_path), Leases(tmp_path)
    assert one.take(["a", "b"]) == ["a", "b"]
    assert other.take(["b", "c"]) == ["c"]
    assert other.owner("a") == one.owner("a") == f"process {os.getpid()} on {platform.node()}"
    one.release(["b"])
    assert other.take(["b"]) == ["b"]
    one.release(["b"])
    assert one.owner("b") is not None, "only its holder releases a run"
    one.release(["a"])
    other.release(["b", "c"])
    assert not list(tmp_path.rglob("*.lease"))


def test_a_killed_process_frees_its_runs_at_once_and_a_suspended_one_keeps_them(tmp_path):
    leases = Leases(tmp_path)
    pid = faulty.start(lambda: (Leases(tmp_path).take(["a"]), faulty.send(signal.SIGSTOP)()))
    os.waitpid(pid, os.WUNTRACED)
    leases.clear("a")
    assert (leases.take(["a"]), leases.owner("a")) == ([], f"process {pid} on {platform.node()}")
    os.kill(pid, signal.SIGKILL)
    faulty.wait(pid)
    assert (leases.path("a").exists(), leases.owner("a"), leases.take(["a"])) == (True, None, ["a"])
    leases.clear("a")
    assert leases.owner("a") is not None
    leases.path("b").write_text("process 1 on a machine that has stopped")
    leases.clear("b")
    assert not leases.path("b").exists()


def test_a_lease_that_is_removed_while_another_process_opens_it_is_taken_anew(tmp_path, monkeypatch):
    one, other, third = Leases(tmp_path), Leases(tmp_path), Leases(tmp_path)
    one.take(["a"])
    real = leases.fcntl.flock

    def late(*given):
        monkeypatch.setattr(leases.fcntl, "flock", real)
        one.release(["a"])
        real(*given)

    monkeypatch.setattr(leases.fcntl, "flock", late)
    assert other.take(["a"]) == ["a"]
    assert other.path("a").exists()
    assert third.take(["a"]) == []


def test_runs_of_a_living_process_are_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "POLL", 0.01)
    configs = several(tmp_path, range(3))
    other = Leases(tmp_path / "results")
    other.take([run_id(configs[1])])
    with pytest.raises(launch.HeldElsewhere, match=f"process {os.getpid()}"):
        launch.launch(configs, patience=0.05)
    done = [Store(tmp_path / "results").get(run_id(config)) is not None for config in configs]
    assert done == [True, False, True], "the free part of the stack is trained"
    other.release([run_id(configs[1])])
    path = plans.freeze(tmp_path / "plans", "x", tmp_path / "results", runs_of(configs), 10)
    other.take([run_id(configs[1])])
    assert worker.run_task(path, 0, patience=0.05)[run_id(configs[1])] == "held"
    other.release([run_id(configs[1])])
    assert worker.run_task(path, 0)[run_id(configs[1])] == "complete"


def test_any_command_re_forms_an_interrupted_stack(tmp_path, monkeypatch):
    """Killed after its second record. A command with the missing and other runs forms the same stack again."""
    real, stacks = outcome.write, []

    def dies(stack, r, *rest):
        if r == 2:
            raise KeyboardInterrupt
        return real(stack, r, *rest)

    monkeypatch.setattr(outcome, "write", dies)
    with pytest.raises(KeyboardInterrupt):
        launch.launch(several(tmp_path, range(4)))
    monkeypatch.setattr(outcome, "write", real)
    train = training.train_stack
    monkeypatch.setattr(training, "train_stack", lambda stack: stacks.append(stack.seeds) or train(stack))
    monkeypatch.setattr(phases, "fit_phase", None)  # none of the four is trained again
    outcomes = launch.launch(several(tmp_path, [3, 2]))
    assert stacks == [[0, 1, 2, 3]]
    assert [o.status for o in outcomes] == ["complete", "complete"]
    assert not list((tmp_path / "scratch" / "checkpoints").glob("*"))


def test_a_failure_is_recorded_until_the_run_succeeds(tmp_path, monkeypatch):
    configs = several(tmp_path, range(2))
    path = plans.freeze(tmp_path / "plans", "x", tmp_path / "results", runs_of(configs), 10)
    real = phases.fit_phase
    monkeypatch.setattr(phases, "fit_phase", lambda *_, **__: 1 / 0)
    told = worker.run_task(path, 0)
    assert set(told.values()) == {"ZeroDivisionError: division by zero"}
    noted = [json.loads(p.read_text()) for p in (path.parent / "failures").glob("*.json")]
    assert {n["run_id"] for n in noted} == set(told)
    monkeypatch.setattr(phases, "fit_phase", real)
    assert set(worker.run_task(path, 0).values()) == {"complete"}
    assert not list((path.parent / "failures").glob("*.json"))


@pytest.mark.parametrize("engine", ["torch", "auto"])
def test_a_run_that_is_killed_while_it_is_scored_is_not_trained_again(tmp_path, monkeypatch, engine):
    """Answers of a language model can take longer than a training, and than the grace after a signal."""
    config = smoke(tmp_path, phases=["grown"], engine=engine, checkpoint_seconds=1e-9)
    expected = json.loads(launch.launch([config])[0].path.read_text())
    Store(tmp_path / "results").path(run_id(config)).unlink()
    real = phases.measure_phase

    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(phases, "measure_phase", dies)
    with pytest.raises(KeyboardInterrupt):
        launch.launch([config])
    assert list(identity.SCRATCH.rglob(f"{run_id(config)}*/grown/step-0000000012.json")), "that of the last step"
    monkeypatch.setattr(phases, "measure_phase", real)
    (outcome,) = launch.launch([config])
    got = json.loads(outcome.path.read_text())
    assert got["execution"]["resumed"] == 1
    assert untimed(got["phases"]) == untimed(expected["phases"])


def test_files_of_an_interrupted_run_are_used_only_by_the_code_that_wrote_them(tmp_path, monkeypatch, caplog):
    """test_checkpoint.py damages such files."""
    config = smoke(tmp_path, phases=["grown", "from_high"], engine="torch", checkpoint_seconds=1e-9)
    expected = json.loads(launch.launch([config])[0].path.read_text())
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
        launch.launch([config])
    monkeypatch.setattr(phases, "made_by", lambda: {"sources": "0" * 64})
    got = json.loads(launch.launch([config])[0].path.read_text())
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
    launch.launch([config])
    assert all(path.exists() for path in left), "their process lives"
    for path in written:
        leave_partial(path)
    launch.launch([config])
    assert sorted(tmp_path.rglob("*.part")) == sorted(left)
