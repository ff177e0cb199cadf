"""Trainings that are interrupted, as by a kill, when a checkpoint of a step is there."""

from collections.abc import Callable


class Stop(Exception):
    """The exception that interrupts a training."""


def stop_after(step: int) -> Callable[[int], None]:
    """Return an ``on_step`` that interrupts at the first call after ``step``, when its checkpoint is written."""

    def stop(done: int) -> None:
        if done > step:
            raise Stop

    return stop
