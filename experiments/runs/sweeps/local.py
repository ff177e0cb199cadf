"""A sweep on this machine: a supervisor with one worker per GPU.

Each worker is a separate process. If it crashes, hangs or is killed, the other workers continue. Its task counts as
failed, and a new worker takes the next task.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from experiments.core import interrupt
from experiments.core.paths import ROOT
from experiments.runs.shutdown import woken_by_signals
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps.settings import Cluster
from experiments.runs.sweeps.worker import note_failure
from experiments.store.records import Store

COMMAND = (sys.executable, "-m", "experiments.runs.sweeps.worker")
Reporter = Callable[[int, dict[str, str]], None]
"""A function that gets (task, run id → status) of every task when it ends."""


_UNIT = re.compile(r"^( *)(?:GPU|MIG) .*\(UUID: (\S+)\)", re.MULTILINE)
"""A line of ``nvidia-smi --list-gpus``. Lines of the parts of a divided card are indented below its own line."""


def visible_gpus() -> list[str]:
    """Return the GPUs that a process started here would see: none without a driver.

    They have the names that CUDA_VISIBLE_DEVICES takes. A card that MIG divides counts as its parts, which have UUIDs
    and no numbers.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name]
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
    except OSError:
        return []
    units = _UNIT.findall(listed.stdout) if listed.returncode == 0 else []
    divided = {at - 1 for at, (indent, _) in enumerate(units) if indent and not units[at - 1][0]}
    return [name for at, (_, name) in enumerate(units) if at not in divided]


@dataclass
class _Worker:
    process: subprocess.Popen[str]
    gpu: str | None
    task: int | None = None
    waits: bool = False
    """Whether it waits for runs that other processes train. If not, a task with such runs is put off."""
    since: float = 0.0
    """When it got its task."""
    asked: float | None = None
    """When it was asked to stop because it exceeded the time limit."""


@dataclass
class Supervisor:
    """Give the tasks of a plan to workers, until no task is left or a signal asks it to stop.

    A task is put off until the end if other processes train runs of it. So two sweeps share their work.

    Args:
        plan: the frozen plan.
        tasks: the numbers of the tasks to run.
        cluster: number of workers, and time limit of a task.
        report: called with every task that ended.
    """

    plan: plans.Plan
    tasks: Sequence[int]
    cluster: Cluster
    report: Reporter
    command: Sequence[str] = COMMAND
    count: int = field(default=0, init=False)
    _workers: list[_Worker] = field(default_factory=list)
    _waiting: deque[int] = field(default_factory=deque, init=False)
    _put_off: deque[int] = field(default_factory=deque, init=False)

    def run(self) -> None:
        """Run every task.

        Raises:
            experiments.core.interrupt.Interrupted: on a signal, after the workers have saved their state and ended.
        """
        self._waiting, cards = deque(self.tasks), visible_gpus()
        self.count = min(self.cluster.workers or max(1, len(cards)), len(self._waiting))
        free = [cards[n % len(cards)] if cards else None for n in range(self.count)]
        with (
            interrupt.handled(), interrupt.deferred(), woken_by_signals() as rung, selectors.DefaultSelector() as lines,
        ):  # fmt: skip
            lines.register(rung, selectors.EVENT_READ)
            while (self._waiting or self._put_off or self._workers) and not interrupt.requested():
                while free and (self._waiting or self._put_off):
                    worker = self._start(free.pop())
                    lines.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
                    self._workers.append(worker)
                    self._give(worker)
                for key, _ in lines.select(self._seconds_to_limit()):
                    if key.fileobj is rung:
                        rung.recv(4096)
                        continue
                    worker = key.data
                    line = worker.process.stdout.readline()
                    if line:
                        self._answered(worker, line)
                        self._give(worker)
                    else:
                        lines.unregister(key.fileobj)
                        self._ended(worker)
                        free.append(worker.gpu)
                for worker in self._workers:
                    self._watch(worker)
            self._stop_all()

    def _start(self, gpu: str | None) -> _Worker:
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
        settings = {"CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else {}
        if self.count > 1:  # divide the cores: several workers on all cores would slow each other down
            share = max(1, (os.cpu_count() or 1) // self.count)
            settings["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(share))
        with open(self.plan.path.parent / "workers.log", "a") as log:
            # In its own session, Ctrl-C reaches only the supervisor, which then asks the workers to save.
            process = subprocess.Popen(
                [*self.command, str(self.plan.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env={**os.environ, **settings, "PYTHONPATH": path}, start_new_session=True,
            )  # fmt: skip
        return _Worker(process, gpu)

    def _give(self, worker: _Worker) -> None:
        if worker.process.stdin is None:
            raise RuntimeError("the worker has no standard input for its tasks")
        worker.task = None
        try:
            if self._waiting or self._put_off:
                worker.waits = not self._waiting
                worker.task = (self._waiting or self._put_off).popleft()
                worker.since, worker.asked = time.monotonic(), None
                worker.process.stdin.write(f"{worker.task} wait\n" if worker.waits else f"{worker.task}\n")
                worker.process.stdin.flush()
            else:
                worker.process.stdin.close()
        except BrokenPipeError:
            return  # the worker is dead: its closed output will show this soon

    def _answered(self, worker: _Worker, line: str) -> None:
        answer = json.loads(line)
        if "held" in answer["runs"].values() and not worker.waits:
            self._put_off.append(int(answer["task"]))
        else:
            self.report(int(answer["task"]), answer["runs"])

    def _ended(self, worker: _Worker) -> None:
        """Handle a worker that has closed its output: if it still has a task, that task failed."""
        status = worker.process.wait()
        _close(worker.process)
        self._workers.remove(worker)
        if worker.task is None:
            return
        if worker.asked is not None:
            reason = f"stopped after {self.cluster.task_minutes:g} minutes, the limit task_minutes"
        else:
            reason = f"the worker ended with {_exit_text(status)}; see {self.plan.path.parent / 'workers.log'}"
        store = Store(self.plan.results)
        names = [name for name in self.plan.tasks[worker.task] if not store.path(name).exists()]
        note_failure(self.plan.path, names, reason)
        self.report(worker.task, dict.fromkeys(names, reason))

    def _seconds_to_limit(self) -> float | None:
        """Return the seconds until a worker exceeds its time limit or its grace period; None without a limit."""
        if self.cluster.task_minutes is None:
            return None
        ends = [
            worker.since + 60 * self.cluster.task_minutes
            if worker.asked is None
            else worker.asked + self.cluster.grace_seconds
            for worker in self._workers
            if worker.task is not None
        ]
        return max(0.05, min(ends) - time.monotonic()) if ends else None

    def _watch(self, worker: _Worker) -> None:
        """Ask a worker that exceeds its time limit to save and stop, and kill it after the grace period."""
        if self.cluster.task_minutes is None or worker.task is None:
            return
        now = time.monotonic()
        if worker.asked is None and now - worker.since > 60 * self.cluster.task_minutes:
            worker.asked = now
            worker.process.send_signal(signal.SIGTERM)
        elif worker.asked is not None and now - worker.asked > self.cluster.grace_seconds:
            worker.process.kill()

    def _stop_all(self) -> None:
        grace = self.cluster.grace_seconds
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + grace
        for worker in self._workers:
            try:
                worker.process.wait(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
                told = f"a worker did not stop within {grace:g} s and was killed: its runs continue from a checkpoint"
                print(told, file=sys.stderr, flush=True)
            _close(worker.process)
        self._workers.clear()


def _close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _exit_text(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
