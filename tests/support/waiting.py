"""Wait for other processes: for a condition with a deadline, never for a fixed time. What killed ones leave."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ngn.files import temporary_path

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = 900.0) -> T:
    """Return the value of ``condition`` as soon as it is true.

    Raises:
        AssertionError: if it is not true within ``seconds``.
    """
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        pause.wait(0.02)
    return value


def leave_partial(path: Path) -> None:
    """Leave the partial file of a process that was killed while it wrote ``path``."""
    with subprocess.Popen(["true"]) as writer:
        writer.wait()
    part = temporary_path(path)
    part.with_name(part.name.replace(f"-{os.getpid()}-", f"-{writer.pid}-")).touch()
