"""Fetch data sets, check existing ones, or adopt substitutes.

    python scripts/fetch_data.py                        # the images and graphs
    python scripts/fetch_data.py smollm2 wikisql gsm8k squad wikitext2
    python scripts/fetch_data.py mnist cora --data-root DIR
    python scripts/fetch_data.py --adopt cifar10 --data-root DIR --provenance "where the files come from"

Without --data-root, $NGN_DATA or the suite's cache folder is used. docs/data.md describes the files.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse
import time

from experiments.cli.pipes import exit_with
from experiments.data import DataError, data_root, sets
from experiments.data.fetch import fetch


class Bar:
    """Show progress on stderr: an updated line on a terminal, elsewhere one line per tenth of a file."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.last: tuple[str, int] = ("", -1)
        self.shown = 0.0

    def __call__(self, name: str, have: int, total: int | None) -> None:
        share = f"{100 * have / total:3.0f} % of {total / 1e6:.1f} MB" if total else f"{have / 1e6:.1f} MB"
        if self.terminal:
            now, done = time.monotonic(), have == total
            if done or now - self.shown > 0.1:
                self.shown = now
                print(f"\r{name}: {share}   ", end="\n" if done else "", file=sys.stderr, flush=True)
            return
        step = (name, 10 * have // total if total else have // 10_000_000)
        if step != self.last:
            self.last = step
            print(f"{name}: {share}", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the script; return 0 if all data are present and checked, 1 if not, 2 for a wrong command, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"data sets: {', '.join(sets.NAMES)} (default: {', '.join(sets.USUAL)})",
    )
    parser.add_argument("--data-root", metavar="DIR", help="folder of the data sets")
    parser.add_argument("--adopt", choices=sets.NAMES, metavar="NAME", help="write a manifest of the files there")
    parser.add_argument("--provenance", metavar="TEXT", help="with --adopt: where the files come from")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in sets.NAMES]
    if unknown:
        parser.error(f"no data set {unknown[0]!r}; there are: {', '.join(sets.NAMES)}")
    if (given.adopt is None) != (given.provenance is None):
        parser.error("--adopt NAME and --provenance TEXT belong together")
    if given.adopt and given.names:
        parser.error("--adopt takes one data set and fetches nothing; leave the other names out")
    root = data_root(given.data_root)
    try:
        if given.adopt:
            print(f"{given.adopt}: wrote {sets.adopt(given.adopt, root, given.provenance)}")
            return 0
    except DataError as fault:
        print(fault, file=sys.stderr)
        return 1
    failed = False
    for name in given.names or sets.USUAL:
        try:
            info, fetched = fetch(name, root, sets.ORIGINS[name], Bar())
        except DataError as fault:
            print(f"{name}: {fault}", file=sys.stderr)
            failed = True
        except KeyboardInterrupt:
            print("\nstopped; the next call goes on with the files that are not there", file=sys.stderr)
            return 130
        else:
            print(f"{name}: {'fetched' if fetched else 'present'} in {root} ({info.provenance})")
    return int(failed)


if __name__ == "__main__":
    exit_with(main)
