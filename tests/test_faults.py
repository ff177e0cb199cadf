"""After every injected fault nothing is lost; docs/reliability.md has the same counts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).parent / "faults.py"
QUICK = ("signals", "disk_full", "read_only_results", "nan_in_a_replica", "one_run_many_processes", "dead_owners")
SLOW = (
    "kill_steps",
    "kill_saves",
    "kill_stack_steps",
    "kill_stack_saves",
    "damaged_checkpoints",
    "out_of_memory",
    "clock_backwards",
)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_nothing_is_lost(name, tmp_path):
    done = subprocess.run([sys.executable, str(FAULTS), name, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count = json.loads(done.stdout)
    assert count["tried"] > 0
    assert (count["survived"], count["lost"]) == (count["tried"], 0), done.stderr


def test_every_fault_is_tried():
    listed = subprocess.run(
        [sys.executable, "-c", "import faults; print(*faults.FAULTS)"],
        capture_output=True,
        text=True,
        cwd=FAULTS.parent,
    )
    assert sorted(listed.stdout.split()) == sorted([*QUICK, *SLOW])
