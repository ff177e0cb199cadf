"""Processor time of one unit. What several units share is made once, and counts in each that uses it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable
from typing import TypeVar

R = TypeVar("R")


class Clock:
    """Measure a unit's processor time, seconds, from :meth:`start` on."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin with another unit."""
        self._began = time.process_time()
        self._reused: dict[Hashable, float] = {}

    def seconds(self) -> float:
        """Return the time since the start, with what it took to make the shared results that the unit used."""
        return time.process_time() - self._began + sum(self._reused.values())

    def shared(self, make: Callable[..., R]) -> Callable[..., R]:
        """Keep the last two results of ``make``, a function of hashable positional arguments.

        Two, as learned sizes come in two settings, of which the first is used once more after the second.
        """

        @functools.lru_cache(maxsize=2)
        def timed(*given: Hashable) -> tuple[R, float]:
            began = time.process_time()
            return make(*given), time.process_time() - began

        @functools.wraps(make)
        def kept(*given: Hashable) -> R:
            misses = timed.cache_info().misses
            result, seconds = timed(*given)
            made_now = timed.cache_info().misses > misses  # this unit's own time has it
            self._reused.setdefault((make, given), 0.0 if made_now else seconds)
            return result

        return kept


CLOCK = Clock()
