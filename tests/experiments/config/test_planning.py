"""Composing, naming and planning runs needs neither torch nor a compiler."""

import subprocess
import sys

from experiments.core.paths import ROOT

SCRIPT = """
import shutil, subprocess, sys
for name in ("torch", "torchvision", "torch_geometric"):
    sys.modules[name] = None  # importing it raises ImportError
real = subprocess.Popen.__init__
def started(self, command, *args, **kwargs):
    program = command if isinstance(command, str) else str(command[0])
    assert program.rpartition("/")[2] == "git", f"started {command}"
    real(self, command, *args, **kwargs)
subprocess.Popen.__init__ = started

from experiments.analysis.selection import selected_runs
from experiments.cli.app import prepare
from experiments.config.identity import numerics
from experiments.runs.stack import stacks_of
from experiments.studies import STUDIES
import experiments.runs.sweeps.plan, experiments.runs.sweeps.status

runs = stacks = 0
for study in STUDIES.values():
    wanted = [run for selection in study.make() for run in selected_runs(selection)]
    assert all(numerics(run.config)["task"] >= 1 for run in wanted)
    planned = stacks_of(wanted)
    assert sum(map(len, planned)) == len(wanted)
    runs, stacks = runs + len(wanted), stacks + len(planned)
assert len(prepare(["task=cora", "seed=0..9"])[1]) == 10
print(runs, stacks)
"""


def test_every_study_is_planned_without_torch_and_without_a_compiler():
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    runs, stacks = map(int, done.stdout.split())
    assert 0 < stacks < runs
