"""What ``python`` is for a test: a process forked from one that has imported what programs need.

    program_server.py DESCRIPTOR                   # serves a socket that listens; ends with its standard input
    program_server.py SOCKET SCRIPT ARGUMENT...    # does what `python SCRIPT ARGUMENT...` does

The server holds nothing of this project: a program finds its own checkout, environment, folder and output as it does in
an interpreter of its own. This file starts in milliseconds, as it imports little before it serves.
"""

import json
import os
import signal
import socket
import struct
import sys

NUMBER = struct.Struct("!q")
"""How the server sends a process id and an exit status."""
PACKAGES = ("torch", "torch._dynamo", "hydra", "pydantic", "filelock", "torch_geometric")
"""What takes long to import, where it is installed."""


def ask(server, words):
    """Run a script in a forked process, to which signals go on, and end as it does; anything else needs no server."""
    if not words or words[0].startswith("-"):
        os.execv(sys.executable, [sys.executable, *words])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server)
    socket.send_fds(connection, [b"\n"], [0, 1, 2])
    connection.sendall(json.dumps({"words": words, "cwd": os.getcwd(), "env": {**os.environ}}).encode() + b"\n")

    def number():
        return int(NUMBER.unpack(connection.recv(NUMBER.size, socket.MSG_WAITALL))[0])

    program, passed_on = number(), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    for signum in passed_on:
        signal.signal(signum, lambda signum, _: os.kill(program, signum))
    if (status := number()) >= 0:
        sys.exit(status)
    if -status in passed_on:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)


def serve(listener):
    """Fork for every connection; returns in the programs only, with the request and the standard streams."""
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no child stays as a zombie
    while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
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
    os._exit(0)


def become(request, streams, installed):
    """Run a program as an interpreter that was started for it."""
    import runpy

    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
    sys.argv = request["words"]
    own = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    sys.path[:] = [os.path.dirname(os.path.realpath(sys.argv[0])), *own, *installed]
    runpy.run_path(sys.argv[0], run_name="__main__")


def main():
    """Import what programs need, and serve."""
    import gc
    import importlib.util

    for name in PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    gc.freeze()  # otherwise each child's collections copy all of it
    become(*serve(socket.socket(fileno=int(sys.argv[1]))), sys.path[1:])


if __name__ == "__main__":
    main() if len(sys.argv) == 2 else ask(sys.argv[1], sys.argv[2:])
