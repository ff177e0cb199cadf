"""Workers and their supervisor: killed, hanging, detached, and warned by Slurm."""

import os
import signal
import subprocess
import sys

import pytest
from sweep_samples import frozen
from waiting import until

from experiments.core import interrupt
from experiments.core.interrupt import shut_down
from experiments.core.paths import CONF
from experiments.runs.sweeps import settings, status
from experiments.runs.sweeps.local import Supervisor, visible_gpus
from experiments.store.records import Store
from experiments.studies import STUDIES

SCRIPT = CONF.parent / "scripts" / "sweep.py"
WORKER = """
import json, os, signal, sys
from pathlib import Path
plan = Path(sys.argv[1])
for line in sys.stdin:
    if int(line) == {bad}:
        {does}
    print(json.dumps({{"task": int(line), "runs": {{"run": "complete"}}}}), flush=True)
"""


@pytest.fixture(autouse=True)
def own_output(tmp_path, monkeypatch):
    """Commands and workers write checkpoints here, not into the checkout."""
    monkeypatch.setenv("NGN_OUTPUT", str(tmp_path / "output"))


LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aa)
  MIG 3g.20gb     Device  0: (UUID: MIG-a0)
  MIG 1g.5gb      Device  1: (UUID: MIG-a1)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-bb)
GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-cc)
  MIG 7g.40gb     Device  0: (UUID: MIG-c0)
"""


@pytest.mark.parametrize(
    ("listed", "visible", "names"),
    [
        (LISTED, None, ["MIG-a0", "MIG-a1", "GPU-bb", "MIG-c0"]),
        (LISTED, "MIG-a1,0", ["MIG-a1", "0"]),
        ("NVIDIA-SMI has failed", None, []),
    ],
)
def test_a_divided_card_counts_as_its_parts_by_their_uuids(tmp_path, monkeypatch, listed, visible, names):
    stub = tmp_path / "nvidia-smi"
    stub.write_text(f"#!/bin/sh\ncat <<'END'\n{listed}\nEND\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpus() == names


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        pytest.param(
            "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()", "stopped after", marks=pytest.mark.slow
        ),
        pytest.param("signal.pause()", "stopped after", marks=pytest.mark.slow),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("sys.exit(7)", "status 7"),
    ],
)
def test_a_worker_that_hangs_or_dies_costs_one_task(tmp_path, does, reason):
    plan = frozen(tmp_path, 4)
    told = {}
    limit = 0.2 if "pause" in does else None  # long enough to start an interpreter on a slow machine
    cluster = settings.Cluster(kind="local", workers=2, task_minutes=limit, grace_seconds=0.5)
    command = [sys.executable, "-c", WORKER.format(bad=1, does=does)]
    Supervisor(plan, range(4), cluster, lambda task, runs: told.update({task: runs}), command).run()
    assert sorted(told) == [0, 1, 2, 3]
    (name,) = plan.tasks[1]
    assert reason in told[1][name]
    assert reason in status.failures(plan.path.parent)[name]
    assert all(told[n] == {"run": "complete"} for n in (0, 2, 3))


@pytest.mark.slow(seconds=30)
def test_two_hundred_runs_killed_three_times(tmp_path):
    """Kill supervisor and workers three times, each time with more records; then the sweep completes."""
    results = tmp_path / "results"
    line = [sys.executable, str(SCRIPT), "run", "smoke", f"--results={results}", "workers=2", "runs_per_task=5"]
    folder = results / "regression1d"
    for wanted in (1, 60, 120):
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        until(lambda wanted=wanted: len(list(folder.glob("*.json"))) >= wanted, f"{wanted} records")
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
        for pid in (process.pid, *map(int, listed.stdout.split())):  # its workers have sessions of their own
            os.kill(pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {run.id for run in STUDIES["smoke"].runs()}
    assert {path.stem for path in Store(results).paths()} == names
    assert len(names) == 200
    view = status.View(results)
    assert {view.state(run).state for run in STUDIES["smoke"].runs()} == {"done"}
    assert not list(results.rglob("*.lease"))


@pytest.mark.slow
def test_a_detached_sweep_leaves_the_terminal_and_finishes(tmp_path):
    plan = frozen(tmp_path, 2)
    line = [sys.executable, str(SCRIPT), "run", "smoke", f"--plan={plan.path}", f"--results={plan.results}"]
    left = subprocess.run([*line, "--detach"], capture_output=True, text=True, check=True)
    assert "sweep.py status" in left.stdout
    names = [name for task in plan.tasks for name in task]
    until(lambda: all(Store(plan.results).path(name).exists() for name in names), "all records")
    process = int(left.stdout.split("process ")[1].split(";")[0])
    until(lambda: not os.path.exists(f"/proc/{process}"), "the end of the detached process")


GRACE = "JobState=RUNNING PreemptTime=2026-01-01T00:00:00"


@pytest.mark.parametrize(
    ("signum", "state", "told"),
    [
        ("SIGUSR1", "", "requeued Slurm job 12_3"),
        ("SIGUSR2", None, "not requeued: scontrol requeue 12_3: no such job"),
        ("SIGTERM", GRACE, "requeued Slurm job 12_3"),
        ("SIGTERM", GRACE.replace("RUNNING", "COMPLETING"), ""),  # preempted at once
        ("SIGTERM", "JobState=COMPLETING PreemptTime=None", ""),  # cancelled
        ("SIGTERM", "JobState=RUNNING PreemptTime=None", ""),  # sent by a person
        ("SIGTERM", None, "not requeued: scontrol show job 12_3: no such job"),
        ("SIGINT", GRACE, ""),
    ],
)
def test_a_warned_job_requeues_itself_and_a_cancelled_one_does_not(tmp_path, monkeypatch, capsys, signum, state, told):
    """A fake scontrol writes down its arguments; tests/experiments/runs/sweeps/slurm uses the real one."""
    asked = tmp_path / "asked"
    script = tmp_path / "scontrol"
    answer = f"echo {state}" if state is not None else "echo no such job >&2; exit 1"
    script.write_text(f"#!/bin/sh\necho $@ >> {asked}\n{answer}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in {"JOB_ID": "15", "ARRAY_JOB_ID": "12", "ARRAY_TASK_ID": "3"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    number = signal.Signals[signum]
    assert shut_down(interrupt.Interrupted(number), "the command") == 128 + number
    shown = capsys.readouterr().err.removeprefix(f"\nstopped by {signum}; all progress is saved. To continue:\n  ")
    assert shown == f"the command\n{told}".strip() + "\n"
    requeued = asked.exists() and "requeue 12_3" in asked.read_text().splitlines()
    assert requeued == ("requeue" in told and "show" not in told)
