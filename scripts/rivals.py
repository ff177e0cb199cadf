"""Print the tables of the comparison with rivals, from the records of its study.

python scripts/rivals.py [--results FOLDER] [--scale small] [--figure docs/rivals_small.svg]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse

from experiments.cli.pipes import exit_with
from experiments.core.paths import folder_of_records
from experiments.studies import front, rivals


def main(arguments: list[str] | None = None) -> int:
    """Print the tables of one scale; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=folder_of_records, default=rivals.FOLDER, help="folder of the records")
    meaning = "usual lengths, short ones, or one training of all sizes"
    parser.add_argument("--scale", choices=("full", "small", "front"), default="full", help=meaning)
    parser.add_argument("--figure", type=Path, help="also draw the scores against the costs, as an SVG file")
    parser.add_argument("--few", action="store_true", help="draw only one training, and what it replaces")
    given = parser.parse_args(arguments)
    results = rivals.read(given.results)
    print(rivals.tables(results, given.scale) + front.statements(given.results, given.scale))
    if given.figure:
        from experiments.report.drawing.rivals import draw, few  # it needs matplotlib

        draw(few(results) if given.few else results, given.scale, given.figure)
    return 0


if __name__ == "__main__":
    exit_with(main)
