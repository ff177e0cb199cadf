"""A sweep on Slurm: submit the tasks of a plan as array jobs, with submitit, and return at once."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.config.compose import nearest
from experiments.core.blocks import ConfigError
from experiments.core.needs import Needs
from experiments.core.packages import missing, sentence
from experiments.core.paths import ROOT
from experiments.core.reading import read_regular
from experiments.runs.sweeps.plan import Plan
from experiments.runs.sweeps.settings import Cluster

log = logging.getLogger(__name__)
MAX_NOTED_BYTES = 2**30
"""Larger notes of submitted jobs are not read. A million tasks have a tenth of that."""
WITH_BLOCKED_SIGNALS = ("env", "--block-signal=USR1,USR2")
"""Prefix of a command. A warning that arrives while Python starts waits until ``core/interrupt.py`` handles it."""


@dataclass(frozen=True)
class Submitted:
    """One array task.

    Attributes:
        job: its Slurm id, such as ``123_4``.
        plan: the file of the plan.
        task: its number in the plan.
    """

    job: str
    plan: str
    task: int


def _settings(cluster: Cluster, name: str, needs: Needs) -> dict[str, Any]:
    minutes = cluster.task_minutes or (60 * needs.hours if needs.hours else 240.0)
    memory = cluster.memory_gb or needs.memory_gb
    parameters: dict[str, Any] = {
        "job_name": f"ngn-{name}",
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": cluster.cpus,
        "mem": f"{int(1024 * memory)}M" if memory else None,
        "gpus_per_node": (needs.gpus if cluster.gpus is None else cluster.gpus) or None,
        "time": max(1, round(minutes)),
        "array_parallelism": cluster.workers or cluster.max_array_size,
        "signal_delay_s": round(cluster.grace_seconds),
        "setup": [
            f"export OMP_NUM_THREADS={cluster.cpus}",  # the requested cores, not all cores of the node
            *cluster.setup,
            f"export PYTHONPATH={json.dumps(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}",
        ],
        "additional_parameters": {k: v for k, v in cluster.more.items() if k != "dependency"} | {"requeue": True},
        "stderr_to_stdout": True,
    }
    return {key: value for key, value in parameters.items() if value is not None}


def _require(name: str, needs: Needs, cluster: Cluster) -> None:
    """Refuse settings that give less than a study needs, a partition that ``sinfo`` does not list, and no submitit."""
    if cluster.gpus is not None and cluster.gpus < needs.gpus:
        raise ConfigError(f"{name} needs {needs}, but the cluster's settings say gpus={cluster.gpus}")
    if (package := missing("submitit")) is not None:
        raise ConfigError(sentence("--cluster slurm", package))
    if cluster.partition is not None and shutil.which("sinfo") is not None:
        asked = subprocess.run(["sinfo", "--noheader", "--format=%R"], capture_output=True, text=True, check=False)
        there = sorted({*asked.stdout.split()})
        for wanted in cluster.partition.split(",") if asked.returncode == 0 else ():
            if wanted not in there:
                hint = nearest(wanted, there)
                raise ConfigError(f"partition={wanted}: Slurm has no such partition.{hint} It has {', '.join(there)}")


def script(folder: Path, name: str, needs: Needs, tasks: int, cluster: Cluster) -> str:
    """Return the file that :func:`submit` would give to sbatch for the first array; a ConfigError as there."""
    _require(name, needs, cluster)
    from submitit.slurm.slurm import _make_sbatch_string

    most = cluster.max_array_size
    command = f"{_python()} -u -m submitit.core._submit {shlex.quote(str(folder / 'slurm'))}"
    parameters = _settings(cluster, name, needs) | {"map_count": min(tasks, most)}
    return f"tasks: {tasks}, at most {most} in an array\n{_make_sbatch_string(command, folder / 'slurm', **parameters)}"


def _python() -> str:
    """Return the command that starts Python; ``env`` has the option from coreutils 8.31 on."""
    supported = subprocess.run([*WITH_BLOCKED_SIGNALS, "true"], capture_output=True, check=False).returncode == 0
    return shlex.join([*(WITH_BLOCKED_SIGNALS if supported else ()), sys.executable])


def submit(plan: Plan, tasks: Sequence[int], cluster: Cluster) -> list[Submitted]:
    """Submit tasks of a plan as array jobs of at most ``max_array_size`` tasks.

    Slurm limits the tasks of one array that run at a time. So that ``workers`` limits the sweep, an array waits for the
    end of the arrays before it, also those of earlier commands, if together they could run more tasks.

    Returns:
        the submitted array tasks. They are also written to ``jobs.jsonl``, which ``status`` reads.

    Raises:
        ConfigError: if submitit, Slurm or its partition is missing, the cluster's settings give less than the study
            needs, or Slurm refuses. Arrays submitted before stay submitted.
    """
    if shutil.which("sbatch") is None:
        raise ConfigError("found no sbatch: run this command on the cluster's login node, or use --cluster local")
    _require(plan.study, plan.needs, cluster)
    import submitit
    from submitit.core.utils import FailedJobError

    from experiments.runs.sweeps.worker import slurm_task

    folder = plan.path.parent
    executor = submitit.SlurmExecutor(folder=folder / "slurm", python=_python())
    executor.update_parameters(**_settings(cluster, plan.study, plan.needs))
    done: list[Submitted] = []
    before = sorted(in_queue(submitted(folder)))
    for first in range(0, len(tasks), cluster.max_array_size):
        part = list(tasks[first : first + cluster.max_array_size])
        conditions = [str(cluster.more["dependency"])] if "dependency" in cluster.more else []
        if before and cluster.workers is not None and len(before) + len(part) > cluster.workers:
            arrays = dict.fromkeys(job.partition("_")[0] for job in before)
            conditions.append(f"afterany:{':'.join(arrays)}")
        executor.update_parameters(dependency=",".join(conditions) or None)
        try:
            jobs = executor.map_array(slurm_task, [str(plan.path)] * len(part), part)
        except FailedJobError as refused:
            raise ConfigError(f"Slurm refused the job: {str(refused).strip()}") from None
        array = [Submitted(job.job_id, str(plan.path), task) for job, task in zip(jobs, part, strict=True)]
        with open(folder / "jobs.jsonl", "a") as out:
            # Start with a newline, because a full disk may have cut the previous line.
            out.writelines("\n" + json.dumps(one.__dict__) for one in array)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        done += array
        before += [one.job for one in array]
    return done


def submit_after(jobs: Iterable[str], command: Sequence[str], plan: Plan, cluster: Cluster) -> str:
    """Submit a command that waits until all tasks of some arrays have succeeded; return its Slurm id."""
    arrays = sorted({job.partition("_")[0] for job in jobs})
    places = {"partition": cluster.partition, "account": cluster.account, "qos": cluster.qos}
    lines = [*cluster.setup, f"cd {shlex.quote(str(ROOT))}", shlex.join([sys.executable, *command])]
    asked = subprocess.run(
        [
            "sbatch", "--parsable", f"--job-name=ngn-{plan.study}-next", f"--dependency=afterok:{':'.join(arrays)}",
            "--kill-on-invalid-dep=yes", "--ntasks=1", "--cpus-per-task=1", "--time=60",
            f"--output={plan.path.parent / 'slurm' / 'next-%j.out'}",
            *(f"--{name}={value}" for name, value in places.items() if value is not None),
            f"--wrap={chr(10).join(lines)}",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if asked.returncode:
        raise ConfigError(f"Slurm refused the job of the second pass: {asked.stderr.strip()}")
    return asked.stdout.strip().partition(";")[0]


def submitted(folder: Path) -> list[Submitted]:
    """Return every array task that was submitted for a study so far."""
    path = folder / "jobs.jsonl"
    jobs: list[Submitted] = []
    try:
        lines = (
            read_regular(path, MAX_NOTED_BYTES).decode(errors="replace").splitlines() if os.path.lexists(path) else []
        )
    except OSError as fault:
        log.warning("%s: unreadable, so the jobs in Slurm's queue are unknown (%s)", path, fault.strerror)
        return jobs
    for line in lines:
        try:
            if line.strip():
                noted = json.loads(line)
                jobs.append(Submitted(str(noted["job"]), str(noted["plan"]), int(noted["task"])))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as fault:
            log.warning("%s: skipping a damaged line, so one job is unknown (%s)", path, fault)
    return jobs


def in_queue(jobs: Sequence[Submitted]) -> dict[str, str]:
    """Return job id → state of the jobs still in Slurm's queue; a ConfigError if there are any and it is silent."""
    if not jobs:
        return {}
    try:
        asked = subprocess.run(
            ["squeue", "--noheader", "--array", "--format=%i %T"], capture_output=True, text=True, check=False
        )
    except OSError as missing:
        raise ConfigError(f"jobs were submitted to Slurm, but squeue cannot be run ({missing})") from None
    if asked.returncode:
        raise ConfigError(f"jobs were submitted to Slurm, but squeue failed: {asked.stderr.strip()}")
    states = dict(line.split(maxsplit=1) for line in asked.stdout.splitlines() if line.strip())
    over = ("COMPLETING", "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT")
    ours = {job.job for job in jobs}
    return {name: state for name, state in states.items() if name in ours and state not in over}
