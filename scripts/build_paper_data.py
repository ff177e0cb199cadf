r"""Write ``paper/data_generated.tex``, all 22 macros of the paper, from the records of the runs. No torch is needed.

python scripts/build_paper_data.py                              # a number where a row is complete, else --
python scripts/build_paper_data.py --strict                     # status 1 and a list while anything is missing
python scripts/build_paper_data.py --explain datafourbody.baseline.t
python scripts/build_paper_data.py --table cora                 # beside the published values, in the terminal
python scripts/build_paper_data.py --table 4                    # the same for a table of the paper, or `all`
python scripts/build_paper_data.py --table datafourbody         # the same for one macro
python scripts/build_paper_data.py --figure 2                   # what the paper says of a figure, and our verdicts
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse

from experiments.analysis.build import from_cells, partial_rows, problems_of, reduce_all
from experiments.analysis.collect import Reader
from experiments.analysis.reduce import Cell
from experiments.cli.pipes import exit_with
from experiments.core.blocks import printable
from experiments.core.paths import RESULTS, folder_of_records, paper_folder
from experiments.store.records import Store
from experiments.studies import figure_of, macro, macros, tables_of
from experiments.tasks import GATES_OF_TASK
from ngn.files import remove_stale_files, write_atomically


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=folder_of_records, default=RESULTS, help="folder of the records (results/)")
    parser.add_argument(
        "--output", type=Path, help="file to write (default: paper/data_generated.tex; of other records RESULTS-paper/)"
    )
    parser.add_argument("--strict", action="store_true", help="write nothing and fail unless every number is there")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--explain", metavar="MACRO[.row[.column]]", help="print records and arithmetic; write nothing")
    what.add_argument("--table", metavar="TASK|NUMBER|MACRO|all", help="print a comparison; write nothing")
    what.add_argument("--figure", metavar="NUMBER", type=int, help="print what is said of a figure; write nothing")
    return parser


def _explain(reader: Reader, name: str) -> int:
    from experiments.analysis.build import explain, find

    print("\n\n".join(explain(reader, *cell) for cell in find(name, macro)))
    return 0


def _table(reader: Reader, name: str) -> int:
    from rich.console import Console

    from experiments.analysis.compare import compare_all
    from experiments.analysis.terminal import print_problems, rich_table, summary

    task = name if name in GATES_OF_TASK else None
    numbered = tables_of(int(name)) if name.isdecimal() else ()
    tables = macros() if task or name == "all" else numbered or (macro(name.lstrip("\\")),)
    items = compare_all(reader, tables, task, macros())
    console = Console()
    for table in tables:
        shown = [item for item in items if item.table is table]
        if shown:
            console.print(rich_table(shown, f"{table.title} (\\{table.name})"))
            for note in reader.data_notes(run_id for item in shown for run_id in item.cell.run_ids):
                console.print(printable(note), style="yellow", highlight=False, markup=False)
    console.print(summary(items), highlight=False)
    refused = dict.fromkeys(p for item in items for p in item.cell.problems if p.refused or p.kind == "diverged")
    print_problems(refused, console)
    return 0


def _figure(reader: Reader, number: int) -> int:
    """Print the statements about a figure of the paper with our verdicts, and the command that draws it."""
    from experiments.analysis.compare import compare_all
    from experiments.studies import judge_all

    name = figure_of(number)
    items = compare_all(reader, macros())
    place = f"figure {number}"
    for claim in judge_all(reader, items):
        if place in claim.where.split(", "):
            print(f"{claim.word}: {claim.text}")
            for finding in claim.findings:
                print(f"    {finding.text}")
    print(f"draw it: python scripts/build_figures.py --only {name}")
    return 0


def _report(cells: dict[str, Cell], strict: bool) -> None:
    for problem, names in problems_of(cells):
        if strict or problem.refused:
            concerned = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            head = "" if strict else "warning: skipped: "
            print(f"{head}{problem.kind}: {problem} [{concerned}]", file=sys.stderr)
    for row, (n, wanted) in partial_rows(cells).items():
        print(f"{'' if strict else 'warning: not printed: '}{row}: {n} of {wanted} seeds", file=sys.stderr)


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if ``--strict`` finds a missing or refused record, 2 for a wrong name, else 0."""
    arguments = _parser().parse_args(argv)
    reader = Reader(Store(arguments.results))
    try:
        if arguments.explain:
            return _explain(reader, arguments.explain)
        if arguments.table:
            return _table(reader, arguments.table)
        if arguments.figure is not None:
            return _figure(reader, arguments.figure)
    except KeyError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    cells = reduce_all(reader, macros())
    printed = sum(cell.complete for cell in cells.values())
    _report(cells, arguments.strict)
    if arguments.strict and printed < len(cells):
        print(f"{len(cells) - printed} of {len(cells)} numbers are missing; nothing was written", file=sys.stderr)
        return 1
    output = arguments.output or paper_folder(arguments.results) / "data_generated.tex"
    remove_stale_files(output.parent)
    write_atomically(output, from_cells(macros(), cells, reader).encode(), replace=True)
    print(f"{output}: {printed} of {len(cells)} numbers, -- for the others")
    return 0


if __name__ == "__main__":
    exit_with(main)
