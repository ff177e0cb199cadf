"""Runs of tests write nothing beside the project's own."""

from pathlib import Path

import pytest

from experiments.runs import run_files


@pytest.fixture(autouse=True)
def own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "SCRATCH", tmp_path / "scratch")
