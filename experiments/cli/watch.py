"""``python run.py --watch``: loss and size of the trainings that run now, as curves. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from experiments.cli.pipes import room, show
from experiments.config import identity
from experiments.core.blocks import printable
from experiments.core.checkpoint import CURVES

BARS, HEIGHT, WIDEST = " ▁▂▃▄▅▆▇█", 5, 120
"""Eighths of a line, and the lines and the most characters of two plots side by side."""
ENDED = 900.0
"""Seconds without news after which a training counts as ended: a killed one leaves its file."""


def watch() -> None:
    """Draw the running trainings every second, until the last has ended or Ctrl-C; without a terminal, once."""
    if not (drawn := [*trainings()]):
        print("no training is running here, or it has just begun")
    elif not sys.stdout.isatty():
        show(*drawn)
    else:
        with contextlib.suppress(KeyboardInterrupt), Live(auto_refresh=False) as live:
            while drawn := [*trainings()]:
                live.update(Group(*drawn), refresh=True)
                time.sleep(1)


def trainings() -> Iterator[Group]:
    """Yield for each stack in training its title, and the curves of its present phase."""
    newest: dict[Path, tuple[float, Path]] = {}
    for path in (identity.SCRATCH / "checkpoints").glob(f"*/*/{CURVES}"):
        with contextlib.suppress(OSError):  # it has just ended
            newest[path.parents[1]] = max(newest.get(path.parents[1], (0.0, path)), (path.stat().st_mtime, path))
    for when, path in sorted(newest.values()):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # ended, or damaged
            if (quiet := time.time() - when) < ENDED:
                yield _drawn(json.loads(path.read_text()), quiet)


def _drawn(content: Mapping[str, Any], quiet: float) -> Group:
    """Draw the mean loss and size of the models of a stack, of what the trainer has written."""
    steps, columns = content["steps"], content["step"]
    head = f"{printable(content['title'])}: step {columns[-1]:,} of {steps:,}, {quiet:.0f} s ago"
    width = min(room(), WIDEST) // 2 - 2
    table = Table.grid(Column(width=width), Column(width=width), padding=(0, 2))
    places, forms = [at / steps for at in columns], {"loss": "{:.3g}", "t": "{:.2f}"}
    curves = {name: np.asarray(content[name], dtype=float).reshape(len(columns), -1).mean(-1) for name in forms}
    table.add_row(*(_plot(name, forms[name], curve, places, width) for name, curve in curves.items()))
    return Group(Text(head, style="bold"), table)


def _plot(name: str, form: str, values: np.ndarray, places: Sequence[float], width: int) -> Text:
    """Plot values at ``places`` from 0 to 1, as bars below their last one; on a logarithmic scale over a decade."""
    low, high = np.nanmin(values), np.nanmax(values)
    labels = [form.format(high), *[""] * (HEIGHT - 2), form.format(low)]
    margin = max(map(len, labels))
    scaled = np.log(values) if 0 < 10 * low < high else values
    part = (scaled - np.nanmin(scaled)) / (np.ptp(scaled) or 1)
    columns = np.arange(int(places[-1] * (width - margin - 1)) + 1) / (width - margin - 1)
    bars = 1 + np.nan_to_num(np.interp(columns, places, part)) * (8 * HEIGHT - 1)
    rows = [np.clip(bars - 8 * row, 0, 8).round().astype(int) for row in reversed(range(HEIGHT))]
    lines = [f"{label:>{margin}} {''.join(BARS[n] for n in row)}" for label, row in zip(labels, rows, strict=True)]
    return Text("\n".join([f"{name} {form.format(values[-1])}", *lines]))
