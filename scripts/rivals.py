"""Print the tables of the comparison with rivals, from the records of its study.

    python scripts/rivals.py [--results FOLDER] [--scale small] [--page]

``--page`` also writes the table and the figure to docs/benchmarks.md.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.paths import ROOT
from experiments.studies import rivals


def main(arguments: list[str] | None = None) -> None:
    """Print the tables of one scale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=rivals.FOLDER, help="folder of the records")
    parser.add_argument("--scale", choices=("full", "small"), default="full", help="usual lengths, or short ones")
    parser.add_argument("--page", action="store_true", help="write the table and the figure to docs/")
    given = parser.parse_args(arguments)
    found = rivals.read(given.results)
    text = rivals.tables(found, given.scale)
    print(text)
    if given.page:
        from experiments.report.drawing.rivals import draw  # it needs matplotlib

        page = ROOT / "docs" / "benchmarks.md"
        begin, end = (f"<!-- rivals {given.scale}: {word} -->" for word in ("begin", "end"))
        before, _, rest = page.read_text().partition(begin)
        page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}")
        draw(found, given.scale, page.with_name(f"rivals_{given.scale}.svg"))


if __name__ == "__main__":
    main()
