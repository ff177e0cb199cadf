"""Where things lie: in the checkout, and where its output goes."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
RESULTS = ROOT / "results"
"""The committed records, which are those of the suite's own studies: a reference that runs of others leave alone."""
OUTPUT = os.environ.get("NGN_OUTPUT")
"""The one folder that is written to, where the checkout is not: one that is shared, or that cannot be written."""
SCRATCH = Path(OUTPUT).absolute() if OUTPUT else ROOT / "scratch"
"""Everything that is not committed: checkpoints, plans, records of trials."""
RUNS = SCRATCH / "results" if OUTPUT else ROOT / "runs"
"""The records of everybody's own runs."""


def paper_folder(results: Path) -> Path:
    """Where what is built from these records goes: ``paper/``, or for other records a folder beside them."""
    return ROOT / "paper" if results.resolve() == RESULTS else results.absolute().with_name(f"{results.name}-paper")
