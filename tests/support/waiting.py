"""Waiting for what other processes do: for a condition with an end, never for a length of time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = 900.0) -> T:
    """What ``condition`` gives as soon as that is true.

    Raises:
        AssertionError: if it is not within ``seconds``.
    """
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (value := condition()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        pause.wait(0.02)
    return value
