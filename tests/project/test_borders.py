"""Folder borders are import borders: arrows point one way, the library stands alone, and tables need no torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.paths import ROOT

RANKS = (
    ("paths", "blocks"),
    ("data",),  # with store.records alone: files are published there, too
    ("methods", "tasks"),
    ("config",),
    ("store",),
    ("runs",),
    ("analysis", "tables", "studies"),
    ("sweeps",),
    ("figures",),
    ("report",),
    ("page",),
    ("cli",),
)
"""The parts of the suite; each imports from those before it, and within its own line."""
LIBRARY = {"torch", "numpy", "safetensors", "ngn", *sys.stdlib_module_names}
HEAVY = {"torch", "torch_geometric", "torchvision"}
TORCH_FREE = ("paths", "blocks", "config", "store", "data", "methods", "analysis", "tables", "figures", "report", "page")
TORCH_FREE += ("studies", "sweeps", "cli")
EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(file, part it imports from): why it may."""


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imports(path: Path, lazy: bool) -> Iterator[str]:
    """The dotted modules that a file imports, those of types left out; with ``lazy`` those inside functions as well."""

    def walk(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt) and _for_types_only(child):
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
    foreign = {name for name in imports(path, lazy=True) if name.partition(".")[0] not in LIBRARY}
    assert not foreign


def test_every_part_of_the_suite_has_a_rank() -> None:
    assert {part_of(path) for path in files("experiments")} - {"__init__"} == {p for parts in RANKS for p in parts}


@pytest.mark.parametrize("path", files("experiments"), ids=lambda path: str(path.relative_to(ROOT)))
def test_arrows_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    name = path.relative_to(ROOT / "experiments").as_posix()
    for module in imports(path, lazy=True):
        top, _, rest = module.partition(".")
        assert top not in ("tests", "scripts", "benchmarks", "run"), module
        other = rest.partition(".")[0]
        if top == "experiments" and (name, other) not in EXCEPTIONS:
            assert rank(other) <= rank(part), f"{part} imports from {other}, which comes after it"


@pytest.mark.parametrize("path", files("experiments"), ids=lambda path: str(path.relative_to(ROOT)))
def test_torch_stays_where_models_are_made(path: Path) -> None:
    if part_of(path) in TORCH_FREE:
        assert not {name for name in imports(path, lazy=False) if name.partition(".")[0] in HEAVY}
