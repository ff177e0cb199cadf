"""``python run.py --watch``: loss and size of the trainings that run now, as curves in the terminal. Imports no torch."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, median

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from experiments.cli.pipes import room, show
from experiments.core.blocks import printable
from experiments.core.checkpoint import CURVE
from experiments.core.paths import SCRATCH
from experiments.runs.sweeps.status import duration_text

BARS, HEIGHT, WIDEST = " ▁▂▃▄▅▆▇█", 5, 120
"""Eighths of a line, and the lines and the most characters of a plot with its neighbour."""
ENDED = 900.0
"""Seconds without a point after which a training counts as ended: a killed one leaves its file."""


def watch() -> None:
    """Draw the running trainings every second, until the last has ended or Ctrl-C; without a terminal, once."""
    drawn = [*trainings()]
    if not drawn:
        print("no training is running here, or it has just begun; see python run.py --help")
    elif not sys.stdout.isatty():
        show(*drawn)
    else:
        with contextlib.suppress(KeyboardInterrupt), Live(auto_refresh=False, redirect_stdout=False) as live:
            while drawn:
                live.update(Group(*drawn), refresh=True)
                time.sleep(1)
                drawn = [*trainings()]


def trainings() -> Iterator[Group]:
    """Yield for each stack in training its title, and the curves of its present phase."""
    newest: dict[Path, tuple[float, Path]] = {}
    for path in sorted((SCRATCH / "checkpoints").glob(f"*/*/{CURVE}")):
        with contextlib.suppress(OSError):  # it has just ended
            newest[path.parents[1]] = max(newest.get(path.parents[1], (0.0, path)), (path.stat().st_mtime, path))
    for when, path in newest.values():
        if (quiet := time.time() - when) < ENDED:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # a last line may be half written
                yield _drawn(path, quiet)


def _drawn(path: Path, quiet: float) -> Group:
    (title, steps), *points = (json.loads(line) for line in path.read_text().splitlines())
    loss = {at: median(losses) for at, _, losses, _ in points}
    size = {at: fmean(t for each in sizes for t in each) for at, *_, sizes in points}
    head = f"{printable(title)}: step {max(loss):,} of {steps:,}, {duration_text(quiet)} ago"
    table, width = Table.grid(padding=(0, 2)), min(room(), WIDEST) // 2 - 2
    table.add_column(width=width)
    curves = {"loss": ("{:.3g}", loss), "t" if len(points[0][3][0]) == 1 else "mean t": ("{:.2f}", size)}
    table.add_row(*(_plot(name, form, curve, steps, width) for name, (form, curve) in curves.items()))
    return Group(Text(head, style="bold"), table)


def _plot(name: str, form: str, curve: Mapping[int, float], steps: int, width: int) -> Text:
    """Plot a curve as bars below its name and last value; a loss over more than a decade on a logarithmic scale."""
    curve = {at: value for at, value in curve.items() if math.isfinite(value)}
    least, most = min(curve.values()), max(curve.values())
    labels = [form.format(most), *[""] * (HEIGHT - 2), form.format(least)]
    place = max(map(len, labels)) + 1
    scale = math.log if least > 0 and most > 10 * least else float
    span = scale(most) - scale(least) or 1.0
    columns = {at * (width - place) // steps: (scale(value) - scale(least)) / span for at, value in curve.items()}
    bars, level = list[int](), 0.0
    for column in range(max(columns) + 1):
        level = columns.get(column, level)
        bars.append(1 + round(level * (8 * HEIGHT - 1)))
    lines = [f"{name} {form.format([*curve.values()][-1])}"]
    for row, label in zip(reversed(range(HEIGHT)), labels, strict=True):
        lines.append(f"{label:>{place - 1}} {''.join(BARS[min(max(bar - 8 * row, 0), 8)] for bar in bars)}")
    return Text("\n".join(lines))
