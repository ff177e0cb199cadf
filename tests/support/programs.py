"""Programs as they are typed, in processes forked from one that has imported torch.

An interpreter that trains spends four seconds of a processor on the imports of torch, its compiler and Hydra; a fork of
a process that has them spends none. That process holds nothing of this project: a program finds its own checkout,
environment, folder and output as it does in an interpreter of its own.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waiting import until

PACKAGES = ("torch", "torch._dynamo", "hydra", "pydantic", "filelock")


class Program:
    """A started program."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, or minus the signal, of a program that has ended."""
        if self.returncode is None:
            self.returncode = _asked({"ended": self.pid})
        return self.returncode

    def wait(self) -> int:
        """The exit status."""
        until(lambda: self.poll() is not None, f"the end of process {self.pid}")
        assert self.returncode is not None
        return self.returncode

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, for some seconds at most."""
        end, pause = time.monotonic() + seconds, threading.Event()
        while self.poll() is None and time.monotonic() < end:
            pause.wait(0.01)
        return self.returncode is not None

    def send_signal(self, signum: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)


def start(
    script: str | Path, *arguments: str | Path, cwd: Path, env: Mapping[str, str], out: Path, err: Path
) -> Program:
    """Start ``python script arguments...`` in the folder ``cwd``; what it prints goes to the ends of these files."""
    words = list(map(str, (script, *arguments)))
    streams = [os.devnull, str(out), str(err)]
    return Program(_asked({"words": words, "cwd": str(cwd), "env": dict(env), "streams": streams}))


def run(
    script: str | Path, *arguments: str | Path, cwd: Path, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Do what ``python script arguments...`` does in the folder ``cwd``; its exit status and what it printed.

    ``env`` is its whole environment.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        status = start(script, *arguments, cwd=cwd, env=env, out=out, err=err).wait()
        return subprocess.CompletedProcess([script, *arguments], status, out.read_text(), err.read_text())


def run_code(
    code: str, *arguments: str | Path, cwd: Path, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """The same for the text of a program, which finds what its ``PYTHONPATH`` names."""
    with tempfile.TemporaryDirectory() as folder:
        (script := Path(folder, "program.py")).write_text(code)
        return run(script, *arguments, cwd=cwd, env=env)


def _asked(request: dict[str, Any]) -> Any:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


@functools.cache
def _server() -> subprocess.Popen[str]:
    """The process that forks; it ends with this one."""
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    line = [sys.executable, __file__]
    server = subprocess.Popen(line, env=bare, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)  # closes its input
    return server


def _serve() -> dict[str, Any]:
    """Answer requests; returns in the children only, with what to run."""
    for line in sys.stdin:
        request = json.loads(line)
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            return request
        print(json.dumps(answer), flush=True)
    sys.exit()


def _become(request: dict[str, Any], installed: list[str]) -> None:
    """Run a program, in a process of its own, as an interpreter that was started for it."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for descriptor, path in enumerate(request["streams"]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), descriptor)
    sys.argv = request["words"]
    own = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = [str(Path(sys.argv[0]).resolve().parent), *own, *installed]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    for name in PACKAGES:
        importlib.import_module(name)
    gc.freeze()  # otherwise each child's collections copy all of it
    _become(_serve(), sys.path[1:])
