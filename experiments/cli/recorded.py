"""The committed records and the published values of a command's runs. Imports no torch.

A command begins with the time that its runs take (:func:`forecast`), and ends with its numbers beside the committed and
the published ones (:func:`closing`). ``show=true`` prints the committed records alone, and writes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from experiments.analysis import overview
from experiments.analysis.frame import FlatRecord, frame_of, record_row, record_rows
from experiments.cli.pipes import print_line, room
from experiments.config.compose import DEFAULT_CHOICES
from experiments.config.identity import Run, identity_keys, numerics
from experiments.core.config import Config
from experiments.core.paths import RESULTS
from experiments.runs.outcome import relative, summary
from experiments.runs.same import data_differences
from experiments.runs.sweeps.status import Sample, Speeds, duration_text
from experiments.store.provenance import changed_since, made_by, named
from experiments.store.records import RecordError, Store

if TYPE_CHECKING:
    from experiments.analysis.collect import Reader
    from experiments.analysis.tables import Row
    from experiments.analysis.tables import Table as PaperTable

Rows = Mapping[str, FlatRecord]
"""Run id → the row of its record."""
Labelled = Sequence[tuple[str, Run]]
"""The runs of a command, each with the overrides that distinguish it."""
SHORT = 10.0
"""Seconds. Of a shorter training no time is told before it."""
FEW = 3
"""Most runs that a note names; of more it says the number."""


def counted(number: int, word: str) -> str:
    """A number with its word: 1 run, 2,000 runs."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def forecast(runs: Sequence[Run]) -> str:
    """Say how long runs take, by the committed records of their task, gate, model, method and profile.

    Only the engine and the kind of device count that the command asks for, if it does.

    Returns:
        two whole lines; empty if no record tells, or if it is less than :data:`SHORT` seconds.
    """
    speeds, each, used = Speeds(RESULTS), list[float](), dict[Sample, None]()
    for config in (run.config for run in runs):
        found = [
            sample
            for samples in speeds.samples(config, 5)
            for sample in samples
            if config.engine in ("auto", *sample.engines)
            and config.device in ("auto", "cpu" if sample.device == "cpu" else "cuda")
        ]
        if found:
            steps = config.train.steps_on(config.task.usual_samples)
            each.append(median(sample.seconds for sample in found) * steps * config.trainings)
            used |= dict.fromkeys(found)
    if sum(each) < SHORT:
        return ""
    total = f" each, {duration_text(sum(each))} in all" if len(runs) > 1 else ""
    unknown = f"; of {counted(lacking, 'run')} no record tells" if (lacking := len(runs) - len(each)) else ""
    most = max(sample.together for sample in used)
    places = dict.fromkeys(sample.cpu if sample.device == "cpu" else sample.device for sample in used)
    how = f"{'one' if most == 1 else f'up to {most}'} at a time, on {' or '.join(places)}"
    time = f"about {duration_text(median(each))}{total}{unknown}"
    return f"{counted(len(runs), 'run')} to train: {time}\n  by records of this task and method: {how}\n"


def show(jobs: Labelled, verbose: bool = False) -> int:
    """Print the record of every run, in ``results/`` or in the folder of ``results=``. Nothing is written.

    Args:
        verbose: also say which sources changed since the commit of each record.

    Returns:
        the exit status: 1 if a run has no record, or a damaged one.
    """
    rows, notes = dict[str, FlatRecord](), dict[str, list[str]]()
    for label, run in jobs:
        store = Store(run.config.results or RESULTS)
        try:
            record, remarks = store.get(run.id), [f"no record in {relative(store.root)}"]
        except RecordError as damaged:
            record, remarks = None, [str(damaged)]
        if record is not None:
            rows[run.id], remarks = record_row(record), _notes(record, run.config, verbose)
            if len(jobs) == 1:
                print_line(f"{run.id}: {summary(record)} in {relative(store.path(run.id))}")
        for note in remarks:
            notes.setdefault(note, []).append(label)
    if len(jobs) > 1 and rows:
        print_line(_by_run(jobs, rows, {}))
    for note, names in notes.items():
        listed = ", ".join(names) if len(names) <= FEW else f"{len(names)} of {len(jobs)} runs"
        print_line(note if len(jobs) == 1 else f"{note}: {listed}")
    elsewhere = any(Path(run.config.results or RESULTS).resolve() != RESULTS.resolve() for _, run in jobs)
    if rows or not elsewhere:
        print_line(*_paper(jobs, rows if elsewhere else {}))
    return int(len(rows) < len(jobs))


