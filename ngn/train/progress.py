"""Progress of a training: a live bar on a terminal with rich, else a printed line every 30 s."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Literal, Self, get_args

ProgressMode = Literal["auto", "always", "never"]
SECONDS = 30.0
"""Time between two printed lines if there is no bar."""


class ProgressLine(ExitStack):
    """A progress bar, or printed lines, with speed and time left. Use it as a context manager.

    Without a bar, a line is printed every :data:`SECONDS`. A shorter training prints none. ``mode`` "auto" draws the
    bar only on a terminal, "always" also elsewhere; "never" shows nothing. The speed counts the steps (``unit``) of all
    ``replicas``; ``done`` of ``total`` are done at the start.
    """

    def __init__(
        self, title: str, total: int, done: int = 0, replicas: int = 1, mode: ProgressMode = "auto", unit: str = "step"
    ) -> None:
        if mode not in get_args(ProgressMode):
            raise ValueError(f"progress must be one of {', '.join(get_args(ProgressMode))}, not {mode!r}")
        super().__init__()
        self.title, self.total, self.first, self.replicas, self.unit = title, total, done, replicas, unit
        self.drawn = (mode == "always" or (mode == "auto" and sys.stderr.isatty())) and find_spec("rich") is not None
        self.shown = mode != "never"
        self.started = time.monotonic()
        self._next = 0.0 if self.drawn else self.started + SECONDS

    def __enter__(self) -> Self:
        if self.drawn:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            # Fits a terminal of 80 columns; on a narrower one rich would drop columns.
            bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=6),
                TaskProgressColumn(),
                TextColumn("{task.fields[speed]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("left {task.fields[state]}"),
                # The stream itself: rich redirects sys.stderr while it draws, and a program may have wrapped it before.
                console=Console(file=getattr(sys.stderr, "rich_proxied_file", sys.stderr)),
            )
            self._bar = self.enter_context(bar)
            self._row = self._bar.add_task(self.title, total=self.total, completed=self.first, speed="", state="")
        return self

    def due(self) -> bool:
        """Whether the next update is due; cheap enough for every step."""
        return self.shown and time.monotonic() >= self._next

    def show(self, step: int, state: str) -> None:
        """Show the step and a short text, such as the current boundary."""
        now = time.monotonic()
        self._next = now + (0.2 if self.drawn else SECONDS)
        rate = (step - self.first) / max(now - self.started, 1e-9)
        every = rate * self.replicas
        speed = f"{every:,.0f} {self.unit}s/s" if every >= 1 else f"{1 / max(every, 1e-9):.1f} s/{self.unit}"
        if self.drawn:
            self._bar.update(self._row, completed=step, speed=speed, state=state)
            return
        minutes, seconds = divmod(int((self.total - step) / max(rate, 1e-9)), 60)
        line = f"{self.title}: {self.unit} {step:,} of {self.total:,}, {speed}, {minutes}:{seconds:02} left, {state}"
        print(line.rstrip(", "), file=sys.stderr, flush=True)
