"""What ``python`` is for a test: a process forked from one that has imported torch (``program_server.py``).

    typed_python.py SOCKET SCRIPT ARGUMENT...    # does what `python SCRIPT ARGUMENT...` does

This file starts in milliseconds, as it imports little.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence

NUMBER = struct.Struct("!q")
"""How the server sends a process id and an exit status."""


def ask(server: str, words: Sequence[str], cwd: str, env: Mapping[str, str], streams: Sequence[int]) -> socket.socket:
    """Ask the server for a program; return the connection, on which its process id and its exit status arrive.

    Args:
        server: path of the socket.
        words: a script and its arguments.
        streams: its standard input, output and error.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server)
    socket.send_fds(connection, [b"\n"], streams)
    connection.sendall(json.dumps({"words": words, "cwd": cwd, "env": dict(env)}).encode() + b"\n")
    return connection


def number(connection: socket.socket) -> int:
    """Return the next number on a connection.

    Raises:
        struct.error: if the server has ended.
    """
    return int(NUMBER.unpack(connection.recv(NUMBER.size, socket.MSG_WAITALL))[0])


def main() -> int:
    """Run a script in a forked process, and anything else in an interpreter of its own."""
    server, *words = sys.argv[1:]
    if not words or words[0].startswith("-"):
        os.execv(sys.executable, [sys.executable, *words])
    connection = ask(server, words, os.getcwd(), os.environ, [0, 1, 2])
    number(connection)
    status = number(connection)
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main())