def _notes(record: Mapping[str, Any], config: Config, verbose: bool) -> list[str]:
    """Return in what a record differs from what would be trained now, in short phrases."""
    code = record["code"]
    if code["numerics"] != numerics(config):
        return [f"made by numerics version {code['numerics']}, which is out of date"]
    notes = [f"trained {how}" for how in data_differences(record, config)]
    if code.get("sources") != made_by()["sources"]:
        changed = changed_since(code["commit"]) if verbose and code["commit"] else None
        since = f" (since {code['commit'][:10]} changed: {named(changed)})" if changed else ""
        notes.append(f"made by other sources of the same numerics version{since}")
    return notes


def closing(jobs: Labelled, made: Sequence[Path]) -> list[str | Table]:
    """Return the end of a command's output: its numbers, the committed and published ones, differences of methods.

    Args:
        made: the records of the command's runs, which it has made or found.

    Returns:
        texts and tables; none for a single run that nobody has recorded.
    """
    own = {row["run_id"]: row for _, row in record_rows(map(str, made))}
    others = (run.id for _, run in jobs if run.id in own and run.root.resolve() != RESULTS)
    paths = (str(path) for name in others if (path := Store(RESULTS).path(name)).is_file())
    committed = {row["run_id"]: row for _, row in record_rows(paths)}
    parts: list[str | Table] = []
    if committed:
        parts += ["yours, and in brackets the committed record of the same run:", _by_run(jobs, own, committed)]
    paper = _paper(jobs, own)
    if len(jobs) > 1 and not (committed and paper and _only_seeds(jobs)):
        table = frame_of(own.values())
        medians = overview.grouped(table, overview.telling(table), overview.usual_columns(table))
        parts += ["medians:", overview.table_of(medians, room())]
        if rows := overview.differences(table):
            parts += ["differences of means, with their 95 % intervals:"]
            parts += [overview.table_of(each, room()) for each in rows]
    parts += paper
    if len(jobs) > 1 and sys.stdout.isatty():  # where the line of a run is cut before its record
        parts.append(f"records: {', '.join(sorted({relative(path.parent) for path in made}))}")
    return parts


def _only_seeds(jobs: Labelled) -> bool:
    return all(label in ("", f"seed={run.config.seed.value}") for label, run in jobs)


def _by_run(jobs: Labelled, rows: Rows, beside: Rows) -> Table:
    """Tabulate the runs, with the size and the score of every phase; those of ``beside`` in brackets."""
    names = overview.usual_columns(frame_of(rows.values()))
    names = [name for name in names if not name.endswith(".count") or f"{name[:-5]}t" not in names]
    lines = []
    for label, run in jobs:
        if run.id in rows and (run.id in beside or not beside):
            head = {"seed": run.config.seed.value} if _only_seeds(jobs) else {"run": label}
            values = [_value(name, rows[run.id].get(name)) for name in names]
            if beside:
                theirs = (_value(name, beside[run.id].get(name)) for name in names)
                values = [f"{text} ({other})" for text, other in zip(values, theirs, strict=True)]
            titles = (name.replace(".truncated", "").replace(".", " ") for name in names)
            lines.append(head | dict(zip(titles, values, strict=True)))
    return overview.table_of(lines, room())


def _value(name: str, value: float | None) -> str:
    if value is None:
        return "--"
    return f"{value:.2e}" if name.endswith("mse") else f"{value:.2f}" if isinstance(value, float) else str(value)


