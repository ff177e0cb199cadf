"""A sweep on this machine: a supervisor with one worker per GPU.

Each worker is a separate process. If it crashes, hangs or is killed, the other workers continue. Its task counts as
failed, and a new worker takes the next task.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from experiments.core import interrupt
from experiments.core.paths import ROOT
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps.settings import Cluster
from experiments.runs.sweeps.worker import note_failure
from experiments.store.records import Store

COMMAND = (sys.executable, "-m", "experiments.runs.sweeps.worker")
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
class Supervisor:
    """Give the tasks of a plan to workers, until no task is left or a signal asks it to stop.

    A task is put off until the end if other processes train runs of it. So two sweeps share their work.

    Args:
        plan: the frozen plan.
        tasks: the numbers of the tasks to run.
        cluster: number of workers, and time limit of a task.
        report: called with every task that ended, and run id → status.
    """

    plan: plans.Plan
    tasks: Sequence[int]
    cluster: Cluster
    report: Callable[[int, dict[str, str]], None]
    command: Sequence[str] = COMMAND

    def __post_init__(self) -> None:
        self._waiting, self._put_off = deque(self.tasks), deque[int]()
        self._workers: set[subprocess.Popen[str]] = set()
        self._lock, self._stopping = threading.Lock(), False

    def run(self) -> None:
        """Run every task. A signal raises Interrupted, after the workers have saved their state and ended."""
        cards = visible_gpus()
        count = max(1, min(self.cluster.workers or max(1, len(cards)), len(self.tasks)))
        with interrupt.handled(), ThreadPoolExecutor(count) as threads:
            try:
                gpus = [cards[n % len(cards)] if cards else None for n in range(count)]
                for served in [threads.submit(self._serve, gpu, count) for gpu in gpus]:
                    served.result()
            except BaseException:
                with interrupt.deferred():
                    self._stop_all()
                raise

    def _serve(self, gpu: str | None, count: int) -> None:
        """Give tasks to a worker on one GPU, and to the next one if it ends, until no task is left."""
        worker = None
        while (given := self._next()) is not None:
            task, waits = given
            worker = worker or self._start(gpu, count)
            if worker is None or worker.stdin is None or worker.stdout is None:
                return
            with _limited(worker, self.cluster) as asked:
                with contextlib.suppress(BrokenPipeError):  # it has died: it closed its output, too
                    print(task, "wait" if waits else "", file=worker.stdin, flush=True)
                line = worker.stdout.readline()
            if not line:
                self._failed(task, self._end(worker), bool(asked))
                worker = None
            elif "held" in (runs := json.loads(line)["runs"]).values() and not waits:
                self._put_off.append(task)
            else:
                self._tell(task, runs)
        if worker is not None:
            self._end(worker)

    def _next(self) -> tuple[int, bool] | None:
        """Return a task, and whether to wait for its runs that other processes train; None if there is none."""
        with self._lock:
            tasks, waits = self._waiting or self._put_off, not self._waiting
            return None if self._stopping or not tasks else (tasks.popleft(), waits)

    def _start(self, gpu: str | None, count: int) -> subprocess.Popen[str] | None:
        """Start a worker; return None if the sweep stops."""
        path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
        settings = {"CUDA_VISIBLE_DEVICES": gpu} if gpu is not None else {}
        if count > 1:  # divide the cores: several workers on all cores would slow each other down
            share = max(1, (os.cpu_count() or 1) // count)
            settings["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", str(share))
        with self._lock, open(self.plan.path.parent / "workers.log", "a") as log:
            if self._stopping:
                return None
            # In its own session, Ctrl-C reaches only the supervisor, which then asks the workers to save.
            process = subprocess.Popen(
                [*self.command, str(self.plan.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env={**os.environ, **settings, "PYTHONPATH": path}, start_new_session=True,
            )  # fmt: skip
            self._workers.add(process)
            return process

    def _tell(self, task: int, runs: dict[str, str]) -> None:
        with self._lock:
            self.report(task, runs)

    def _end(self, worker: subprocess.Popen[str]) -> int:
        """Wait until a worker without tasks ends; return its exit status."""
        with contextlib.suppress(BrokenPipeError):
            worker.communicate()  # closes its input
        self._workers.discard(worker)
        return worker.wait()

    def _failed(self, task: int, status: int, asked: bool) -> None:
        """Note that a task failed, since its worker ended."""
        if self._stopping:
            return
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        reason = f"the worker ended with {how}; see {self.plan.path.parent / 'workers.log'}"
        if asked:
            reason = f"stopped after {self.cluster.task_minutes:g} minutes, the limit task_minutes"
        names = [name for name in self.plan.tasks[task] if not Store(self.plan.results).path(name).exists()]
        note_failure(self.plan.path, names, reason)
        self._tell(task, dict.fromkeys(names, reason))

    def _stop_all(self) -> None:
        with self._lock:
            self._stopping = True
        workers, grace = list(self._workers), self.cluster.grace_seconds
        for worker in workers:
            worker.terminate()
        end = time.monotonic() + grace
        for worker in workers:
            try:
                worker.wait(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                told = f"a worker did not stop within {grace:g} s and was killed: its runs continue from a checkpoint"
                print(told, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _limited(worker: subprocess.Popen[str], cluster: Cluster) -> Iterator[list[int]]:
    """Ask a worker to stop after a task's time limit, then kill it. Yield a list, which then has an entry."""
    asked: list[int] = []
    limit = 60 * (cluster.task_minutes or 0)

    def send(signum: int) -> None:
        asked.append(signum)
        worker.send_signal(signum)

    stops = [(limit, signal.SIGTERM), (limit + cluster.grace_seconds, signal.SIGKILL)] if limit else []
    timers = [threading.Timer(seconds, send, [signum]) for seconds, signum in stops]
    for timer in timers:
        timer.start()
    try:
        yield asked
    finally:
        for timer in timers:
            timer.cancel()
