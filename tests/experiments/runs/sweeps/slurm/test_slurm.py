"""A real Slurm with one node runs a sweep while jobs are cancelled, warned and requeued."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from sweep_samples import frozen
from waiting import until

from experiments.core.needs import Needs
from experiments.core.paths import CONF
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps.settings import Cluster
from experiments.runs.sweeps.slurm import submit_after

HERE = Path(__file__).parent
ROOT = CONF.parent

pytest.importorskip("submitit")

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm's daemons (slurm-wlm and munge)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a Slurm"),
]


@pytest.fixture(autouse=True)
def own_scratch():
    """Jobs of the cluster are processes of their own: they write to the project's folder of scratch files."""


@contextmanager
def started(home, monkeypatch):
    """A Slurm of one node; test processes start theirs on ports of their own."""
    monkeypatch.setenv("NGN_SLURM_PORT", str(16817 + 2 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])))
    subprocess.run(["bash", HERE / "cluster.sh", "start", home], check=True)
    monkeypatch.setenv("SLURM_CONF", str(home / "slurm.conf"))
    try:
        yield
    finally:
        subprocess.run(["bash", HERE / "cluster.sh", "stop", home], check=True)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    with started(tmp_path / "slurm", monkeypatch):
        yield


def slurm(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def queue():
    """Return array task → state."""
    return dict(line.split() for line in slurm("squeue", "-h", "-r", "-o", "%i %T").splitlines())


def python_of(folder):
    """Return the process of a task of the folder that runs Python already; commands before it block signals."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_text().split("\0")
        except OSError:  # the process has ended
            continue
        if words[0] == sys.executable and "submitit.core._submit" in words and str(folder) in " ".join(words):
            return int(process.parent.name)
    return None


def sweep(*words):
    line = [sys.executable, ROOT / "scripts" / "sweep.py", *words]
    return subprocess.run(line, capture_output=True, text=True)


LONG = {"engine": "torch", "gate.K": 4, "train.steps": 3000, "threads": 1, "checkpoint_seconds": 0.1}
"""Changes of runs that can be interrupted."""


def job_of(plan, task):
    jobs = [json.loads(line) for line in (plan.path.parent / "jobs.jsonl").read_text().splitlines() if line]
    return [job["job"] for job in jobs if job["task"] == task][-1]


def records(plan, task):
    return [p for name in plan.tasks[task] if (p := plan.results / "regression1d" / f"{name}.json").exists()]


def trained(plan):
    """Return how often each run was trained to its end, from the logs of all array tasks."""
    logs = "".join(path.read_text() for path in (plan.path.parent / "slurm").rglob("*.out"))
    return {name: logs.count(f"{name}: complete") for names in plan.tasks for name in names}


def test_a_sweep_survives_the_events_of_a_cluster(cluster, tmp_path):
    plan = frozen(tmp_path, 4, 3, **LONG)
    line = ["run", "smoke", f"--plan={plan.path}", f"--results={plan.results}", "--cluster=slurm", "task_minutes=30"]
    done = sweep(*line, "workers=2", "grace_seconds=30")
    assert done.returncode == 0, done.stderr
    assert "submitted 4 array tasks" in done.stdout

    def saved(task):
        return list(checkpoints(plan, task).glob("grown/step-*.json"))

    cancelled, warned, requeued = (job_of(plan, task) for task in range(3))
    until(lambda: saved(0), "a checkpoint of the first task")
    slurm("scancel", cancelled)
    until(lambda: saved(1), "a checkpoint of the second task")
    # The task requeues itself while scancel looks at it. scancel takes that for a refusal and tries again.
    warning = subprocess.Popen(["scancel", "--signal=USR2", warned], stderr=subprocess.DEVNULL)
    until(lambda: queue().get(warned) == "PENDING", "the warned task in the queue again")
    warning.kill()
    warning.wait()
    slurm("scontrol", "update", f"jobid={warned}", "StartTime=now")

    until(lambda: saved(2) or records(plan, 2), "a checkpoint of the third task")
    (node,) = slurm("sinfo", "-h", "-o", "%n").split()
    slurm("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    slurm("scontrol", "requeue", requeued)
    until(lambda: queue().get(requeued) == "PENDING", "the requeued task in the queue again")
    slurm("scontrol", "update", f"jobid={requeued}", "StartTime=now")
    until(lambda: "drain" in slurm("sinfo", "-h", "-o", "%T"), "a drained node")
    assert queue()[requeued] == "PENDING", "a drained node takes nothing"
    assert sweep("status", "smoke", f"--results={plan.results}").returncode == 1
    slurm("scontrol", "update", f"nodename={node}", "state=resume")

    until(lambda: not queue(), "the end of all jobs")
    assert [len(records(plan, task)) for task in range(4)] == [0, 3, 3, 3], trained(plan)

    again = sweep(*line)
    assert "submitted 1 array tasks" in again.stdout
    until(lambda: not queue(), "the end of the last job")
    names = [name for task in plan.tasks for name in task]
    assert sorted(p.stem for p in plan.results.rglob("*.json") if ".sweeps" not in p.parts) == sorted(names)
    assert trained(plan) == dict.fromkeys(names, 1)
    for task in (0, 1):
        for path in records(plan, task):
            assert json.loads(path.read_text())["execution"]["resumed"] == 1
    assert "nothing is missing" not in again.stdout
    assert sweep(*line).returncode == 0


def test_slurm_warnings_during_the_start_of_python_are_kept(cluster, tmp_path):
    """The warning waits until it is handled. Then the task requeues itself, like one that is warned later."""
    plan = frozen(tmp_path, 1, 3, **LONG)
    line = ["run", "smoke", f"--plan={plan.path}", f"--results={plan.results}", "--cluster=slurm", "task_minutes=30"]
    assert sweep(*line, "grace_seconds=30").returncode == 0
    job = job_of(plan, 0)
    until(lambda: python_of(tmp_path), "the task's Python")
    assert not list(checkpoints(plan, 0).glob("*/step-*"))
    warning = subprocess.Popen(["scancel", "--signal=USR2", job], stderr=subprocess.DEVNULL)
    until(lambda: queue().get(job) in ("PENDING", None), "the warned task in the queue again")
    warning.kill()
    warning.wait()
    assert queue().get(job) == "PENDING", "it left the queue"
    slurm("scontrol", "update", f"jobid={job}", "StartTime=now+3")
    until(lambda: not queue(), "the end of the job")
    assert len(records(plan, 0)) == 3


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("grace", [0, 60])
def test_a_preempted_task_goes_on_when_there_is_room(tmp_path, monkeypatch, grace):
    """With a grace time the task gets SIGTERM first, and saves; without one it is killed."""
    monkeypatch.setenv("NGN_SLURM_GRACE", str(grace))
    with started(tmp_path / "slurm", monkeypatch):
        plan = frozen(tmp_path, 1, 3, **LONG)
        line = ["run", "smoke", f"--plan={plan.path}", f"--results={plan.results}", "--cluster=slurm"]
        assert sweep(*line, "task_minutes=30").returncode == 0
        job = job_of(plan, 0)
        until(lambda: list(checkpoints(plan, 0).glob("grown/step-*.json")), "a checkpoint")
        slurm("sbatch", "--partition=urgent", "--cpus-per-task=2", f"--output={tmp_path}/urgent", "--wrap=echo done")
        until(lambda: queue().get(job) != "RUNNING", "the preempted task to leave its place")
        until(lambda: queue().get(job) in ("PENDING", None), "the preempted task in the queue again")
        assert queue().get(job) == "PENDING", "it left the queue"
        until((tmp_path / "urgent").exists, "the urgent job")
        slurm("scontrol", "update", f"jobid={job}", "StartTime=now+3")  # Slurm starts no job in the second of its end
        until(lambda: not queue(), "the end of all jobs")
        assert [json.loads(path.read_text())["execution"]["resumed"] for path in records(plan, 0)] == [1, 1, 1]


def checkpoints(plan, task):
    """Return the folder of a task's checkpoints."""
    from experiments.runs.stack import Stack

    ((_, runs),) = plans.runs_of_tasks(plan.path, [task])
    return Stack(tuple(runs)).checkpoints


def test_slurm_grants_what_a_study_needs_and_starts_what_follows(cluster, tmp_path):
    """The node has one GPU, made up. A job that follows starts after success, and leaves the queue after a failure."""
    plan = frozen(tmp_path, 1, 3, Needs(memory_gb=1, hours=0.5), **LONG | {"train.steps": 300})
    line = ["run", "smoke", f"--plan={plan.path}", f"--results={plan.results}", "--cluster=slurm", "gpus=1"]
    told = "setup=['echo visible: $CUDA_VISIBLE_DEVICES, $SLURM_JOB_GPUS']"
    assert sweep(*line, told).returncode == 0
    job = job_of(plan, 0)
    after = submit_after([job], ["-c", f"open({str(tmp_path / 'followed')!r}, 'w')"], plan, Cluster(kind="slurm"))
    asked = slurm("scontrol", "show", "job", job)
    assert "TimeLimit=00:30:00" in asked
    assert "MinMemoryNode=1G" in asked
    assert re.search(r"TresPerNode=gres[:/]gpu:1\b", asked), asked
    assert f"Dependency=afterok:{job.partition('_')[0]}" in slurm("scontrol", "show", "job", after)
    until(lambda: not queue(), "the end of both jobs")
    assert len(records(plan, 0)) == 3
    assert (tmp_path / "followed").exists()
    (log,) = (path for path in (plan.path.parent / "slurm").rglob("*.out") if "visible: 0, 0" in path.read_text())
    assert "complete" in log.read_text()

    blocked = slurm("sbatch", "--parsable", "--hold", "--wrap=true").strip()
    after = submit_after([blocked], ["-c", f"open({str(tmp_path / 'never')!r}, 'w')"], plan, Cluster(kind="slurm"))
    slurm("scancel", blocked)
    until(lambda: not queue(), "an empty queue")
    assert "DependencyNeverSatisfied" in slurm("scontrol", "show", "job", after)
    assert not (tmp_path / "never").exists()
