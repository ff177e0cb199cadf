"""Wait for other processes: for a condition with a deadline, never for a fixed time. What killed ones leave."""

import os
import subprocess
import threading
import time
from typing import TypeVar

from ngn.files import temporary_path

T = TypeVar("T")


def until(condition, what, seconds=900.0):
    """Return the value of ``condition`` as soon as it is true; an AssertionError if it is not within ``seconds``."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        pause.wait(0.02)
    return value


def leave_partial(path):
    """Leave the partial file of a process that was killed while it wrote ``path``."""
    with subprocess.Popen(["true"]) as writer:
        writer.wait()
    part = temporary_path(path)
    part.with_name(part.name.replace(f"-{os.getpid()}-", f"-{writer.pid}-")).touch()
