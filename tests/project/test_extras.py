"""Every extra by itself runs what it promises, and a missing package is a sentence with its extra."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from experiments.cli import machine
from experiments.config.compose import compose
from experiments.core import packages
from experiments.core.paths import ROOT

CORE = {"torch", "numpy", "safetensors"}
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MODULES = {
    "hydra-core": "hydra", "PyYAML": "yaml", "Jinja2": "jinja2", "hydra-submitit-launcher": "submitit",
    "torch-geometric": "torch_geometric", "torch-pruning": "torch_pruning", "mamba-ssm": "mamba_ssm",
}  # fmt: skip
"""Package → the module by which the code knows it, where the names differ."""
LINES = [line for line in (ROOT / ".ci" / "promises").read_text().splitlines() if not line.startswith("#")]
PROMISES = [(name, words.strip()) for name, _, words in (line.partition(":") for line in LINES)]


def names_of(extra):
    return {Requirement(line).name for line in DECLARED[extra]}


def test_every_extra_is_known_by_its_modules_and_promises_a_command():
    """Those of the documentation and of the tests are run by their own jobs, and mamba needs a GPU."""
    assert DECLARED.keys() == packages.EXTRAS.keys()
    for extra in set(DECLARED) - {"docs", "dev", "mamba"}:
        assert {MODULES.get(name, name) for name in names_of(extra)} <= set(packages.EXTRAS[extra])
    assert {name for name, _ in PROMISES} == set(DECLARED) - {"docs", "dev", "mamba"}
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert {*jobs["extras"]["strategy"]["matrix"]["extra"]} == {name for name, _ in PROMISES}


def test_the_lock_has_every_version_with_hashes_and_agrees_with_the_constraints():
    def pinned(name):
        lines = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE)
        return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in lines}

    lock, direct = pinned("lock.txt"), pinned("constraints.txt")
    assert {name: lock.get(name, version) for name, version in direct.items()} == direct
    needed = set().union(*(names_of(extra) for extra in set(DECLARED) - {"mamba", "mlflow"}), CORE)
    assert sorted({re.sub(r"[-_.]+", "-", name).lower() for name in needed} - lock.keys()) == [], "not in lock.txt"
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^#.*\n", "", (ROOT / "lock.txt").read_text(), flags=re.MULTILINE))
    assert len(entries) == len(lock)
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []


def test_workflows_and_image_name_what_they_run_by_commit_and_digest():
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        content = yaml.safe_load(workflow.read_text())
        assert content["permissions"] == {"contents": "read"}
        used = [step["uses"] for job in content["jobs"].values() for step in job["steps"] if "uses" in step]
        assert [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)] == []
    image = (ROOT / "Containerfile").read_text()
    assert re.search(r"^FROM \S+@sha256:[0-9a-f]{64}$", image, re.MULTILINE)
    assert image.index("\nUSER ngn\n") < image.index("\nRUN make ")
    assert {".git", "runs", "scratch"} <= {*(ROOT / ".dockerignore").read_text().split()}


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("scipy.special", "x.py needs the package scipy: pip install -e '.[suite]'"),
        ("matplotlib", "x.py needs the package matplotlib: pip install -e '.[paper]'"),
        ("hydra_plugins.hydra_submitit_launcher", "pip install -e '.[cluster]'"),
        ("nothing.known", "before"),
    ],
)
def test_a_program_that_lacks_a_package_ends_with_a_sentence(module, said, monkeypatch, capsys):
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
def test_a_run_that_lacks_a_package_is_refused(choices, overrides, module, said, monkeypatch):
    real = packages._installed
    monkeypatch.setattr(packages, "_installed", lambda name: name != module and real(name))
    with pytest.raises(machine.ConfigError, match=re.escape(said)):
        machine.check_packages(compose(choices, overrides))


def closure(names):
    """Return distributions of this environment by name, with all their requirements."""
    found = {}
    left = set(names)
    while left:
        name = left.pop()
        found[name] = distribution(name)
        needed = (Requirement(line) for line in found[name].requires or ())
        left |= {r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})} - set(found)
    return found


def environment(folder, packages):
    """Make an environment with these packages, linked with files and metadata; return its python and where they are."""
    venv.create(folder, with_pip=False)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    for package in packages.values():
        for top in {file.parts[0] for file in package.files or () if ".." not in file.parts} - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(package.locate_file(top))))
    return folder / "bin" / "python", site


@pytest.mark.slow
@pytest.mark.parametrize("extra", sorted({name for name, _ in PROMISES}))
def test_an_extra_by_itself_runs_what_it_promises(extra, tmp_path):
    try:
        found = closure(CORE | {"setuptools"} | names_of("suite") | names_of(extra))
    except PackageNotFoundError as missing:
        pytest.skip(f"{missing} is not installed here; CI installs it (.ci/extra {extra})")
    python, _ = environment(tmp_path / "env", found)
    env = {**os.environ, "NGN_OUTPUT": str(tmp_path / "out"), "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    (tmp_path / "out").mkdir()
    for words in (words for name, words in PROMISES if name == extra):
        line = [str(python), *shlex.split(words.replace("OUT", str(tmp_path / "out")))]
        done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stderr[-2000:]}"


@pytest.mark.checkout
@pytest.mark.slow(seconds=15)
def test_a_clean_environment_needs_the_wheel_alone(tmp_path):
    """sdist → wheel → pip, without an index → the examples of the README, unchanged, away from the checkout."""
    source, dist, work = tmp_path / "source", tmp_path / "dist", tmp_path / "work"
    source.mkdir()
    files = subprocess.run(["git", "ls-files", "ngn", "pyproject.toml", "README.md", "LICENSE"],
                           cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    for file in files:
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_bytes((ROOT / file).read_bytes())
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source],
                   check=True, capture_output=True)  # fmt: skip
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    assert sdist.name.removesuffix(".tar.gz") == "-".join(wheel.name.split("-")[:2])
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"ngn"}
    packaged = {name for name in names if ".dist-info/" not in name}
    assert packaged == {file for file in files if file.startswith("ngn/")}, "py.typed, too"

    python, site = environment(tmp_path / "env", closure(CORE))
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--quiet", wheel]
    without = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}  # there pip would find ngn
    done = subprocess.run(install, capture_output=True, text=True, check=False, env=without)
    assert done.returncode == 0, f"the core needs more than {CORE}: {done.stderr}"

    work.mkdir()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert max(len([line for line in block.splitlines() if line.strip()]) for block in blocks) <= 20
    (work / "examples.py").write_text("\n".join([*blocks, "print(ngn.__file__)"]))
    ran = subprocess.run([python, "-I", "-W", "error", "examples.py"], cwd=work, capture_output=True, text=True,
                         check=False, env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == str(site / "ngn" / "__init__.py")
    units, before, after = re.search(r"64 -> (\d+) units(?:.*\n)+?parameters: (\d+) -> (\d+)", ran.stdout).groups()
    assert 1 <= int(units) < 0.4 * 64
    assert 0 < int(after) <= 0.4 * int(before)
