"""Fixtures and helpers for tests that build tables from made-up records."""

import shutil

import pytest
import record_samples as samples

from experiments.analysis.build import find
from experiments.analysis.collect import Reader
from experiments.analysis.reduce import reduce_cell
from experiments.store.records import Store
from experiments.studies import macro
from scripts.build_paper_data import main


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Write records of every run of every row."""
    made = tmp_path_factory.mktemp("filled") / "results"
    samples.fill(Store(made))
    return made


@pytest.fixture
def store(filled, tmp_path):
    """Copy the records, so that a test can change them."""
    return Store(shutil.copytree(filled, tmp_path / "results"))


def cell(store, name):
    ((table, row, column),) = find(name, macro)
    return reduce_cell(Reader(store), table, row, column)


def build(store, *options):
    output = store.root.parent / "out.tex"
    status = main(["--results", str(store.root), "--output", str(output), *options])
    return status, output.read_text() if output.exists() else ""
