"""Write ``paper/report.html`` from the records of the runs: the report as one page that needs no other file.

python scripts/build_report_page.py                              # records of results/
python scripts/build_report_page.py --results DIR --output FILE
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.analysis import published
from experiments.analysis.collect import Reader
from experiments.report import content
from experiments.store.records import Store

ROOT = Path(__file__).resolve().parent.parent


def main(argv: list[str] | None = None) -> int:
    """Run the script; the exit status: 1 if a package is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the records")
    parser.add_argument("--output", type=Path, default=ROOT / "paper" / "report.html", help="file to write")
    arguments = parser.parse_args(argv)
    try:
        from experiments import page
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        print("the page needs Jinja2: pip install -e '.[paper]'", file=sys.stderr)
        return 1
    reader = Reader(Store(arguments.results))
    size = page.write(content.build(reader, published.load()), reader, arguments.output)
    print(f"{arguments.output}: {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