def _paper(jobs: Labelled, own: Rows) -> list[str | Table]:
    """Tabulate the rows of the paper that have the runs of a command: yours, the committed and the published values.

    Of several rows with the same runs, it is those of the fewest seeds that are no fewer than the command's.
    """
    if all(run.config.profile != "full" for _, run in jobs):  # the paper has no smoke runs
        return []
    from experiments.analysis import published  # imported here: only full runs need the paper's tables
    from experiments.analysis.collect import Reader
    from experiments.analysis.selection import keys_of
    from experiments.studies import macros

    if not published.PATH.is_file():  # a copy of the sources alone
        return []
    asked: dict[str, list[Run]] = {}
    for _, run in jobs:
        asked.setdefault(_settings(identity_keys(run.config)), []).append(run)
    tasks = {run.config.task.name for _, run in jobs}
    same: dict[str, list[tuple[PaperTable, Row]]] = {}
    for table, row in ((each, row) for each in macros() for row in each.rows):
        runs = row.runs
        if runs.about or dict(runs.choices).get("task", DEFAULT_CHOICES["task"]) not in tasks:
            continue
        if (key := _settings(keys_of(runs, 0))) in asked:
            same.setdefault(key, []).append((table, row))
    lines: list[FlatRecord] = []
    committed = Reader(Store(RESULTS))
    for key, rows in same.items():
        seeds = [run.config.seed.value for run in asked[key] if run.id in own or not own]
        enough = min((row.seeds for _, row in rows), key=lambda n: (n < len(seeds), n))
        mine = Reader(Store(asked[key][0].root), allow_dirty=True) if own else None
        lines += _paper_lines([each for each in rows if each[1].seeds == enough], seeds, mine, committed)
    if not lines:
        return []
    if len(titles := {line["row"] for line in lines}) == 1:
        lines = [{name: text for name, text in line.items() if name != "row"} for line in lines]
    about = f"the paper's row {next(iter(titles))}" if len(titles) == 1 else "the paper's rows"
    about += " (mean ± sd over seeds)" if any("±" in str(line) for line in lines) else ""
    alike: dict[tuple[str, ...], list[FlatRecord]] = {}
    for line in lines:  # the columns name the numbers of seeds, in which rows may differ
        alike.setdefault(tuple(line), []).append(line)
    return [f"{about}:", *(overview.table_of(some, room()) for some in alike.values())]


def _paper_lines(
    rows: Iterable[tuple[PaperTable, Row]], seeds: Sequence[int], mine: Reader | None, committed: Reader
) -> list[FlatRecord]:
    """Return a line for each quantity of these rows, which have the same runs; the one that says most of it."""
    from experiments.analysis import published
    from experiments.analysis.reduce import reduce_cell
    from experiments.analysis.terminal import tex_to_text

    lines: dict[str, FlatRecord] = {}
    title = ""
    for table, row in rows:
        title = title or tex_to_text(row.title or table.title)
        for column in table.columns:
            paper = published.value_of(table, row, column.key)
            if paper is None:
                continue
            line: FlatRecord = {"row": title, "number": tex_to_text(column.title)}
            if mine is not None:
                cell = reduce_cell(mine, table, row, column.key, row.runs.with_seeds(seeds))
                if cell.value is None:
                    continue  # it needs runs that the command does not have
                line[f"yours ({counted(len(seeds), 'seed')})"] = tex_to_text(cell.text)
            cell = reduce_cell(committed, table, row, column.key)
            line[f"committed ({cell.wanted})"] = tex_to_text(cell.printed)
            line[f"published ({row.seeds})"] = text = tex_to_text(paper[0].render(paper[1]))
            before = lines.get(table.quantity(row, column.key))
            if before is None or len(before[f"published ({row.seeds})"]) < len(text):
                lines[table.quantity(row, column.key)] = line
    return list(lines.values())


def _settings(keys: Mapping[str, Any]) -> str:
    """Return the settings that a run has in common with its other seeds."""
    return repr({key: value for key, value in sorted(keys.items()) if key != "seed.value"})
