"""One name, one type: no two classes share a name, and no type alias has the name of another type."""

import ast
import re
from collections import defaultdict

from experiments.core.paths import ROOT

EXCEPTIONS = {"SizesCallback": "one per trainer; the module says which"}
"""Name of several types → the reason."""


def types_of(path):
    """(name, definition) of every class and type alias in a file; aliases of one definition are one type."""
    text = path.read_text()
    yield from ((name, f"class in {path}") for name in re.findall(r"^ *class (\w+)[(:]", text, re.MULTILINE))
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        variable = isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"
        if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z][a-z]\w*", target.id) and value and not variable:
            yield target.id, ast.unparse(value)


def test_a_name_stands_for_one_type():
    files = defaultdict(dict)
    for path in (
        path for folder in ("ngn", "experiments", "scripts") for path in sorted((ROOT / folder).rglob("*.py"))
    ):
        for name, definition in types_of(path):
            files[name][definition] = path.relative_to(ROOT).as_posix()
    shared = {name: [*places.values()] for name, places in files.items() if len(places) > 1}
    wrong = [f"{name}: {', '.join(places)}" for name, places in shared.items() if name not in EXCEPTIONS]
    rule = "one name must stand for one class or alias in all of ngn/, experiments/ and scripts/; rename one of each:"
    assert not wrong, "\n  ".join((rule, *wrong))
    assert not EXCEPTIONS.keys() - shared.keys(), "remove these exceptions: nothing shares their names any more"
