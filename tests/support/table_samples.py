"""Fixtures and helpers for tests that build tables from made-up records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import record_samples as samples

from experiments.analysis.build import find
from experiments.analysis.collect import Reader
from experiments.analysis.reduce import Cell, reduce_cell
from experiments.store.records import Store
from experiments.studies import macro
from scripts.build_paper_data import main


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write records of every run of every row."""
    made = tmp_path_factory.mktemp("filled") / "results"
    samples.fill(Store(made))
    return made


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Store:
    """Copy the records, so that a test can change them."""
    return Store(shutil.copytree(filled, tmp_path / "results"))


def cell(store: Store, name: str) -> Cell:
    ((table, row, column),) = find(name, macro)
    return reduce_cell(Reader(store), table, row, column)


def build(store: Store, *options: str) -> tuple[int, str]:
    output = store.root.parent / "out.tex"
    status = main(["--results", str(store.root), "--output", str(output), *options])
    return status, output.read_text() if output.exists() else ""
