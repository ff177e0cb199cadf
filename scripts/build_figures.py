"""Draw the paper's figures from records, one SVG each. This needs matplotlib, not torch.

    python scripts/build_figures.py                              # records of results/, into paper/figures
    python scripts/build_figures.py --only figure2 figure3
    python scripts/build_figures.py --results DIR --output DIR --stand-in train.steps=2000

The same records give the same bytes. A figure without records says "not run"; a figure with missing records says how
many it has.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse
from typing import Any

from experiments.analysis.collect import Reader
from experiments.analysis.figures import Data
from experiments.cli.pipes import exit_with
from experiments.config.compose import compose, nearest
from experiments.config.messages import parse_value
from experiments.core.blocks import ConfigError
from experiments.core.paths import RESULTS, folder_of_records, paper_folder
from experiments.store.records import Store
from experiments.studies import FIGURES
from ngn.files import remove_stale_files


def _key_value(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign:
        raise ValueError(f"'{text}' is not of the form KEY=VALUE; type for example train.steps=2000")
    return key, parse_value(value)


def _parser() -> argparse.ArgumentParser:
    figures = "\n".join(f"  {name:22} {spec.title}" for name, spec in FIGURES.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"figures:\n{figures}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", metavar="FIGURE", help="names of figures from the list below (default: all)"
    )
    parser.add_argument("--results", type=folder_of_records, default=RESULTS, help="folder of the records")
    parser.add_argument(
        "--output",
        type=Path,
        help="folder of the figures (default: paper/figures, of other records RESULTS-paper/figures)",
    )
    parser.add_argument(
        "--dirty", action="store_true", help="also draw records of uncommitted code (for inspection only)"
    )
    parser.add_argument(
        "--stand-in",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="draw runs that differ in this key, such as train.steps=2000; the figure says so",
    )
    return parser


def _state(data: Data) -> str:
    if data.empty:
        return "not run"
    return f"{data.found} runs" if data.found == len(data.runs) else f"{data.found} of {len(data.runs)} runs"


def main(argv: list[str] | None = None) -> int:
    """Run the script; return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        overrides = dict(_key_value(item) for item in arguments.stand_in)
        compose({}, overrides)
    except ValueError as error:
        print(f"--stand-in: {error}", file=sys.stderr)
        return 2
    names = arguments.only or list(FIGURES)
    for name in names:
        if name not in FIGURES:
            hint = nearest(name, list(FIGURES))
            print(f"no figure '{name}'.{hint} The figures are: {', '.join(FIGURES)}", file=sys.stderr)
            return 2
    from experiments.report.drawing import style  # imported here: a wrong name needs no matplotlib

    output = arguments.output or paper_folder(arguments.results) / "figures"
    remove_stale_files(output)
    reader = Reader(Store(arguments.results), allow_dirty=arguments.dirty)
    status = 0
    for name in names:
        try:
            data = FIGURES[name].data(reader, overrides)
        except ConfigError as error:
            print(f"{name}: not drawn, its runs cannot have this stand-in: {error}", file=sys.stderr)
            status = 2
            continue
        path = style.save(style.draw(FIGURES[name], data), output, name)
        print(f"{name}: drawn ({_state(data)}): {path}", flush=True)
    return status


if __name__ == "__main__":
    exit_with(main)
