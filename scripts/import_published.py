"""Read the published ``data_generated.tex`` of the paper into ``paper/published.json``.

python scripts/import_published.py FILE
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse
import json

from experiments.analysis import published
from experiments.cli.pipes import exit_with
from experiments.tables import MACROS
from ngn.files import write_atomically

ABOUT = (
    "Published values of the paper's data_generated.tex, for comparison only. Each cell: the printed text, and its "
    "numbers by slot (a statistic, or quantity.statistic). Outcomes of pruning back are 2 (yes), 1 (partial), 0 (no). "
    "One cell is one value; labels and dashes are none. Made by scripts/import_published.py."
)


def main(argv: list[str] | None = None) -> int:
    """Run the script; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the published data_generated.tex")
    parser.add_argument("--output", type=Path, default=published.PATH)
    arguments = parser.parse_args(argv)
    try:
        values = published.parse(arguments.file.read_text(), MACROS)
    except (OSError, published.PublishedError) as error:
        print(f"{arguments.file}: {error}", file=sys.stderr)
        return 1
    bodies, numbers = published.count(values, MACROS)
    content = {"about": ABOUT, "count": {"table values": bodies, "numbers": numbers}, "values": values}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_atomically(arguments.output, text.encode(), replace=True)
    print(f"{bodies} values in table bodies and {numbers} numbers")
    return 0


if __name__ == "__main__":
    exit_with(main)
