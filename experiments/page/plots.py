"""The figures as the page draws them: the points and curves of each, with the numbers of their records."""

from __future__ import annotations

from typing import Any

from experiments.figures.model import Curve, Data, Panel, Point, Spec
from experiments.page.runs import RunTable, rounded, thinned

EACH = "each run"
"""What the points of single runs are called beside their means, alone or in brackets behind the name of the mean."""


def payload(spec: Spec, data: Data, table: RunTable) -> dict[str, Any]:
    """One figure: its panels in order, each with series of points and of curves. Curves are thinned."""
    panels = [_panel(key, panel, data, table) for key, panel in spec.panels.items()]
    return {"name": spec.name, "title": spec.title, "panels": [panel for panel in panels if panel["series"]]}


def _panel(key: str, panel: Panel, data: Data, table: RunTable) -> dict[str, Any]:
    points: dict[str, list[Point]] = {}
    for point in data.of(key):
        points.setdefault(point.series, []).append(point)
    strong: dict[str, int] = {}
    for curve in data.curves_of(key):
        strong[curve.series] = min(curve.seed, strong.get(curve.series, curve.seed))
    means = [name for name, found in points.items() if any(len(point.runs) > 1 for point in found)]
    return {
        "title": panel.title,
        "x": {"label": panel.xlabel, "log": panel.xlog},
        "y": {"label": panel.ylabel, "log": panel.ylog},
        "series": [
            *(_line(curve, curve.seed != strong[curve.series], table) for curve in data.curves_of(key)),
            *({**_dots(name, found, table), **_role(name, means)} for name, found in points.items()),
        ],
    }


def _line(curve: Curve, faint: bool, table: RunTable) -> dict[str, Any]:
    kept = thinned(len(curve.x))
    made = {"name": curve.series, "mark": "line", "x": rounded(curve.x[kept], 9), "y": rounded(curve.y[kept])}
    return {**made, "faint": faint, "run": table.at(curve.run)}


def _role(name: str, means: list[str]) -> dict[str, Any]:
    """Beside means of several runs those of one run are drawn faintly, as their means are."""
    if not means or name in means:
        return {"mean": True} if means else {}
    whole = name.removesuffix(f" ({EACH})")
    return {"faint": True, "like": whole if whole in means else means[0]}


def _dots(name: str, points: list[Point], table: RunTable) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": name,
        "mark": "dots",
        "x": rounded((point.x for point in points), 6),
        "y": rounded((point.y for point in points), 6),
        "runs": [[table.at(run_id) for run_id in point.runs] for point in points],
    }
    if any(point.low is not None for point in points):
        for end in ("low", "high"):
            ends = (getattr(point, end) for point in points)
            made[end] = rounded((float("nan") if value is None else value for value in ends), 6)
    return made
