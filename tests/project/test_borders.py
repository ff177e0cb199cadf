"""Folder borders are import borders: arrows point one way, the library stands alone, and tables need no torch."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from experiments.core.paths import ROOT
from experiments.store.provenance import READERS

grimp = pytest.importorskip("grimp")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = next(contract for contract in CONTRACTS if contract["id"] == "suite")["layers"]
LIBRARY = {"torch", "numpy", "safetensors"}
EXCEPTIONS = {
    "lightning": "ngn.integrations.lightning",  # whose trainer it is for; nothing imports it
    "transformers": "ngn.integrations.transformers",  # likewise
    "peft": "ngn.integrations.peft",  # likewise; ngn.to_peft imports it when it is asked for
    "rich": "ngn.train.progress",  # for the bar on a terminal alone
    "matplotlib": "ngn.front.path",  # for the picture of a front, when it is asked for
}
"""Further package → the one file of the library that imports it, and why it may."""
WITH_TORCH = r"experiments\.((models|tasks|runs)\b|methods\.\w+\.\w+$)"
"""Where models are made. What tasks and methods say of their settings needs no torch (tests/experiments/config)."""
WITHOUT_TORCH = """
import importlib, sys
sys.modules.update(dict.fromkeys(("torch", "torch_geometric", "torchvision")))  # importing them raises ImportError
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_the_contracts_of_imports_hold():
    line = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_library_needs_torch_numpy_and_safetensors_alone():
    graph = grimp.build_graph("ngn", include_external_packages=True, cache_dir=None)
    foreign = {name for name in graph.modules if graph.is_module_squashed(name)} - LIBRARY - sys.stdlib_module_names
    assert {name: {*graph.find_modules_that_directly_import(name)} for name in foreign} == {
        package: {file} for package, file in EXCEPTIONS.items()
    }


def test_changes_that_stop_no_training_are_of_parts_after_the_runs():
    assert set(READERS) == {*LAYERS[: LAYERS.index("runs")], "runs/sweeps"}


def test_torch_stays_where_models_are_made():
    files = (path.relative_to(ROOT).with_suffix("") for path in sorted((ROOT / "experiments").rglob("*.py")))
    names = [".".join(path.parts).removesuffix(".__init__") for path in files]
    line = [sys.executable, "-c", WITHOUT_TORCH, *(name for name in names if not re.match(WITH_TORCH, name))]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
