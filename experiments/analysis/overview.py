"""Tables of any records: one line per combination of settings, with medians over its runs. Imports no torch.

``python scripts/table.py DIR --by schedule.lambda0`` prints what :func:`grouped` gives of :func:`frame.frame`'s rows.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from experiments.analysis.estimates import difference_of_means, mean
from experiments.analysis.frame import order
from experiments.config.compose import nearest
from experiments.core.blocks import ConfigError, printable
from experiments.store.record import PHASES
from ngn.files import write_atomically

if TYPE_CHECKING:
    import pandas as pd

SEED = "seed.value"
LEVEL, COMPARED = 0.05, 5
"""Of the interval of a difference; and the most values of a setting that a command compares."""
APART = ("task.name", "method.name", "model.name", "model.path", "profile", "data", "weights")
"""What always separates rows: a median over two tasks, methods, profiles or data sets has no meaning."""
BLOCKS = ("task.", "gate.", "method.", "schedule.", "train.", "seed.")
ALONE = ("phases", "continue_with", "tag")
"""The settings: those of blocks, and those beside them."""
KINDS = ("task.name", "gate.component", "method.name", "model.name", "model.path")
"""What says which other settings a run has, and often their values: ``train.batch`` of a task, ``method.quantile``."""
_LONG = {"task": "task.name", "gate": "gate.component", "method": "method.name", "model": "model.name"}
"""Choice on a command line → the setting that names it."""


def varied(table: pd.DataFrame) -> list[str]:
    """Return the settings that differ between runs, without the seed."""
    settings = [key for key in table if key.startswith(BLOCKS) or key in APART or key in ALONE]
    return [key for key in settings if key != SEED and table[key].nunique(dropna=False) > 1]


def _group(table: pd.DataFrame, keys: Sequence[str]) -> Any:
    """Number the rows by their settings, in the order in which these come first; without keys, all are of one group."""
    by: Any = list(keys) or (lambda row: 0)
    return table.groupby(by, dropna=False, observed=True, sort=False).ngroup()


def _differ(table: pd.DataFrame, keys: Iterable[str], by: Sequence[str]) -> list[str]:
    """Return the settings of ``keys`` that differ between runs of one row of :func:`grouped`."""
    group = _group(table, by)
    return [key for key in keys if table[key].groupby(group).nunique(dropna=False).max() > 1]


def implied(table: pd.DataFrame) -> list[str]:
    """Return the settings that differ, but not between runs of one task, component, method and model."""
    names = varied(table)
    kinds = [key for key in names if key in KINDS]
    apart = _differ(table, names, kinds)
    return [key for key in names if kinds and key not in kinds and key not in apart]


def telling(table: pd.DataFrame) -> list[str]:
    """Return the settings that differ, without those that follow from others (:func:`implied`)."""
    follow = implied(table)
    return [key for key in varied(table) if key not in follow]


def separated(table: pd.DataFrame, by: Sequence[str]) -> list[str]:
    """Return the settings ``by``, and those of :data:`APART` that differ between runs."""
    return [*by, *(key for key in varied(table) if key in APART and key not in by)]


def mixed(table: pd.DataFrame, by: Sequence[str]) -> list[str]:
    """Return what differs between runs of one row of :func:`grouped`: settings, and "sources" of the code."""
    return _differ(table, [*(key for key in varied(table) if key not in by), "sources"], by)


def notes(table: pd.DataFrame, by: Sequence[str]) -> str:
    """Return lines on what the rows of :func:`grouped` do not show; empty if there is nothing.

    These are settings that follow from those shown, and differences in more than the seed between runs of one row.
    """
    names = mixed(table, by)
    kinds = [key for key in varied(table) if key in KINDS]
    follow = [key for key in implied(table) if key not in by] if set(kinds) <= set(by) else []
    told = f"without a column, as they follow from {', '.join(kinds)}: {', '.join(follow)}\n" if follow else ""
    settings = ", ".join(key for key in names if key != "sources")
    told += f"runs of one line differ in {settings}: name them with --by to separate them\n" if settings else ""
    return told + ("runs of one line were trained by different sources\n" if "sources" in names else "")


def usual_columns(table: pd.DataFrame) -> list[str]:
    """Return the usual columns: of every phase the boundary, the count and the truncated model's score.

    The score is the first in the record, which depends on the task.
    """
    phases = [name.split(".")[0] for name in table if name.endswith(".steps") and "train" not in name]
    phases.sort(key=lambda phase: [*PHASES, phase].index(phase))
    columns = []
    for phase in phases:
        sizes = [name for name in (f"{phase}.t", f"{phase}.count") if name in table]
        same = len(sizes) == 2 and bool(table[sizes[0]].eq(table[sizes[1]]).all())  # without a boundary
        columns += sizes[same:]
        scores = table[[name for name in table if name.startswith(f"{phase}.truncated.")]].notna()
        columns += scores[scores.any(axis=1)].idxmax(axis=1).unique().tolist() if scores.size else []
    return columns


def _require(table: pd.DataFrame, keys: Iterable[str]) -> None:
    for key in keys:
        if key not in table:
            raise ConfigError(f"no record has '{key}'.{nearest(key, list(table))}")


def grouped(table: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per combination of the settings ``by``: the number of complete runs and each column's median.

    Raises:
        ConfigError: if no run has such a key; the message suggests the nearest one.
    """
    _require(table, (*by, *columns))
    group, complete = _group(table, by), table["status"] == "complete"
    lines = table.loc[~group.duplicated(), [*by]].reset_index(drop=True)  # in the order of the groups' numbers
    lines["runs"], lines["diverged"] = complete.groupby(group).sum(), (~complete).groupby(group).sum()
    for name in columns:
        lines[name] = _numbers(table[complete], name).groupby(group).median()
    whole = [name for name in columns if table[name].dtype.kind == "i"]
    plain = {name: [_plain(value, name in whole) for value in lines[name]] for name in lines}
    rows = [dict(zip(plain, line, strict=True)) for line in zip(*plain.values(), strict=True)]
    return sorted(rows, key=lambda entry: [order(entry[key]) for key in by])


