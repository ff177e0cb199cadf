"""The process behind ``programs.py``: it has imported what programs need, and forks one for each connection.

    program_server.py DESCRIPTOR    # of a socket that listens; ends with its standard input

It holds nothing of this project: a program finds its own checkout, environment, folder and output as it does in an
interpreter of its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import runpy
import select
import socket
import sys
from pathlib import Path
from typing import Any

from typed_python import NUMBER

PACKAGES = ("torch", "torch._dynamo", "hydra", "pydantic", "filelock", "torch_geometric")
"""What takes long to import, where it is installed."""


def serve(listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for every connection; returns in the programs only, with the request and the standard streams."""
    while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            with connection.makefile() as lines:
                request = json.loads(lines.readline())
            if (program := os.fork()) == 0:
                connection.close()
                return request, streams
            for stream in (*streams, 0, 1, 2):
                os.close(stream)  # a pipe ends with the program
            connection.sendall(NUMBER.pack(program))
            status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
            connection.sendall(NUMBER.pack(status))
            os._exit(0)
        connection.close()
        _reap(os.WNOHANG)
    _reap(0)
    os._exit(0)


def _reap(options: int) -> None:
    """Take note of children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


def become(request: dict[str, Any], streams: list[int], installed: list[str]) -> None:
    """Run a program as an interpreter that was started for it."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    sys.argv = request["words"]
    own = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = [str(Path(sys.argv[0]).resolve().parent), *own, *installed]
    del sys.modules["typed_python"]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    for name in PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    gc.freeze()  # otherwise each child's collections copy all of it
    become(*serve(socket.socket(fileno=int(sys.argv[1]))), sys.path[1:])
