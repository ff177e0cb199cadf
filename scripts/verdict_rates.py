"""Print how often the rule of verdicts is wrong, by simulation, as the table of docs/verdicts.md.

python scripts/verdict_rates.py                   # about a minute
python scripts/verdict_rates.py --trials 200      # seconds, less exact
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse

from experiments.analysis.false_rates import SIZES, rates
from experiments.cli.pipes import exit_with


def main(argv: list[str] | None = None) -> int:
    """Run the script; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="pairs of samples per number (default: %(default)s)")
    arguments = parser.parse_args(argv)
    rows = [rates(statistic, sizes, arguments.trials) for statistic, each in SIZES.items() for sizes in each]
    names = (*rows[0].rejected, *(f"missed, {name}" for name in rows[0].missed))
    print(f"| published | ours, published | {' | '.join(names)} |")
    print(f"| --- | ---: |{' ---: |' * len(names)}")
    for row in rows:
        shares = (*row.rejected.values(), *row.missed.values())
        print(f"| {row.statistic} | {row.sizes[0]}, {row.sizes[1]} | {' | '.join(f'{100 * x:.1f}' for x in shares)} |")
    return 0


if __name__ == "__main__":
    exit_with(main)