def _numbers(table: pd.DataFrame, name: str) -> Any:
    """Return a column as numbers, NaN where a run lacks one; a ConfigError if it holds texts."""
    try:
        return table[name].astype(float)
    except ValueError:
        raise ConfigError(f"'{name}' is no number in these records; type another column") from None


def _plain(value: Any, whole: bool = False) -> Any:
    """Return a value as Python has it: None where it is missing, an integer where the column has no others."""
    import pandas as pd

    if pd.isna(value):
        return None
    value = value.item() if hasattr(value, "item") else value
    return int(value) if whole and value == int(value) else value


def compared(
    table: pd.DataFrame, sides: Sequence[str], by: Sequence[str], columns: Sequence[str]
) -> tuple[list[dict[str, Any]], str]:
    """Return both means and their difference with its 95 % interval: one row per combination of ``by`` and per column.

    If both sides have the same seeds, one run each, the interval is Student's of the differences of each seed. Else it
    is Welch's of independent samples. A diverged run has no numbers, so its side lacks this seed.

    Args:
        sides: two settings, such as "method=ngn" and "method=fixed".
        columns: a name without a phase, such as ``truncated.mse``, is of the run's first phase: grown, else fixed.

    Returns:
        (rows, lines on what differs between runs of one side in one row).

    Raises:
        ConfigError: if no run has such a setting or number, or such a value of it.
    """
    halves, keys = {}, []
    for side in sides:
        name, _, value = side.partition("=")
        keys.append(key := _LONG.get(name, name))
        _require(table, (key, *by))
        texts = table[key].astype(object).astype(str)
        halves[side] = table[texts == value]
        if halves[side].empty:
            there = ", ".join(sorted(set(texts[table[key].notna()])))
            raise ConfigError(f"no record has {side}; in these records {key} is one of {there}")
    both = table[table.index.isin([row for half in halves.values() for row in half.index])]
    by = [key for key in separated(both, by) if key not in keys]
    rows = []
    for _, members in both.groupby(_group(both, by)):
        for name in columns or dict.fromkeys(one.partition(".")[2] for one in usual_columns(both)):
            pair = [_of_seeds(half[half.index.isin(members.index)], name) for half in halves.values()]
            if all(len(numbers) for numbers in pair):
                settings = {key: _plain(members[key].iloc[0]) for key in by}
                rows.append(settings | {"number": name} | _difference(sides, pair))
    others = {side: ", ".join(mixed(half, by)) for side, half in halves.items()}
    told = "".join(f"runs of {side} in one line also differ in {names}\n" for side, names in others.items() if names)
    return sorted(rows, key=lambda entry: [order(entry[key]) for key in by]), told


