"""Train ten seeds of the 1D study at full length; compare them with our records and the published values.

    python scripts/demo.py [--seeds 0..9] [--steps 25000] [--output scratch/demo]

This takes about two minutes on one core. Records, figures and a ``data_generated.tex`` go to the output folder. An
interrupted demo resumes; a complete one starts again. The suite's records in ``results/`` are only read.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse
import shlex
import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence

from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison, compare_cell, verdict_counts
from experiments.analysis.frame import FlatRecord, record_row
from experiments.analysis.overview import table_of
from experiments.analysis.selection import Selection
from experiments.analysis.terminal import print_problems, rich_table
from experiments.analysis.verdict import AGREES, CANNOT_TELL, DISAGREES
from experiments.cli.pipes import exit_with, print_line, room
from experiments.cli.rewrite import seeds_of
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.core import interrupt
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.interrupt import shut_down
from experiments.core.paths import RESULTS, ROOT
from experiments.store.records import Store
from ngn.files import write_atomically

NOTES = (
    "recorded: our record of the same seed. Other processors round differently: about three of ten counts differ.",
    "calibrated: settings that the paper leaves open were chosen to reproduce this table, so agreement here shows "
    'nothing. "cannot tell": the spread over these seeds is too wide to decide. docs/verdicts.md has the rules.',
)
WORDS = {
    AGREES: ("agrees with the paper", "agree with the paper"),
    DISAGREES: ("disagrees", "disagree"),
    CANNOT_TELL: ("has too wide a spread", "have too wide a spread"),
}


def beside_records(store: Store, configs: Sequence[Config]) -> list[FlatRecord]:
    """Return boundary, count and error of each seed, with the values of the suite's own record."""
    rows = []
    for config in configs:
        row: FlatRecord = {"seed": config.seed.value}
        for name, place in (("", store), ("recorded ", Store(RESULTS))):
            found = {} if (record := place.get(run_id(config))) is None else record_row(record)
            for title, key in (("t", "grown.t"), ("count", "grown.count"), ("truncated MSE", "grown.truncated.mse")):
                row[name + title] = found.get(key)
        rows.append(row)
    return rows


def verdict(rows: Sequence[FlatRecord], items: Sequence[Comparison]) -> str:
    """Say in a sentence how many seeds equal our records, and how many numbers agree with the paper."""
    same, near = (sum(row[x] == row[f"recorded {x}"] for row in rows) for x in ("truncated MSE", "count"))
    how = "have the count of" if same < near else "equal"
    found = verdict_counts(items)
    parts = [f"{found[word]} {said[found[word] != 1]}" for word, said in WORDS.items() if found[word] or word == AGREES]
    return f"{max(same, near)} of {len(rows)} seeds {how} the records; of {len(items)} numbers, {', '.join(parts)}"


def show(store: Store, overrides: Mapping[str, int], seeds: Sequence[int], rows: Sequence[FlatRecord] = ()) -> None:
    """Print a verdict on ``rows``, and the baseline of table 4. Other runs than its own are named as stand-ins."""
    from experiments.studies.schedules import FOUR

    row = FOUR.row("baseline")
    reader = Reader(store, allow_dirty=True)
    selection = Selection.of(dict(row.runs.choices), overrides, seeds)
    name = ", ".join(f"{key}={value}" for key, value in selection.overrides)
    items = [compare_cell(reader, FOUR, row, column, selection, name) for column in FOUR.columns]
    print_line(*([f"{verdict(rows, items)}\n"] if rows else []), rich_table(items, FOUR.title))
    print_problems(dict.fromkeys(problem for item in items for problem in item.cell.problems))


def demo(given: argparse.Namespace, configs: list[Config], overrides: dict[str, int]) -> int:
    """Train, print and draw; return 1 if a run diverged."""
    import build_figures

    from experiments.analysis.build import from_cells, reduce_all
    from experiments.runs.launch import launch
    from experiments.studies import macros

    results = given.output / "results"
    store, seeds = Store(results), [config.seed.value for config in configs]
    if all(store.path(run_id(config)).exists() for config in configs):
        shutil.rmtree(results)
    print_line(f"Training {len(seeds)} seeds of the 1D regression, {given.steps:,} steps each: two minutes on one core")
    print_line("(half a minute more to build the kernel, the first time). Ctrl-C saves; the same command continues.\n")
    began = time.monotonic()
    outcomes = launch(configs)
    print(f"trained in {time.monotonic() - began:.0f} s\n")
    rows, reader, tex = beside_records(store, configs), Reader(store), given.output / "data_generated.tex"
    print_line(table_of(rows, room()), "")
    show(store, overrides, seeds, rows)
    write_atomically(tex, from_cells(macros(), reduce_all(reader, macros()), reader).encode(), replace=True)
    notes = [textwrap.fill(note, min(room(), 100), subsequent_indent="  ") for note in NOTES]
    print("", *notes, f"\nrecords: {results}\ntables:  {tex} (-- for what needs more runs)", sep="\n")
    shown = ["--dirty", "--results", str(results), "--output", str(given.output / "figures")]
    stand_ins = [part for key, value in overrides.items() for part in ("--stand-in", f"{key}={value}")]
    build_figures.main([*shown, *stand_ins, "--only", "figure1"])
    return 1 if any(outcome.status == "diverged" for outcome in outcomes) else 0


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 0, or 1 if a run diverged, 2 for impossible arguments, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0..9")
    parser.add_argument("--steps", type=int, default=25_000, help="fewer than 25,000 steps make the runs stand-ins")
    parser.add_argument("--output", type=Path, default=ROOT / "scratch" / "demo")
    given = parser.parse_args(argv)
    overrides = {} if given.steps == compose().train.steps else {"train.steps": given.steps}
    place = {"results": str(given.output / "results")}
    try:
        configs = [compose({}, {**overrides, **place, "seed.value": seed}) for seed in seeds_of(given.seeds)]
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        with interrupt.handled():
            return demo(given, configs, overrides)
    except KeyboardInterrupt as stopped:
        return shut_down(stopped, shlex.join(["python", *sys.argv]))


if __name__ == "__main__":
    exit_with(main)
