"""The examples in the docstrings of models and methods run."""

import doctest
import importlib

import pytest

from experiments.paths import ROOT

FOLDERS = (ROOT / "experiments" / "models", ROOT / "experiments" / "methods")
MODULES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstring_examples_give_the_shown_output(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed
