"""Programs as they are typed, in processes forked from one that has imported torch (``program_server.py``)."""

import atexit
import functools
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import program_server

ROOT = Path(__file__).parents[2]
VARIABLE = "TEST_PROGRAMS"
"""The variable that names the socket to the test processes of one session."""


def run(script, *arguments, cwd, env=os.environ):
    """Do what ``python script arguments...`` does in ``cwd`` with only ``env``; its exit status and what it printed."""
    line = [Path(server()).with_name("python"), script, *arguments]
    return subprocess.run(line, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def suite(*words, cwd, script=ROOT / "run.py", **environment):
    """Run ``python run.py words...``, which succeeds, without the caller's variables that change what it does."""
    clean = {k: v for k, v in os.environ.items() if k not in ("HYDRA_FULL_ERROR", "NGN_CONF", "NGN_SCRATCH")}
    done = run(script, *map(str, words), cwd=cwd, env=clean | environment)
    assert done.returncode == 0, done.stderr
    return done


def start(script, *arguments, cwd, env, log):
    """Start such a program; what it prints goes to the end of a file."""
    line = [Path(server()).with_name("python"), script, *arguments]
    with log.open("ab") as output:
        return subprocess.Popen(line, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def run_code(code, *arguments, cwd, env=os.environ):
    """The same for the text of a program, which finds what its ``PYTHONPATH`` names."""
    with tempfile.TemporaryDirectory() as folder:
        (script := Path(folder, "program.py")).write_text(code)
        return run(script, *arguments, cwd=cwd, env=env)


def path():
    """A ``PATH`` for shells, in which ``python SCRIPT`` is such a program and ``python -m`` an interpreter."""
    return os.pathsep.join([str(Path(server()).parent), str(Path(sys.executable).parent), os.environ["PATH"]])


@functools.cache
def server():
    """The socket of the process that forks: of the process that started this one, or a new one that ends with it."""
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
    os.environ[VARIABLE] = name
    line = [sys.executable, "-IS", program_server.__file__, name]
    (link := Path(folder.name, "python")).write_text(f'#!/bin/sh\nexec {shlex.join(line)} "$@"\n')
    link.chmod(0o755)
    return name
