"""Remove the curve files that no study keeps. Run it before you commit records.

    python scripts/drop_curves.py --dry-run      # only list them
    python scripts/drop_curves.py                # remove them from results/

A study says with ``curves=N`` that the first N seeds of each of its selections keep their curve file. Records stay.
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
from experiments.paths import RESULTS
from experiments.store.records import Store
from experiments.studies import runs_with_curves


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="only list the files")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="folder of the records")
    given = parser.parse_args(argv)
    store = Store(given.results)
    stored, kept = store.with_curves(), runs_with_curves(store)
    dropped = [store.curves_path(name) for name in stored if name not in kept]
    size = sum(path.stat().st_size for path in dropped)
    for path in dropped:
        if given.dry_run:
            print(path)
        else:
            path.unlink()
    done = "would be removed" if given.dry_run else "removed"
    print(f"{len(dropped)} of {len(stored)} curve files ({size / 1e6:.1f} MB) {done}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    exit_with(main)
