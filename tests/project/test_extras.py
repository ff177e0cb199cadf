"""Every extra by itself runs what it promises, and a missing package is a sentence with its extra."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import yaml
from environments import CORE, closure, link
from packaging.requirements import Requirement

from experiments.cli import machine
from experiments.config.compose import compose
from experiments.core import packages
from experiments.core.paths import ROOT

DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MODULES = {
    "hydra-core": "hydra", "PyYAML": "yaml", "Jinja2": "jinja2", "hydra-submitit-launcher": "submitit",
    "torch-geometric": "torch_geometric", "torch-pruning": "torch_pruning", "mamba-ssm": "mamba_ssm",
}  # fmt: skip
"""Package → the module by which the code knows it, where the names differ."""
LINES = [line for line in (ROOT / ".ci" / "promises").read_text().splitlines() if not line.startswith("#")]
PROMISES = [(name, words.strip()) for name, _, words in (line.partition(":") for line in LINES)]
WITH_PAPER = ("experiments/report/drawing/", "experiments/report/page/", "experiments/report/markdown.py")
"""The files that a command imports only where it draws or writes pages."""


def names_of(extra: str) -> set[str]:
    return {Requirement(line).name for line in DECLARED[extra]}


def test_every_extra_is_known_by_its_modules_and_promises_a_command() -> None:
    """Those of the documentation and of the tests are run by their own jobs, and mamba needs a GPU."""
    assert DECLARED.keys() == packages.EXTRAS.keys()
    for extra in set(DECLARED) - {"docs", "dev", "mamba"}:
        assert {MODULES.get(name, name) for name in names_of(extra)} <= set(packages.EXTRAS[extra])
    assert {name for name, _ in PROMISES} == set(DECLARED) - {"docs", "dev", "mamba"}
    assert (ROOT / ".github" / "workflows" / "tests.yml").read_text().count(".ci/extra") == 1


def test_the_lock_has_every_version_with_hashes_and_agrees_with_the_constraints() -> None:
    def pinned(name: str) -> dict[str, str]:
        lines = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE)
        return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in lines}

    lock, direct = pinned("lock.txt"), pinned("constraints.txt")
    assert {name: lock.get(name, version) for name, version in direct.items()} == direct
    needed = set().union(*(names_of(extra) for extra in set(DECLARED) - {"mamba"}), CORE)
    assert sorted({re.sub(r"[-_.]+", "-", name).lower() for name in needed} - lock.keys()) == [], "not in lock.txt"
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", (ROOT / "lock.txt").read_text(), flags=re.MULTILINE))
    assert len(entries) == len(lock)
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []


def test_workflows_and_image_name_what_they_run_by_commit_and_digest() -> None:
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        content = yaml.safe_load(workflow.read_text())
        assert content["permissions"] == {"contents": "read"}
        used = [step["uses"] for job in content["jobs"].values() for step in job["steps"] if "uses" in step]
        assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []
    image = (ROOT / "Containerfile").read_text()
    assert re.search(r"^FROM \S+@sha256:[0-9a-f]{64}$", image, re.MULTILINE)
    assert image.index("\nUSER ngn\n") < image.index("\nRUN make ")
    assert {".git", "runs", "scratch"} <= {*(ROOT / ".dockerignore").read_text().split()}


def imported(path: Path, lazy: bool) -> set[str]:
    """The packages that a file imports, at once or also in functions; not those for types alone."""
    body = [node for node in ast.parse(path.read_text()).body if "TYPE_CHECKING" not in ast.unparse(node)[:20]]
    nodes = [node for part in body for node in ast.walk(part)] if lazy else body
    found = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names)


FILES = [path for folder in ("experiments", "scripts", "hydra_plugins") for path in (ROOT / folder).rglob("*.py")]
OURS = {"ngn", "experiments", "hydra_plugins", "torch", "numpy", "safetensors", "typing_extensions"}
OURS |= {path.stem for path in (ROOT / "scripts").glob("*.py")}


def test_imports_at_the_start_are_of_the_suites_extra_others_of_some_extra_and_every_extra_is_used() -> None:
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        extras = ("suite", "paper") if name.startswith(WITH_PAPER) else ("suite",)
        assert imported(path, lazy=False) <= OURS.union(*(packages.EXTRAS[extra] for extra in extras)), name
    found = set().union(*(imported(path, lazy=True) for path in FILES)) - OURS
    known = {module.partition(".")[0] for modules in packages.EXTRAS.values() for module in modules}
    assert found <= known
    extras = ("suite", "graph", "paper", "cluster", "tinystories", "language")
    declared = {name.partition(".")[0] for extra in extras for name in packages.EXTRAS[extra]}
    assert declared - found <= {"hydra_plugins", "gguf"}, "no dependency without a use; transformers imports gguf"


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("scipy.special", "x.py needs the package scipy: pip install -e '.[suite]'"),
        ("matplotlib", "x.py needs the package matplotlib: pip install -e '.[paper]'"),
        ("hydra_plugins.hydra_submitit_launcher", "pip install -e '.[cluster]'"),
        ("nothing.known", "before"),
    ],
)
def test_a_program_that_lacks_a_package_ends_with_a_sentence(
    module: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["x.py"])
    monkeypatch.setattr(sys, "excepthook", lambda *of: print("before", file=sys.stderr))
    packages.name_extras()
    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    sys.excepthook(type(error), error, None)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("choices", "overrides", "module", "said"),
    [
        ({"task": "cora"}, {}, "torch_geometric", "torch_geometric: pip install -e '.[graph]'"),
        ({"task": "gsm8k", "profile": "smoke"}, {}, "tokenizers", "pip install -e '.[language]'"),
    ],
)
def test_a_run_that_lacks_a_package_is_refused(
    choices: dict[str, str], overrides: dict[str, str], module: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = packages._installed
    monkeypatch.setattr(packages, "_installed", lambda name: name != module and real(name))
    with pytest.raises(machine.ConfigError, match=re.escape(said)):
        machine.check_packages(compose(choices, overrides))


@pytest.mark.slow
@pytest.mark.parametrize("extra", sorted({name for name, _ in PROMISES}))
def test_an_extra_by_itself_runs_what_it_promises(extra: str, tmp_path: Path) -> None:
    try:
        found = closure(CORE | {"setuptools"} | names_of("suite") | names_of(extra))
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing} is not installed here; CI installs it (.ci/extra {extra})")
    venv.create(tmp_path / "env", with_pip=False)
    (site,) = (tmp_path / "env" / "lib").glob("python3*/site-packages")
    link(found, site)
    env = {**os.environ, "NGN_OUTPUT": str(tmp_path / "out"), "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    (tmp_path / "out").mkdir()
    for words in (words for name, words in PROMISES if name == extra):
        line = [str(tmp_path / "env" / "bin" / "python"), *shlex.split(words.replace("OUT", str(tmp_path / "out")))]
        done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"
