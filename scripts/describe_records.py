"""Write the JSON schema of a record, and the tables of docs/records.md, from ``experiments/store/record.py``.

python scripts/describe_records.py      # after a change of that file
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

from experiments.cli.pipes import exit_with
from experiments.paths import ROOT
from experiments.store import describe
from ngn.files import write_atomically


def main() -> int:
    """Run the script; the exit status."""
    for path, text in describe.generated_files(ROOT).items():
        write_atomically(path, text.encode(), replace=True)
        print(path)
    return 0


if __name__ == "__main__":
    exit_with(main)
