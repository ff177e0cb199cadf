"""Print a table of any records: one line per combination of settings, with medians over its runs.

    python scripts/table.py runs --by schedule.lambda0
    python scripts/table.py runs/mnist --by gate.channels --columns grown.count fixed.truncated.accuracy
    python scripts/table.py runs --by schedule.lambda0 --plot prices.png      # and a plot against the first of --by
    python scripts/table.py runs --csv runs.csv                               # and every run with all its numbers
    python scripts/table.py runs --compare method=ngn method=fixed            # the difference of two methods

Without --by, lines are grouped by all settings that differ; those that follow from the task, component, method and
model are only named. Tasks, methods, profiles, data and models are never in one line; other differences within a line
are named. Every record counts, also of changed sources and smoke runs, so use this to inspect your own runs.
scripts/build_paper_data.py makes the paper's tables.

--compare prints the means of the runs of two settings, and their difference with its 95 % interval. If both have the
same seeds, it is Student's interval of the differences seed by seed ("10 pairs"); else Welch's of independent runs
("10, 8"). There a name without a phase, such as truncated.mse, is of the first phase of a run: grown, else fixed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse

from experiments.analysis import overview
from experiments.analysis.frame import frame
from experiments.cli.pipes import exit_with, room, show
from experiments.core.blocks import ConfigError
from experiments.core.paths import RUNS
from ngn.files import write_atomically


def main(argv: list[str] | None = None) -> int:
    """Print the table; return 0, 1 if a file cannot be written, or 2 for records, settings or names that are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", type=Path, default=[RUNS], metavar="DIR", help="folders or records (runs)")
    parser.add_argument("--by", nargs="+", metavar="KEY", help="settings, such as schedule.lambda0, task.name or tag")
    parser.add_argument("--columns", nargs="+", metavar="NUMBER", help="such as grown.t or from_high.soft.mse")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every run to a file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the columns against the first setting")
    parser.add_argument("--compare", nargs=2, metavar="KEY=VALUE", help="two settings, such as method=ngn method=fixed")
    given = parser.parse_args(argv)
    try:
        table = frame(given.places)
        if table.empty:
            raise ConfigError(f"there are no records in {', '.join(map(str, given.places))}")
        if given.compare:
            rows, told = overview.compared(table, given.compare, given.by or (), given.columns or ())
            show(overview.table_of(rows, room()) if rows else "they have no number in common")
            print(told, end="")
            return 0
        by = overview.separated(table, given.by or overview.telling(table))
        found = overview.grouped(table, by, given.columns or overview.usual_columns(table))
        if given.plot and not by:
            raise ConfigError("the runs differ only in their seed: type a setting to plot against, --by KEY")
        if given.plot:
            overview.plot(given.plot, found, table, by[0])
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    show(overview.table_of(found, room()))
    print(f"{overview.notes(table, by)}medians over the runs of each line; {len(table)} runs in all")
    if given.csv:
        content = table.to_csv(index=False)
        if given.csv.exists() and not given.csv.is_file():  # a device, such as /dev/stdout
            given.csv.write_text(content)
        else:
            write_atomically(given.csv, content.encode(), replace=True)
    for file in filter(None, (given.csv, given.plot)):
        print(file)
    return 0


if __name__ == "__main__":
    exit_with(main)
