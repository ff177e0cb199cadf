"""One name, one type: no two classes share a name, and no type alias has the name of another type."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from experiments.paths import ROOT

FOLDERS = ("ngn", "experiments", "scripts")
EXCEPTIONS = {
    "SizesCallback": "one per trainer; the module says which",
}
"""Name of several types → the reason."""


def types_of(path: Path) -> list[tuple[str, str]]:
    """Return (name, definition) of every class and type alias in a file. Type variables do not count.

    Aliases with equal definitions are one type. Classes never are, so the definition of a class is its file.
    """
    tree = ast.parse(path.read_text())
    found = [(node.name, f"class in {path}") for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, node.value
        else:
            continue
        variable = isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"
        if re.fullmatch(r"_?[A-Z][a-z]\w*", name) and not variable:
            found.append((name, ast.unparse(value)))
    return found


def shared(root: Path) -> dict[str, list[str]]:
    """Return name → the files that define it, for every name of several types."""
    files: dict[str, list[str]] = defaultdict(list)
    definitions: dict[str, set[str]] = defaultdict(set)
    for path in (path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))):
        for name, definition in types_of(path):
            files[name].append(path.relative_to(root).as_posix())
            definitions[name].add(definition)
    return {name: files[name] for name, several in definitions.items() if len(several) > 1}


def test_a_name_stands_for_one_type() -> None:
    found = shared(ROOT)
    wrong = [f"{name}: {', '.join(files)}" for name, files in sorted(found.items()) if name not in EXCEPTIONS]
    rule = "one name must stand for one class or alias in all of ngn/, experiments/ and scripts/; rename one of each:"
    assert not wrong, "\n  ".join((rule, *wrong))
    assert not EXCEPTIONS.keys() - found.keys(), "remove these exceptions: nothing shares their names any more"


def test_a_shared_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "ngn").mkdir()
    (tmp_path / "ngn" / "a.py").write_text("Whole = int\nclass Report: ...\nclass Alone: ...\nT = Part = 3\n")
    (tmp_path / "ngn" / "b.py").write_text("Whole = int\nReport = dict[str, int]\nT = TypeVar('T')\n")
    assert shared(tmp_path) == {"Report": ["ngn/a.py", "ngn/b.py"]}
