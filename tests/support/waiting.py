"""Wait for other processes: for a condition with a deadline, never for a fixed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

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
