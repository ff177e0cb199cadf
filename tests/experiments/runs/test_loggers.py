"""Loggers of curves: none changes a number or stops a training."""

import csv
from pathlib import Path

import numpy as np
import pytest
from whole_runs import smoke

from experiments.config.identity import run_id
from experiments.models.trainer import StudyTrainer
from experiments.runs import loggers
from experiments.runs.launch import launch
from experiments.store.records import Store


def short(tmp_path, logger, seed=0, **more):
    return smoke(tmp_path, gate__K=4, phases=["grown"], seed__value=seed, logger=logger, **more)


def rows(config, phase="grown"):
    path = Store(Path(config.results or "")).path(run_id(config)).with_suffix(f".{phase}.csv")
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_csv_holds_the_points_of_the_record_for_every_run_of_a_stack(tmp_path, engine):
    configs = [short(tmp_path, "csv", seed, engine=engine) for seed in (0, 1)]
    assert run_id(configs[0]) == run_id(short(tmp_path, "none", engine=engine)), "no part of the identity"
    launch(configs)
    for config in configs:
        curves, written = Store(tmp_path / "results").curves(run_id(config)), rows(config)
        assert [int(row["step"]) for row in written] == curves["grown.step"].tolist()
        np.testing.assert_allclose([float(row["t"]) for row in written], curves["grown.t"][:, 0], rtol=1e-6)
        np.testing.assert_allclose([float(row["loss"]) for row in written], curves["grown.loss"], rtol=1e-6)


def test_after_an_interruption_no_point_is_missing_or_twice(tmp_path, monkeypatch):
    config = short(tmp_path, "csv", engine="torch", checkpoint_seconds=1e-9)
    real = StudyTrainer._step

    def dies(self, step, *rest):
        if step == 7:
            raise KeyboardInterrupt
        return real(self, step, *rest)

    monkeypatch.setattr(StudyTrainer, "_step", dies)
    with pytest.raises(KeyboardInterrupt):
        launch([config])
    monkeypatch.setattr(StudyTrainer, "_step", real)
    assert launch([config])[0].status == "complete"
    assert [int(row["step"]) for row in rows(config)] == list(range(12))


@pytest.mark.parametrize("where", ["opening", "writing", "closing"])
def test_a_failing_logger_does_not_stop_training(tmp_path, monkeypatch, caplog, where):
    def fails(*_):
        raise OSError("no space left")

    def sink(run, phase, ends):
        if where == "opening":
            fails()
        ends.callback(fails if where == "closing" else lambda: None)
        return fails if where == "writing" else lambda *_: None

    monkeypatch.setitem(loggers.SINKS, "csv", sink)
    assert launch([short(tmp_path, "csv")])[0].status == "complete"
    assert caplog.text.count("logger=csv failed (OSError: no space left); training continues without it") == 1


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = short(tmp_path, "tensorboard")
    launch([config])
    events = EventAccumulator(str(tmp_path / "scratch" / "tensorboard" / run_id(config) / "grown"))
    events.Reload()
    assert {"loss", "task", "t"} == set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("t")] == list(range(12))