def differences(table: pd.DataFrame) -> list[list[dict[str, Any]]]:
    """Compare the first value of the setting that differs with each other one, unless several do: a table for each."""
    keys = telling(table)
    if len(keys) != 1 or table[keys[0]].nunique() > COMPARED or table[SEED].nunique() < 2:
        return []
    values = [*dict.fromkeys(table[keys[0]].astype(object).astype(str))]
    name = next((short for short, key in _LONG.items() if key == keys[0]), *keys)
    return [compared(table, (f"{name}={values[0]}", f"{name}={value}"), (), ())[0] for value in values[1:]]


def _of_seeds(half: pd.DataFrame, name: str) -> Any:
    """Return the numbers of complete runs, by their seeds."""
    there = [key for key in (name, *(f"{phase}.{name}" for phase in PHASES)) if key in half]
    if not there:
        raise ConfigError(f"no record has '{name}'.{nearest(name, list(half))}")
    numbers = half[half["status"] == "complete"].set_index(SEED)[there].astype(float)
    return numbers.bfill(axis=1).iloc[:, 0].dropna()


def _difference(names: Sequence[str], pair: Sequence[Any]) -> dict[str, Any]:
    first, second = pair
    seeds = [set(numbers.index) for numbers in pair]
    paired = seeds[0] == seeds[1] and len(seeds[0]) == len(first) == len(second)
    low = high = None
    if min(len(first), len(second)) > 1:
        numbers = first.to_numpy(), second.to_numpy()
        _, low, high = (mean((first - second).to_numpy()) if paired else difference_of_means(*numbers)).at(LEVEL)
    runs = f"{len(first)} pairs" if paired else f"{len(first)}, {len(second)}"
    means = {side: float(numbers.mean()) for side, numbers in zip(names, pair, strict=True)}
    return means | {"difference": float(first.mean() - second.mean()), "low": low, "high": high, "runs": runs}


def table_of(rows: Sequence[Mapping[str, Any]], room: int) -> Table:
    """Return rows as a table of rich; omit the column ``diverged`` if it is all zeros.

    Args:
        room: characters of a line. Headings that do not fit have a line for each part of their name.
    """
    names = [n for n in rows[0] if n != "diverged" or any(entry[n] for entry in rows)] if rows else []
    titles, *cells = [[*map(printable, line)] for line in (names, *([_shown(each[n]) for n in names] for each in rows))]
    wide = sum(2 + max(map(len, column)) for column in zip(titles, *cells, strict=True)) - 2 > room
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for at, title in enumerate(titles):
        words = at == 0 and all(isinstance(entry[names[0]], str) for entry in rows)
        head = Text(title.replace(".", ".\n") if wide else title)
        table.add_column(head, justify="left" if words else "right", overflow="fold")
    for line in cells:
        table.add_row(*map(Text, line))
    return table


def _shown(value: Any) -> str:
    return "--" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def plot(path: Path, rows: Sequence[Mapping[str, Any]], table: pd.DataFrame, key: str) -> None:
    """Plot every column against the setting ``key``: one point per run, and a line through the medians.

    Raises:
        ConfigError: if the file's name does not end in .png, .pdf or .svg.
    """
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise ConfigError(f"{path}: the name of a plot must end in .png, .pdf or .svg")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    columns = [*rows[0]][[*rows[0]].index("diverged") + 1 :]
    places = [entry[key] for entry in rows]
    numeric = all(isinstance(place, (int, float)) for place in places)
    at = {place: place if numeric else number for number, place in enumerate(dict.fromkeys(places))}
    figure, axes = plt.subplots(1, len(columns), figsize=(3.2 * len(columns), 2.8), squeeze=False, layout="constrained")
    medians = pd.DataFrame(rows).assign(**{key: [at[place] for place in places]})
    runs = table[columns].astype(float).assign(**{key: [at[_plain(value)] for value in table[key]]})
    for ax, name in zip(axes[0], columns, strict=True):
        look = {"x": key, "y": name, "ax": ax, "legend": False}
        runs.plot(**look, style="o", alpha=0.35, markersize=3)
        medians.dropna(subset=name).plot(**look, color="black", logx=numeric and 0 < 20 * min(at) < max(at))
        ax.set_title(name, fontsize="small")
        if not numeric:
            ax.set_xticks(range(len(at)), [str(place) for place in at])
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format=path.suffix[1:])
    plt.close(figure)
    write_atomically(path, drawn.getvalue(), replace=True)
