"""Runs of tests write nothing beside the project's own."""

from pathlib import Path

import pytest

from experiments.runs import places


@pytest.fixture(autouse=True)
def own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "SCRATCH", tmp_path / "scratch")
