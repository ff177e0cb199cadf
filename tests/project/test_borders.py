"""Folder borders are import borders: arrows point one way, the library stands alone, and tables need no torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.paths import ROOT
from experiments.store.sources import READERS

RANKS = (
    ("packages", "paths", "blocks", "plugins", "processes"),
    ("store",),
    ("data",),
    ("models",),
    ("language",),
    ("contract",),
    ("tasks",),
    ("methods",),
    ("config",),
    ("runs",),
    ("analysis", "tables", "studies"),
    ("sweeps",),
    ("figures",),
    ("drawing",),
    ("report",),
    ("page",),
    ("cli",),
)
"""The parts of the suite; each imports from those before it, and within its own line."""
LIBRARY = {"torch", "numpy", "safetensors", "ngn", *sys.stdlib_module_names}
HEAVY = {"torch", "torch_geometric", "torchvision"}
WITH_TORCH = ("models", "language", "tasks", "runs")
"""The parts in which models are made. A method has its capacity or learner in a file of its own; its settings need no
torch. What tasks say of themselves needs none, either (tests/experiments/config)."""
EXCEPTIONS = {
    "ngn/integrations/lightning.py": "lightning",  # whose trainer it is for; nothing imports it
    "ngn/integrations/transformers.py": "transformers",  # likewise
    "ngn/train/eight_bit.py": "torchao",  # for the one optimiser that is torchao's
    "ngn/train/progress.py": "rich",  # for the bar on a terminal alone
}
"""File of the library → the further package that it imports, and why it may."""


def test_exceptions_are_of_files_that_are_there() -> None:
    assert not [path for path in EXCEPTIONS if not (ROOT / path).is_file()]


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(path: Path, lazy: bool, types: bool = False) -> Iterator[str]:
    """The dotted modules that a file imports; with ``lazy`` those inside functions, with ``types`` those of types."""

    def walk(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and _for_types_only(child) and not types:
                continue
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: imports are absolute"
                yield from (f"{child.module}.{alias.name}" for alias in child.names)
            elif lazy or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                yield from walk(child)

    yield from walk(ast.parse(path.read_text()))


def part_of(path: Path) -> str:
    return path.relative_to(ROOT / "experiments").parts[0].removesuffix(".py")


def rank(part: str) -> int:
    return next(number for number, parts in enumerate(RANKS) if part in parts)


@pytest.mark.parametrize("path", files("ngn"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_library_needs_torch_numpy_and_safetensors_alone(path: Path) -> None:
    foreign = {name.partition(".")[0] for name in imports(path, lazy=True)} - LIBRARY
    assert foreign <= {EXCEPTIONS.get(path.relative_to(ROOT).as_posix())}


def test_changes_that_stop_no_training_are_of_parts_after_the_runs() -> None:
    assert set(READERS) == {part for parts in RANKS[RANKS.index(("runs",)) + 1 :] for part in parts}


def test_every_part_of_the_suite_has_a_rank() -> None:
    assert {part_of(path) for path in files("experiments")} - {"__init__"} == {p for parts in RANKS for p in parts}


@pytest.mark.parametrize("path", files("experiments"), ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    for module in imports(path, lazy=True, types=True):
        top, _, rest = module.partition(".")
        assert top not in ("tests", "scripts", "benchmarks", "run"), module
        other = rest.partition(".")[0]
        if top == "experiments":
            assert rank(other) <= rank(part), f"{part} imports from {other}, which comes after it"


@pytest.mark.parametrize("path", files("experiments"), ids=lambda path: str(path.relative_to(ROOT)))
def test_torch_stays_where_models_are_made(path: Path) -> None:
    made = part_of(path) == "methods" and path.parent.name != "methods" and path.name != "__init__.py"
    if not made and part_of(path) not in WITH_TORCH:
        assert not {name for name in imports(path, lazy=False) if name.partition(".")[0] in HEAVY}


def unit_of(module: str) -> str:
    """A module, or the folder of a task: there the settings class makes the task, which reads the settings."""
    parts = module.split(".")
    return ".".join(parts[:3] if parts[:2] == ["experiments", "tasks"] else parts)


def test_no_import_goes_round_in_a_circle() -> None:
    """Imports of types count."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files("experiments")
    }
    arrows: dict[str, set[str]] = {unit_of(name): set() for name in modules}
    for name, path in modules.items():
        named = (one if one in modules else one.rpartition(".")[0] for one in imports(path, lazy=True, types=True))
        arrows[unit_of(name)] |= {unit_of(other) for other in named if other in modules} - {unit_of(name)}
    while free := [unit for unit, others in arrows.items() if not others & arrows.keys()]:
        for unit in free:
            del arrows[unit]
    assert not arrows, "these go round in a circle, or need what does"
