"""The commands in the README run in a fresh clone, and its first example; test_packaging.py runs the others."""

import os
import re
import shlex
import subprocess

import programs
import pytest

from experiments.core.paths import ROOT

README = (ROOT / "README.md").read_text()
PARAMETERS = re.compile(r"parameters: (\d+) -> (\d+)")


@pytest.mark.checkout
@pytest.mark.slow(seconds=30)
def test_the_commands_run_in_a_fresh_clone(tmp_path):
    """Training commands run in their small form; make targets are only looked up, as they install packages."""
    blocks = re.findall(r"```sh\n(.*?)```", README, re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert {line.split()[0] for line in lines} == {"make", "python"}
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    for line in lines:
        if line.startswith("make"):
            subprocess.run(["make", "--dry-run", line.split()[1]], cwd=clone, check=True, capture_output=True)
    small = [line for line in lines if line.startswith("python")]
    small = [
        re.sub(r"^(python run.py (?!.*(?:smoke|--list|show=true))[^#]*)", r"\1 profile=smoke ", line) for line in small
    ]
    small = [line.replace("seed=0..9", "seed=0").replace("count=1,2,4,8", "count=1,2,4") for line in small]
    shorter = "gate=conv train.epochs=null train.steps=2"
    small = [line if "show=true" in line else line.replace("gate=conv", shorter) for line in small]
    small = [line.replace("table.py runs", "table.py scratch/results") for line in small]  # where smoke runs go
    for line in small:
        script, *words = shlex.split(line, comments=True)[1:]
        done = programs.run(clone / script, *words, cwd=clone, env={**os.environ, "PYTHONPATH": str(clone)})
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert list(clone.glob("scratch/results/cifar10/*.json"))
    asked = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert asked.stdout == "", "what a newcomer does first does not make the checkout one of changed code"


@pytest.mark.slow(seconds=10)
def test_the_first_example_makes_a_model_of_transformers_smaller(tmp_path):
    pytest.importorskip("transformers")
    (example,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.S) if "transformers" in b]
    done = programs.run_code(example, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    before, after = map(int, PARAMETERS.search(done.stdout.replace(",", "")).groups())
    assert 0.5 * before < after <= 0.6 * before
    assert (tmp_path / "small.safetensors").exists()
