"""The data of the figures for the page's plots. Each point refers to the runs behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.analysis.figures import Curve, Data, Line, Panel, Point, Spec
from experiments.report.page.runs import Runs, rounded, thinned


def payload(spec: Spec, data: Data, runs: Runs) -> dict[str, Any]:
    """Return one figure as JSON data: its panels in order, each with series of points and of thinned curves."""
    looks = data.looks(spec.panels)
    panels = [_panel(key, panel, data, looks, runs) for key, panel in spec.panels.items()]
    shown = [panel for panel in panels if panel["series"]]
    return {"name": spec.name, "title": spec.title, "columns": spec.columns, "panels": shown}


def _panel(key: str, panel: Panel, data: Data, looks: Mapping[str, int], runs: Runs) -> dict[str, Any]:
    points: dict[str, list[Point]] = {}
    for point in data.of(key):
        points.setdefault(point.series, []).append(point)
    curves = data.curves_of(key)
    order = dict.fromkeys([*panel.series, *points])
    return {
        "title": data.title(key, panel).replace("\n", ", "),
        "x": {"label": panel.xlabel, "log": panel.xlog},
        "y": {"label": panel.ylabel, "log": panel.ylog},
        "lanes": panel.lanes,
        "fewest": data.fewest(key, panel) or 0,
        "series": [
            *({**_curve(curve, runs), "look": looks[curve.series]} for curve in curves),
            *({**_dots(name, points[name], runs), "look": looks[name]} for name in order if name in points),
            *(_line(line, runs) for line in data.lines_of(key) if points or curves),
        ],
    }


def _curve(curve: Curve, runs: Runs) -> dict[str, Any]:
    kept = thinned(len(curve.x))
    made = {"name": curve.series, "mark": "line", "x": rounded(curve.x[kept], 9), "y": rounded(curve.y[kept])}
    return {**made, "faint": not curve.strong, "run": runs.at(curve.run)}


def _line(line: Line, runs: Runs) -> dict[str, Any]:
    kept = thinned(len(line.x))
    made = {
        "name": line.series,
        "mark": "line",
        "x": rounded(line.x[kept], 9),
        "y": rounded(line.y[kept]),
    }
    return {**made, "guide": "measured" if line.runs else "reference", "text": line.label}


def _dots(name: str, points: list[Point], runs: Runs) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": name,
        "mark": "dots",
        "x": rounded((point.x for point in points), 6),
        "y": rounded((point.y for point in points), 6),
        "runs": [[runs.at(run_id) for run_id in point.runs] for point in points],
        "faint": points[0].faint,
        "mean": any(len(point.runs) > 1 for point in points),
    }
    if any(point.shift for point in points):
        made["shift"] = rounded((point.shift for point in points), 3)
    if any(point.low is not None for point in points):
        for end in ("low", "high"):
            ends = (getattr(point, end) for point in points)
            made[end] = rounded((float("nan") if value is None else value for value in ends), 6)
    return made
