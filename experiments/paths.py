"""Where things lie in the checkout."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
RESULTS = ROOT / "results"
"""The committed records."""
SCRATCH = ROOT / "scratch"
"""Everything that is not committed: checkpoints, plans, records of trials."""
