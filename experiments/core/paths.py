"""Paths of the checkout and of its output."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
RESULTS = ROOT / "results"
"""The committed records of the suite's own studies. They are a reference, and users' runs do not change them."""
OUTPUT = os.environ.get("NGN_OUTPUT")
"""The folder for all output, for a checkout that is shared or read-only; None writes into the checkout."""
SCRATCH = Path(OUTPUT).absolute() if OUTPUT else ROOT / "scratch"
"""Files that are not committed: checkpoints, plans, records of trials."""
RUNS = SCRATCH / "results" if OUTPUT else ROOT / "runs"
"""The records of users' own runs."""


def folder_of_records(text: str) -> Path:
    """Return the folder that ``--results`` of a script names.

    Raises:
        argparse.ArgumentTypeError: if there is no such folder. Without records every number would be missing.
    """
    if not (folder := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"{text}: no such folder")
    return folder


def paper_folder(results: Path) -> Path:
    """Return the folder for output built from records: ``paper/`` for ``results/``, else one beside the records."""
    return ROOT / "paper" if results.resolve() == RESULTS else results.absolute().with_name(f"{results.name}-paper")
