"""Draw the paper's figures from records: a PDF and a PNG each. Needs matplotlib, not torch.

    python scripts/build_figures.py                                   # records of results/, into paper/figures
    python scripts/build_figures.py --results DIR --output DIR figure1
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import yaml

from experiments.collect import Reader
from experiments.figures import FIGURES
from ngn.compose import compose
from ngn.records import Store

ROOT = Path(__file__).resolve().parent.parent


def _key_value(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"'{text}' is not of the form KEY=VALUE")
    return key, yaml.safe_load(value)


def main(argv: list[str] | None = None) -> int:
    """Run the script; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the records")
    parser.add_argument("--output", type=Path, default=ROOT / "paper" / "figures", help="folder of the figures")
    parser.add_argument("--dirty", action="store_true", help="also draw records of uncommitted code (a look, no paper)")
    parser.add_argument(
        "--stand-in",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="draw runs that differ in this key, such as train.steps=2000; the figure says so",
    )
    parser.add_argument("names", nargs="*", metavar="figure", help=f"which ones: {', '.join(FIGURES)} (default: all)")
    arguments = parser.parse_args(argv)
    try:
        overrides = dict(_key_value(item) for item in arguments.stand_in)
        compose({}, overrides)
    except (ValueError, yaml.YAMLError) as error:
        print(f"--stand-in: {error}", file=sys.stderr)
        return 2
    unknown = [name for name in arguments.names if name not in FIGURES]
    if unknown:
        print(f"no such figure: {', '.join(unknown)}; there are: {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    try:
        from experiments.figures import style
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print("figures need matplotlib: pip install -e '.[paper]'", file=sys.stderr)
        return 1
    reader = Reader(Store(arguments.results), allow_dirty=arguments.dirty)
    for name in arguments.names or FIGURES:
        for path in style.save(FIGURES[name](reader, overrides), arguments.output, name):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
