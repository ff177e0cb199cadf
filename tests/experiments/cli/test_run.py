"""Jobs: what runs, what is printed, and how failures end. The engine is fake; the command line is the real one."""

import errno
import os
import pickle
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.cli import app, machine, recorded, session
from experiments.config.compose import compose
from experiments.config.identity import Run, run_id
from experiments.core import paths
from experiments.core.blocks import ConfigError
from experiments.data import DataError, sets
from experiments.runs import launch
from experiments.runs.training import StorageError
from experiments.store.records import RecordError


def _outcome(config, status="complete"):
    name = run_id(config)
    return SimpleNamespace(run_id=name, status=status, path=Path(f"{name}.json"), message=status)


def raising(error):
    """An engine that fails in every run."""

    def engine(config):
        raise error

    return engine


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run a command line in this process with the given engine. Hydra's output goes to a temporary folder."""
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.setenv("NGN_SCRATCH", "")  # main sets it; monkeypatch restores it after the test
    monkeypatch.setattr(paths, "SCRATCH", tmp_path / "project" / "scratch")
    monkeypatch.setattr(recorded, "RESULTS", tmp_path / "no records")
    monkeypatch.chdir(tmp_path)

    def run(line, engine=_outcome):
        ran = []

        def outcome_of(run):
            ran.append(run.config)
            try:
                return engine(run.config)
            except Exception as error:
                return error

        monkeypatch.setattr(launch, "share", lambda runs: {run.id: outcome_of(run) for run in runs})
        monkeypatch.setattr(sets, "require_files", lambda *_: None)
        monkeypatch.setattr(machine, "why_not_counted", lambda: None)
        monkeypatch.setattr(sys, "argv", ["run.py"])
        return app.main(line.split()), ran

    return run


def test_the_time_is_told_first_and_only_if_something_is_trained(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(recorded, "forecast", lambda runs: f"{len(runs)} runs: long\n")

    told = []

    def engine(config):
        told.append(capsys.readouterr().err)
        return _outcome(config)

    present = Run.of(compose(overrides={"seed.value": 0, "results": str(tmp_path)}))
    present.path.parent.mkdir()
    present.path.touch()
    command(f"seed=0..3 results={tmp_path}", engine)
    assert told[0] == "3 runs: long\n"
    command(f"seed=0 results={tmp_path}")
    assert "long" not in capsys.readouterr().err


def test_relative_folders_are_relative_to_the_working_directory(command, tmp_path):
    _, ran = command("results=out/r data_root=/data")
    assert (ran[0].results, ran[0].data_root) == (str(tmp_path / "out" / "r"), "/data")
    _, ran = command("")
    assert (ran[0].results, ran[0].data_root) == (None, None)


def test_a_present_record_is_success_and_divergence_is_not(command, capsys):
    assert command("", lambda config: _outcome(config, "present"))[0] == 0
    assert command("", lambda config: _outcome(config, "diverged"))[0] == 3
    capsys.readouterr()
    status, _ = command("seed=0..2", lambda config: _outcome(config, "complete" if config.seed.value else "diverged"))
    assert status == 3
    shown = capsys.readouterr()
    assert "1 of 3 runs diverged" in shown.err
    assert "[1/3] seed=0: " in shown.err
    assert len(shown.out.splitlines()) == 3


@pytest.mark.parametrize(
    "error", [ConfigError("no such"), RecordError("r.json"), StorageError("disk full"), DataError("a")]
)
def test_an_error_for_the_reader_prints_its_message_with_status_1(command, capsys, error):
    assert command("", raising(error))[0] == 1
    shown = capsys.readouterr()
    assert shown.err == f"{error}\n"


def test_a_folder_that_cannot_be_written_refuses_the_command_once(command, capsys, monkeypatch):
    def write(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(Path, "write_bytes", write)
    assert command("seed=0..4") == (2, [])
    (told,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"refused: /.*free some space.*Another folder: NGN_OUTPUT=DIR python run\.py \.\.\.", told)


@pytest.mark.parametrize("key", ["results", "hydra.sweep.dir"])
def test_a_folder_of_the_command_that_cannot_be_written_is_named(command, capsys, tmp_path, key):
    (file := tmp_path / "file").write_text("")
    status, ran = command(f"seed=0..4 {key}={file}/below")
    assert (status, ran) == (2, [])
    told = capsys.readouterr().err
    assert told == f"refused: {file}: cannot be read or written (Not a directory). Another folder: {key}=DIR\n"


def test_one_reason_is_told_once(command, capsys):
    assert command("seed=0..4", raising(StorageError("the disk is full")))[0] == 1
    assert capsys.readouterr().err.splitlines() == [
        "[1/5] seed=0: the disk is full",
        "5 of 5 runs failed:",
        "  [1/5] seed=0: the disk is full (and 4 more)",
    ]


def test_a_multirun_continues_after_failures_and_lists_them(command, capsys):
    def engine(config):
        if config.seed.value == 1:
            raise RecordError("one.json: unreadable")
        if config.seed.value == 2:
            raise ZeroDivisionError("a bug")
        return _outcome(config)

    status, ran = command("seed=0..3", engine)
    assert status == 1
    assert len(ran) == 4
    shown = capsys.readouterr()
    assert [line.split("]")[0] for line in shown.out.splitlines()] == ["[1/4", "[4/4"]
    summary = shown.err[shown.err.index("2 of 4 runs failed:") :].splitlines()
    assert summary[1] == "  [2/4] seed=1: one.json: unreadable"
    assert summary[2] == "  [3/4] seed=2: ZeroDivisionError: a bug"
    assert shown.err.count("Traceback") == 1


def test_a_failure_in_another_process_is_raised_to_the_launcher():
    (job,) = app.expand([])
    with pytest.raises(session.RunFailed, match="unreadable"):
        session.Session([job], process=os.getpid() + 1).report(0, job, RecordError("one.json: unreadable"))


def test_a_job_sent_to_another_process_carries_no_configurations():
    """The launcher sends what Hydra composed from the overrides of the job."""
    sent = pickle.loads(pickle.dumps(session.Session(app.expand(["seed.value=1,2"]), several=True).job)).__self__
    assert (sent.jobs, sent.labels, sent.process) == ([], ["seed=1", "seed=2"], os.getpid())


def test_an_interruption_ends_the_multirun(command, capsys):
    status, ran = command("seed=0..3", raising(KeyboardInterrupt))
    assert (status, len(ran)) == (130, 1)
    told = capsys.readouterr().err
    assert "stopped by SIGINT; all progress is saved. To continue:" in told
    assert "  python " in told
    assert told.rstrip().endswith("seed=0..3")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)])
def test_a_special_file_in_the_place_of_a_record_is_refused_before_the_training(make, tmp_path, capsys):
    place = tmp_path / "regression1d" / f"{run_id(compose({'profile': 'smoke'}))}.json"
    place.parent.mkdir()
    make(place)
    assert app.main(["profile=smoke", f"results={tmp_path}", "force=true"]) == 2
    assert f"refused: {place}: is no regular file; remove it" in capsys.readouterr().err
