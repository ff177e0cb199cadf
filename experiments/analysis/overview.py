"""Turn records into table rows: one per run, or one per combination of settings. This module does not import torch.

``python scripts/table.py DIR --by schedule.lambda0`` prints what :func:`grouped` gives. In a notebook,
``pandas.DataFrame(record_rows([Path("runs")]))`` has one row per run.
"""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from experiments.blocks import ConfigError
from experiments.config.compose import nearest
from experiments.config.identity import ADDED_LATER, flatten
from experiments.store.records import RecordError, read_record
from ngn.files import write_atomically

log = logging.getLogger(__name__)
FlatRecord = dict[str, Any]
SEED = "seed.value"
APART = ("task.name", "method.name", "model.name", "model.path", "profile", "data", "weights")
"""What always separates rows: a median over two tasks, methods, profiles or data sets has no meaning."""
KINDS = ("task.name", "gate.component", "method.name", "model.name", "model.path")
"""What says which other settings a run has, and often their values: ``train.batch`` of a task, ``method.quantile``."""
_BLOCK_KIND = {"task": "task.name", "gate": "gate.component", "method": "method.name"}
"""Block → the key that says which settings it has; the other blocks have the same keys in every run."""


def record_row(record: Mapping[str, Any]) -> FlatRecord:
    """Turn a record into one row: run id, status, settings by their dotted keys, and the numbers of each phase.

    The name of a number is its path in the record (``grown.truncated.mse``). With several boundaries, ``t`` and
    ``count`` are sums. Other values than numbers are left out. ``data`` and ``weights`` are the first digits of the
    digests of data files and pretrained weights.
    """
    flat: FlatRecord = {"run_id": record["run_id"], "status": record["status"], **flatten(record["config"])}
    flat["tag"] = record["execution"].get("tag")
    if not record["data"]["provenance"].startswith("generated"):
        flat["data"] = record["data"]["sha256"][:10]
    if "base" in record:
        flat["weights"] = record["base"]["sha256"][:10]
    flat["sources"] = record["code"].get("sources", record["code"]["commit"])
    for phase, content in record["phases"].items():
        for name, value in flatten(content).items():
            if name in ("t", "count", "r") and value:
                value = sum(value) if name != "r" else sum(value) / len(value)
            if isinstance(value, (int, float)):
                flat[f"{phase}.{name}"] = value
    flat["seconds"] = record["time"]["seconds"]
    return flat


def record_rows(paths: Iterable[Path]) -> list[FlatRecord]:
    """Return rows for records, and for all records below folders, in the order of their names.

    A warning names each damaged record, which is left out. Hidden folders are skipped.
    """
    table = []
    for path in paths:
        for file in [path] if path.suffix == ".json" else sorted(path.rglob("*-s*.json")):
            if not any(part.startswith(".") for part in file.relative_to(path).parts):
                try:
                    table.append(record_row(read_record(file)))
                except RecordError as damaged:
                    log.warning("%s; left out", damaged)
    _add_defaults(table)
    return table


def _add_defaults(table: Sequence[FlatRecord]) -> None:
    """Give older records the settings that came later, so that they share a line with newer ones.

    A default is added only where a record with the same kind of block has the key: ``task.replay`` belongs to some
    tasks alone.
    """
    for key, default in ADDED_LATER.items():
        block = _BLOCK_KIND.get(key.split(".", 1)[0], "profile")
        kinds = {entry.get(block) for entry in table if key in entry}
        for entry in table:
            if entry.get(block) in kinds:
                entry.setdefault(key, default)


def varied(table: Sequence[FlatRecord]) -> list[str]:
    """Return the settings that differ between runs, without the seed."""
    keys = [key for key in dict.fromkeys(key for entry in table for key in entry) if key not in ("run_id", "status")]
    first = {key: next((entry[key] for entry in table if key in entry), None) for key in keys}
    settings = [key for key in keys if _is_setting(key) and key != SEED]
    return [key for key in settings if any(entry.get(key) != first[key] for entry in table)]


def implied(table: Sequence[FlatRecord]) -> list[str]:
    """Return the settings that differ, but not between runs of one task, component, method and model."""
    names = varied(table)
    kinds = [key for key in names if key in KINDS]
    kind_of = [tuple(repr(entry.get(key)) for key in kinds) for entry in table]
    pairs = {key: {(kind, repr(entry.get(key))) for kind, entry in zip(kind_of, table, strict=True)} for key in names}
    return [key for key in names if key not in kinds and len(pairs[key]) == len(set(kind_of))]


def telling(table: Sequence[FlatRecord]) -> list[str]:
    """Return the settings that differ, without those that follow from others (:func:`implied`)."""
    follow = implied(table)
    return [key for key in varied(table) if key not in follow]


def separated(table: Sequence[FlatRecord], by: Sequence[str]) -> list[str]:
    """Return the settings ``by``, and those of :data:`APART` that differ between runs."""
    return [*by, *(key for key in varied(table) if key in APART and key not in by)]


def mixed(table: Sequence[FlatRecord], by: Sequence[str]) -> list[str]:
    """Return what differs between runs of one row of :func:`grouped`: settings, and "sources" of the code."""
    rows: dict[tuple[str, ...], list[FlatRecord]] = {}
    for entry in table:
        rows.setdefault(tuple(repr(entry.get(key)) for key in by), []).append(entry)
    keys = [*(key for key in varied(table) if key not in by), "sources"]
    return [key for key in keys if any(len({repr(entry.get(key)) for entry in row}) > 1 for row in rows.values())]


