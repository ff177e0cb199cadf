"""Write the JSON schema of a record, and the tables of docs/records.md, from ``experiments/store/record.py``.

python scripts/describe_records.py      # after a change of that file
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.cli.pipes import exit_with
from experiments.paths import ROOT
from experiments.store import describe


def main() -> int:
    """Run the script; the exit status."""
    for path, text in describe.generated_files(ROOT).items():
        path.write_text(text)
        print(path)
    return 0


if __name__ == "__main__":
    exit_with(main)
