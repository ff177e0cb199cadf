"""The wheel holds only the library. With only torch, numpy and safetensors it runs the examples of the README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from environments import CORE, closure, link

from experiments.core.paths import ROOT


@pytest.mark.checkout
@pytest.mark.slow(seconds=15)
def test_a_clean_environment_needs_the_wheel_alone(tmp_path: Path) -> None:
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

    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env" / "lib").glob("python3*/site-packages")
    link(closure(CORE), site)
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--quiet", wheel]
    without = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}  # there pip would find ngn
    done = subprocess.run(install, capture_output=True, text=True, check=False, env=without)
    assert done.returncode == 0, f"the core needs more than {CORE}: {done.stderr}"

    work.mkdir()
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert max(len([line for line in block.splitlines() if line.strip()]) for block in blocks) <= 20
    blocks = [block for block in blocks if "transformers" not in block]  # test_walkthroughs.py runs that one
    (work / "examples.py").write_text("\n".join([*blocks, "print(ngn.__file__)"]))
    ran = subprocess.run([python, "-I", "-W", "error", "examples.py"], cwd=work, capture_output=True, text=True,
                         check=False, env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == str(site / "ngn" / "__init__.py")
    _do_what_they_say(ran.stdout)
    assert (work / "small.safetensors").exists()


def _do_what_they_say(printed: str) -> None:
    """The learned sizes of both examples are smaller than the candidates, and the deployed models as good."""
    units, before, after = re.search(r"64 -> (\d+) units(?:.*\n)+?parameters: (\d+) -> (\d+)", printed).groups()
    assert 1 <= int(units) < 0.95 * 64
    assert int(after) <= 0.6 * int(before)
    t, kept, soft, deployed = re.search(
        r"t = ([\d.]+), kept (\d+) of 16 components\nsoft MSE (\S+), deployed MSE (\S+)", printed
    ).groups()
    assert int(kept) == int(float(t) + 0.5) + 1
    assert 1 <= int(kept) < 0.95 * 16
    assert float(soft) < 0.05
    assert float(deployed) < 0.05
