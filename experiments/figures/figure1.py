"""Figure 1: the 1D baseline. Left: objective, task MSE and boundary over training. Right: the norm of each f_k."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from experiments.collect import Reader, Run
from experiments.tables.one_d import BASELINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_SEED = 0
"""Drawn strongly; fixed beforehand, as for the numbers of the standard run."""
_STRONG: dict[str, Any] = {"alpha": 1.0, "linewidth": 1.3, "zorder": 3}
_FAINT: dict[str, Any] = {"alpha": 0.25, "linewidth": 0.6, "zorder": 2}


def _courses(axes: Axes, reader: Reader, runs: list[Run]) -> int:
    """Draw the curves of every run that has them; how many had."""
    from experiments.figures.style import BLUE, GREEN, VERMILION

    counts = axes.twinx()
    counts.spines["right"].set_visible(True)
    drawn = 0
    for run in runs:
        curves = reader.store.curves(run.run_id)
        if curves is None:
            continue
        drawn += 1
        strong = run.seed == SHOWN_SEED
        look = _STRONG if strong else _FAINT
        step = curves["grown.step"]
        axes.plot(step, curves["grown.loss"], color=BLUE, label="total loss" if strong else None, **look)
        axes.plot(step, curves["grown.task"], color=VERMILION, ls="--", label="task MSE" if strong else None, **look)
        counts.plot(step, curves["grown.t"][:, 0], color=GREEN, ls="-.", label="t (right)" if strong else None, **look)
    axes.set(yscale="log", xlabel="training step", ylabel="loss")
    axes.set_title(f"Training, {_seeds(drawn)}", pad=18)
    counts.set_ylabel("boundary $t$")
    counts.set_ylim(bottom=0)
    (lines, names), (more_lines, more_names) = axes.get_legend_handles_labels(), counts.get_legend_handles_labels()
    # above the axes, where it can cover no curve
    axes.legend(lines + more_lines, names + more_names, loc="lower center", bbox_to_anchor=(0.5, 0.99), ncols=3)
    return drawn


def _norms(axes: Axes, runs: list[Run]) -> None:
    from experiments.figures.style import BLUE, GREY

    drawn = 0
    for run in runs:
        norms = run.record["phases"]["grown"].get("norms")
        if not norms:
            continue
        drawn += 1
        places = range(len(norms))
        if run.seed == SHOWN_SEED:
            axes.bar(places, norms, color=BLUE, width=0.7, zorder=2, label=f"seed {SHOWN_SEED}")
        else:
            axes.plot(places, norms, ".", color=GREY, markersize=2.5, alpha=0.7, zorder=3)
    axes.set(xlabel="$k$", ylabel=r"$\|f_k\|_2$")
    axes.set_title(f"Norms of the functions, {_seeds(drawn)}", pad=18)


def _seeds(number: int) -> str:
    return f"n = {number} seed{'' if number == 1 else 's'}"


def draw(reader: Reader, overrides: Mapping[str, Any] | None = None) -> Figure:
    """The figure, from as many of the ten baseline seeds as are there.

    Args:
        overrides: dotted key → value, for stand-ins of the baseline, such as shorter runs.
    """
    import matplotlib

    from experiments.figures import style

    selection = BASELINE.with_overrides(overrides or {})
    runs = [run for run in reader.collect(selection).runs if run.record["status"] == "complete"]
    if not runs:
        return style.not_run("Figure 1: 1D regression, baseline")
    with matplotlib.rc_context(style.RC):
        figure = style.new_figure()
        left, right = figure.subplots(1, 2)
        if _courses(left, reader, runs) == 0:
            left.text(0.5, 0.5, "no curves stored", ha="center", va="center", transform=left.transAxes)
        _norms(right, runs)
        notes = [f"strong lines and bars: seed {SHOWN_SEED}; faint lines and dots: the others"] if len(runs) > 1 else []
        if overrides:
            notes.append("stand-in: " + ", ".join(f"{key}={value}" for key, value in overrides.items()))
        if notes:
            figure.supxlabel("; ".join(notes), fontsize=7, parse_math=False)
        return figure
