"""The project stays small: lines, packages, arrows between them, words, and public names of the library."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ngn
from experiments.core.paths import ROOT

LIMITS = {
    "lines of experiments and benchmarks": 30_000,
    "lines of benchmarks": 2_300,
    "lines of ngn": 13_100,
    "lines of scripts and plug-ins": 1_210,
    "lines of tests": 23_000,
    "packages of experiments": 12,
    "arrows between packages": 48,
    "floors": 11,
    "words of docs": 57_000,
}
"""What nothing may exceed; lower a limit when the measure has fallen, and never raise one."""
PUBLIC = {name for name in ngn.__all__ if name != "__version__"}


def tracked(*patterns: str) -> list[Path]:
    listed = ["git", "ls-files", "-co", "--exclude-standard", "--", *patterns]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [path for name in sorted({*names}) if (path := ROOT / name).is_file()]


def lines(*folders: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in tracked(*folders) if path.suffix == ".py")


def arrows() -> dict[str, set[str]]:
    """Package, or module at the top, of experiments → the others that it imports, in functions and for types too."""
    top = ROOT / "experiments"
    files = [path for path in top.rglob("*.py") if path != top / "__init__.py"]
    part = {path: path.relative_to(top).parts[0].removesuffix(".py") for path in files}
    found: dict[str, set[str]] = {name: set() for name in part.values()}
    for path, here in part.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in getattr(node, "names", ())] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            others = {name.split(".")[1] for name in names if name.startswith("experiments.")}
            found[here] |= (others & found.keys()) - {here}
    return found


def floors(of: dict[str, set[str]]) -> int:
    """The parts on the longest way along arrows; one that closes a circle ends the way."""
    depth: dict[str, int] = {}

    def floor(part: str, way: tuple[str, ...] = ()) -> int:
        if part in way:
            return 0
        if part not in depth:
            depth[part] = 1 + max((floor(other, (*way, part)) for other in sorted(of[part])), default=0)
        return depth[part]

    return max(map(floor, of))


@pytest.mark.checkout
def test_nothing_grows_beyond_its_limit() -> None:
    parts = arrows()
    measured = {
        "lines of experiments and benchmarks": lines("experiments", "benchmarks"),
        "lines of benchmarks": lines("benchmarks"),
        "lines of ngn": lines("ngn"),
        "lines of scripts and plug-ins": lines("scripts", "hydra_plugins"),
        "lines of tests": lines("tests"),
        "packages of experiments": sum((ROOT / "experiments" / part).is_dir() for part in parts),
        "arrows between packages": sum(map(len, parts.values())),
        "floors": floors(parts),
        "words of docs": sum(len(path.read_text().split()) for path in tracked("docs/*.md", "docs/**/*.md")),
    }
    assert measured.keys() == LIMITS.keys()
    assert {name: size for name, size in measured.items() if size > LIMITS[name]} == {}, measured


def test_the_public_names_are_few_and_each_has_an_entry_in_the_reference() -> None:
    assert len(PUBLIC) <= 23
    page = (ROOT / "docs" / "site" / "api.rst").read_text()
    entries = re.findall(r"^\.\. auto(?:class|function):: ngn\.(\w+)$", page, re.MULTILINE)
    assert sorted(entries) == sorted(PUBLIC)


def test_what_a_user_of_the_library_reads_imports_nothing_of_the_suite() -> None:
    pages = [ROOT / "README.md", *(ROOT / "examples" / "gallery").glob("*.py")]
    pages += [ROOT / "docs" / f"{page}.md" for page in ("library", "extending/size", "extending/library", "formats")]
    imports = re.compile(r"^\W*(from|import) experiments\b", re.MULTILINE)
    assert not [str(path.relative_to(ROOT)) for path in pages if imports.search(path.read_text())]


COUNT = """
import os, runpy, sys, threading
root, seen, frames = os.getcwd() + "/", {}, [0]
own = tuple(root + part for part in ("experiments/", "ngn/", "hydra_plugins/", "scripts/", "run.py"))
def called(frame, event, argument):
    code = frame.f_code
    if event == "call" and id(code) not in seen and code.co_filename.startswith(own):
        seen[id(code)] = code
        if code.co_qualname == "Trainer.fit":
            while frame := frame.f_back:
                frames[0] += frame.f_code.co_filename.startswith(own)
sys.argv = sys.argv[1:]
sys.path.insert(0, root)
threading.setprofile(called)
sys.setprofile(called)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    sys.setprofile(None)
    named = [code for code in seen.values() if code.co_flags & 1 and code.co_name[0] != "<"]  # no bodies of classes
    print(len(named), frames[0], file=sys.__stderr__)
"""
"""Run a program; print the own functions that it calls, and those that are open when the trainer begins."""
RUN = ["run.py", "task=cifar10", "gate=conv", "profile=smoke", "train.epochs=null", "train.steps=2", "progress=never"]
RUN += ["checkpoint_seconds=3600"]  # on a slow machine, too, no checkpoint is due
WAYS = {
    "a CIFAR-10 run": (400, RUN),
    "two present runs": (140, [*RUN, "seed=0,1"]),
    "a cell": (140, ["scripts/build_paper_data.py", "--explain", "datafourbody.baseline.t"]),
}
"""Command → the most functions of the project on its way."""


@pytest.mark.slow(seconds=120)
def test_the_ways_through_the_code_are_short(tmp_path: Path) -> None:
    measured = {}
    environment = {**os.environ, "NGN_OUTPUT": str(tmp_path)}
    for name, (_, words) in WAYS.items():
        command = [sys.executable, "-c", COUNT, *words]
        for _ in range(2 if name == "two present runs" else 1):  # the first time, the second of them is trained
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        measured[name], open_calls = map(int, done.stderr.split()[-2:])
        assert open_calls <= 7
    assert {name: number for name, number in measured.items() if number > WAYS[name][0]} == {}, measured
