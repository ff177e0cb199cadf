"""The examples in docstrings and pages run, and every public name of the library has one."""

import ast
import doctest
import importlib
import inspect

import pytest

import ngn
from experiments.core.paths import ROOT

FOLDERS = (ROOT / "ngn", ROOT / "experiments" / "models", ROOT / "experiments" / "methods")
MODULES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py") if ">>> " in path.read_text())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_give_what_they_say(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    if path.stem == "peft":
        pytest.importorskip("peft")
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted
    assert not results.failed


@pytest.mark.parametrize("page", ["library", "front", "budgets", "extending/library", "formats"])
def test_the_examples_of_a_page_run(page):
    results = doctest.testfile(str(ROOT / "docs" / f"{page}.md"), module_relative=False)
    assert results.attempted
    assert not results.failed


def test_every_public_name_has_an_example():
    names = [name for name in ngn.__all__ if name != "__version__"]
    assert not [name for name in names if ">>> " not in inspect.getdoc(getattr(ngn, name))]


def test_editors_see_what_is_loaded_when_it_is_used():
    tree = ast.parse((ROOT / "ngn" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert {(a.name, part.module) for part in block.body for a in part.names} == set(ngn._WHERE.items())