def notes(table: Sequence[FlatRecord], by: Sequence[str]) -> str:
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


def _is_setting(key: str) -> bool:
    blocks = ("task.", "gate.", "method.", "schedule.", "train.", "seed.")
    return key.startswith(blocks) or key in ("phases", "continue_with", "profile", "tag", *APART)


def usual_columns(table: Sequence[FlatRecord]) -> list[str]:
    """Return the usual columns: of every phase the boundary, the count and the truncated model's score.

    The score is the first in the record, which depends on the task.
    """
    names = list(dict.fromkeys(key for entry in table for key in entry))
    phases = dict.fromkeys(name.split(".")[0] for name in names if name.endswith(".steps") and "train" not in name)
    columns = []
    for phase in phases:
        columns += [name for name in (f"{phase}.t", f"{phase}.count") if name in names]
        first = (next((name for name in entry if name.startswith(f"{phase}.truncated.")), None) for entry in table)
        columns += dict.fromkeys(name for name in first if name)
    return columns


def grouped(table: Sequence[FlatRecord], by: Sequence[str], columns: Sequence[str]) -> list[FlatRecord]:
    """Return one row per combination of the settings ``by``: the number of complete runs and each column's median.

    Raises:
        ConfigError: if no run has such a key; the message suggests the nearest one.
    """
    known = list(dict.fromkeys(key for entry in table for key in entry))
    for key in (*by, *columns):
        if key not in known:
            raise ConfigError(f"no record has '{key}'.{nearest(key, known)}")
    groups: dict[tuple[str, ...], list[FlatRecord]] = {}
    for entry in table:
        groups.setdefault(tuple(repr(entry.get(key)) for key in by), []).append(entry)
    found = []
    for members in groups.values():
        complete = [entry for entry in members if entry["status"] == "complete"]
        values = {name: [entry[name] for entry in complete if name in entry] for name in columns}
        found.append(
            {key: members[0].get(key) for key in by}
            | {"runs": len(complete), "diverged": len(members) - len(complete)}
            | {name: median(numbers) if numbers else None for name, numbers in values.items()}
        )
    return sorted(found, key=lambda entry: [_order(entry[key]) for key in by])


def _order(value: Any) -> tuple[bool, float, str]:
    """Sort numbers by size, before everything else."""
    number = isinstance(value, (int, float))
    return (not number, float(value) if number else 0.0, str(value))


def format_rows(found: Sequence[FlatRecord], room: int | None = None) -> str:
    """Format rows in aligned columns; omit the column ``diverged`` if it is all zeros.

    Args:
        room: width of the terminal in characters. Columns that do not fit follow below, beside the first column again.
    """
    names = [n for n in found[0] if n != "diverged" or any(entry[n] for entry in found)] if found else []
    lines = [names, *([_shown(entry[name]) for name in names] for entry in found)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    blocks: list[list[int]] = [[]]
    for at, width in enumerate(widths):
        taken = sum(widths[other] + 2 for other in blocks[-1])
        if room is not None and len(blocks[-1]) > 1 and taken + width > room:
            blocks.append([0])
        blocks[-1].append(at)
    words = bool(found) and all(isinstance(entry[names[0]], str) for entry in found)

    def cell(line: list[str], at: int) -> str:
        return line[at].ljust(widths[at]) if words and at == 0 else line[at].rjust(widths[at])

    return "\n".join("  ".join(cell(line, at) for at in block) for block in blocks for line in lines)


def _shown(value: Any) -> str:
    return "--" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def write_csv(path: Path, table: Sequence[FlatRecord]) -> None:
    """Write one line per run with all its numbers and settings; to a file, or to a device such as ``/dev/stdout``."""
    names = list(dict.fromkeys(key for entry in table for key in entry))
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, names)
    writer.writeheader()
    writer.writerows(table)
    if path.exists() and not path.is_file():
        path.write_text(out.getvalue(), newline="")
    else:
        write_atomically(path, out.getvalue().encode(), replace=True)


def plot(path: Path, found: Sequence[FlatRecord], table: Sequence[FlatRecord], key: str) -> None:
    """Plot every column against the setting ``key``: one point per run, and a line through the medians.

    Raises:
        ConfigError: if the file's name does not end in .png, .pdf or .svg.
    """
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise ConfigError(f"{path}: the name of a plot must end in .png, .pdf or .svg")
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(found[0])
    columns = names[names.index("diverged") + 1 :]
    figure, axes = plt.subplots(1, len(columns), figsize=(3.2 * len(columns), 2.8), squeeze=False, layout="constrained")
    places = [entry[key] for entry in found]
    numeric = all(isinstance(place, (int, float)) for place in places)
    for ax, name in zip(axes[0], columns, strict=True):
        x = {repr(place): place if numeric else at for at, place in enumerate(places)}
        single = [(x[repr(entry.get(key))], entry[name]) for entry in table if name in entry]
        ax.plot([a for a, _ in single], [b for _, b in single], "o", alpha=0.35, markersize=3)
        known = [(x[repr(entry[key])], entry[name]) for entry in found if entry[name] is not None]
        ax.plot([a for a, _ in known], [b for _, b in known], "-", color="black")
        if numeric and min(places) > 0 and max(places) > 20 * min(places):
            ax.set_xscale("log")
        if not numeric:
            ax.set_xticks(range(len(places)), [str(place) for place in places])
        ax.set_xlabel(key)
        ax.set_title(name, fontsize="small")
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format=path.suffix[1:])
    plt.close(figure)
    write_atomically(path, drawn.getvalue(), replace=True)
