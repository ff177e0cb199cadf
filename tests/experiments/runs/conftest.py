"""Tests of runs write their scratch files to a temporary folder, not to the project's."""

from pathlib import Path

import pytest

from experiments.config import identity


@pytest.fixture(autouse=True)
def own_scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "SCRATCH", tmp_path / "scratch")
