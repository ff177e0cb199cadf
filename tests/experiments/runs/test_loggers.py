"""Loggers of curves: none changes a number or stops a training."""

from __future__ import annotations

import csv
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.cli import app
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.config.run_files import Run
from experiments.core import packages
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.runs import loggers
from experiments.runs.launch import launch
from experiments.store.records import Store
from ngn.train.trainer import Trainer


def short(tmp_path: Path, logger: str, seed: int = 0, **more: object) -> Config:
    keys = {"train.steps": 12, "gate.K": 4, "phases": ["grown"], "seed.value": seed, "logger": logger, **more}
    return compose({"profile": "smoke"}, {"results": str(tmp_path / "results"), "progress": "never", **keys})


def rows(config: Config, phase: str = "grown") -> list[dict[str, str]]:
    path = Store(Path(config.results or "")).path(run_id(config)).with_suffix(f".{phase}.csv")
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_csv_holds_the_points_of_the_record_for_every_run_of_a_stack(tmp_path: Path, engine: str) -> None:
    configs = [short(tmp_path, "csv", seed, engine=engine) for seed in (0, 1)]
    assert run_id(configs[0]) == run_id(short(tmp_path, "none", engine=engine)), "no part of the identity"
    launch(configs)
    for config in configs:
        curves, written = Store(tmp_path / "results").curves(run_id(config)), rows(config)
        assert curves is not None
        assert [int(row["step"]) for row in written] == curves["grown.step"].tolist()
        np.testing.assert_allclose([float(row["t"]) for row in written], curves["grown.t"][:, 0], rtol=1e-6)
        np.testing.assert_allclose([float(row["loss"]) for row in written], curves["grown.loss"], rtol=1e-6)


def test_every_phase_logs_under_the_name_of_its_run(tmp_path: Path) -> None:
    """This includes continuations at other prices, whose configurations have other run ids."""
    config = short(tmp_path, "csv", engine="torch", continue_with=[0.1, 10.0])
    launch([config])
    path = Store(tmp_path / "results").path(run_id(config))
    phases = ("grown", "continue_0p1", "continue_10")
    assert sorted(path.parent.glob("*.csv")) == sorted(path.with_suffix(f".{phase}.csv") for phase in phases)


def test_after_an_interruption_no_point_is_missing_or_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = short(tmp_path, "csv", engine="torch", checkpoint_seconds=1e-9)
    real = Trainer._step

    def dies(self: Trainer, step: int, *rest: object) -> object:
        if step == 7:
            raise KeyboardInterrupt
        return real(self, step, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Trainer, "_step", dies)
    with pytest.raises(KeyboardInterrupt):
        launch([config])
    monkeypatch.setattr(Trainer, "_step", real)
    assert launch([config])[0].status == "complete"
    assert [int(row["step"]) for row in rows(config)] == list(range(12))


@pytest.mark.parametrize("where", ["opening", "writing", "closing"])
def test_a_failing_logger_does_not_stop_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError("no space left")

    def sink(run: Run, phase: str, ends: ExitStack) -> object:
        if where == "opening":
            fails()
        ends.callback(fails if where == "closing" else lambda: None)
        return fails if where == "writing" else lambda *_: None

    monkeypatch.setitem(loggers.SINKS, "csv", sink)
    assert launch([short(tmp_path, "csv")])[0].status == "complete"
    assert caplog.text.count("logger=csv failed (OSError: no space left); training continues without it") == 1


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = short(tmp_path, "tensorboard")
    launch([config])
    events = EventAccumulator(str(tmp_path / "scratch" / "tensorboard" / run_id(config) / "grown"))
    events.Reload()
    assert {"loss", "task", "t"} == set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("t")] == list(range(12))


def test_wandb_starts_one_run_per_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the calls with a fake package. Offline mode needs neither network nor account."""
    begun: list[dict[str, object]] = []
    steps: list[int] = []

    def init(**settings: object) -> SimpleNamespace:
        begun.append(settings)
        return SimpleNamespace(log=lambda row, step: steps.append(step), finish=lambda: steps.append(-1))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    config = short(tmp_path, "wandb")
    launch([config])
    assert [(run["mode"], run["group"]) for run in begun] == [("offline", run_id(config))]
    assert steps == [*range(12), -1]


def test_a_missing_logging_package_is_named_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_installed", lambda name: name != "wandb")
    with pytest.raises(ConfigError, match=r"logger=wandb needs the package wandb: pip install -e '.\[logging\]'"):
        app.prepare(["logger=wandb"])
