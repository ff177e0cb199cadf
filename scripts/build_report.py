"""Write the report from records: ``report.html``, one page that needs no other file.

    python scripts/build_report.py                              # from results/, into paper/
    python scripts/build_report.py --results DIR --output DIR   # from and to other folders
    python scripts/build_report.py --docs docs                  # also the pages of docs/ that are made from records
    python scripts/build_report.py --results DIR --dirty        # also records of uncommitted code and of plug-ins

``make paper`` runs the form with ``--docs``.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse

from experiments.analysis.collect import Reader
from experiments.cli.pipes import exit_with
from experiments.core.blocks import ConfigError
from experiments.core.paths import RESULTS, folder_of_records, paper_folder
from experiments.report.content import build_content
from experiments.store.records import Store
from ngn.files import remove_stale_files, write_atomically


def main(argv: list[str] | None = None) -> int:
    """Run the script; the exit status is 1 if a figure names a section that does not exist."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=folder_of_records, default=RESULTS, help="folder of the records (results/)")
    parser.add_argument(
        "--output", type=Path, help="folder of the report (default: paper/; of other records RESULTS-paper/)"
    )
    parser.add_argument("--docs", type=Path, help="also write the pages of the documentation to this folder")
    parser.add_argument(
        "--dirty",
        action="store_true",
        help="also use records of uncommitted code or of plug-ins (for inspection only; the page says so)",
    )
    arguments = parser.parse_args(argv)
    if arguments.dirty and arguments.docs:
        parser.error("--docs writes pages that are committed: leave --dirty out")
    out: Path = arguments.output or paper_folder(arguments.results)
    from experiments.report import pages  # imported here: the help needs no extra

    reader = Reader(Store(arguments.results), allow_dirty=arguments.dirty)
    try:
        report = build_content(reader)
    except ConfigError as fault:
        print(fault, file=sys.stderr)
        return 1
    for problem, cells in report.problems:
        print(f"warning: skipped: {problem.kind}: {problem} [{len(cells)} cells]", file=sys.stderr)
    if any(problem.kind == "dirty" for problem, _ in report.problems):
        print("add --dirty to use records of uncommitted code and of plug-ins", file=sys.stderr)
    remove_stale_files(out)
    if arguments.docs:
        remove_stale_files(arguments.docs)
        for name, render in pages.PAGES.items():
            write_atomically(arguments.docs / name, render(report).encode(), replace=True)
    write_atomically(out / "report.html", pages.render(report, reader).encode(), replace=True)
    counts = ", ".join(f"{word} {number}" for word, number in sorted(report.counts.items()))
    print(f"{out / 'report.html'}: {counts}")
    return 0


if __name__ == "__main__":
    exit_with(main)
