"""Programs as they are typed, in processes forked from one that has imported torch (``program_server.py``).

An interpreter that trains spends four seconds of a processor on the imports of torch, its compiler and Hydra; a fork of
a process that has them spends none.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import program_server
import typed_python

VARIABLE = "TEST_PROGRAMS"
"""The variable that names the socket to the test processes of one session."""
PATIENCE = 900.0
"""Seconds after which a test gives up waiting for a program."""


class Program:
    """A started program."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = typed_python.number(connection)
        self.returncode: int | None = None

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end, for some seconds at most."""
        if self.returncode is None and select.select([self._connection], [], [], seconds)[0]:
            self.returncode = typed_python.number(self._connection)
            self._connection.close()
        return self.returncode is not None

    def poll(self) -> int | None:
        """The exit status, or minus the signal, of a program that has ended."""
        self.ends_within(0.0)
        return self.returncode

    def wait(self) -> int:
        """The exit status."""
        assert self.ends_within(PATIENCE), f"process {self.pid} does not end"
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)


def start(
    script: str | Path, *arguments: str | Path, cwd: Path, env: Mapping[str, str], out: Path, err: Path
) -> Program:
    """Start ``python script arguments...`` in the folder ``cwd``; what it prints goes to the ends of these files."""
    with open(os.devnull) as nothing, open(out, "ab") as output, open(err, "ab") as errors:
        streams = [stream.fileno() for stream in (nothing, output, errors)]
        return Program(typed_python.ask(server(), list(map(str, (script, *arguments))), str(cwd), env, streams))


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


def path() -> str:
    """A ``PATH`` for shells, in which ``python SCRIPT`` is such a program and ``python -m`` an interpreter."""
    return os.pathsep.join([str(Path(server()).parent), str(Path(sys.executable).parent), os.environ["PATH"]])


@functools.cache
def server() -> str:
    """The socket of the process that forks: that of the process that started this one, or a new one.

    A new one ends with this process. Test processes that this one starts use it as well.
    """
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    folder = tempfile.TemporaryDirectory(prefix="ngn-")  # its path is short, as those of sockets have to be
    atexit.register(folder.cleanup)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name := str(Path(folder.name, "socket")))
        listener.listen(64)
        bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        line = [sys.executable, program_server.__file__, str(listener.fileno())]
        process = subprocess.Popen(line, env=bare, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    atexit.register(process.communicate)  # closes its input
    (python := Path(folder.name, "python")).write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", typed_python.__file__, name])} "$@"\n'
    )
    python.chmod(0o755)
    os.environ[VARIABLE] = name
    return name
