"""Inject every kind of fault, count the survivors, and write the table of docs/reliability.md.

python scripts/fault_table.py                        # all kinds, half an hour on a free core
python scripts/fault_table.py signals                # one kind; the other rows stay
python scripts/fault_table.py --kills 80             # full size: over 1,000 kills and 1,000 damaged files, hours
python scripts/fault_table.py signals --dry-run      # without writing
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse
import json
import os
import re
import subprocess
import tempfile

from experiments.cli.pipes import exit_with
from experiments.core.paths import ROOT
from experiments.store.provenance import code, machine, packages
from ngn.files import write_atomically

FAULTS = ROOT / "tests" / "support" / "faults.py"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: written by scripts/fault_table.py -->", "<!-- end of faults -->"


def titles() -> dict[str, str]:
    """Return the faults and their descriptions, in order, without importing torch."""
    return dict(re.findall(r'^    "(\w+)": Fault\(\s*"(.*?)"', FAULTS.read_text(), re.MULTILINE))


def inject(name: str, kills: int) -> dict[str, object]:
    """Inject one kind of fault in a separate process; return its counts.

    Args:
        kills: number of kills of a kind of fault; other counts are multiples of it.

    Raises:
        RuntimeError: if the fault could not be injected; with the output of the process.

    What was not survived goes to stderr.
    """
    with tempfile.TemporaryDirectory() as folder:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(FAULTS), name, folder, str(kills)]
        done = subprocess.run(command, capture_output=True, text=True, env=one_thread, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: status {done.returncode}\n{done.stderr}")
    count: dict[str, object] = json.loads(done.stdout)[name]
    if (count["tried"], 0) != (count["survived"], count["lost"]):
        print(done.stderr, file=sys.stderr)
    return count


def table(counts: dict[str, dict[str, object]], page: str) -> str:
    """Format the rows: new ones of ``counts``, and the others as they stand on the page."""
    commit = str(code().commit)[:7]
    known = titles()
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith("| ")}
    for name, count in counts.items():
        title = known[name]
        numbers = f"{count['tried']} | {count['survived']} | {count['lost']}"
        rows[title] = f"| {title} | {numbers} | {count['means']} | {commit} |"
    heads = ["| fault | tried | survived | lost | survived means | commit |"]
    heads += ["| --- | ---: | ---: | ---: | --- | --- |"]
    where = f"{machine()['cpu']}, {machine()['cores']} cores, {machine()['system']}, torch {packages()['torch']}"
    return "\n".join([*heads, *(rows[one] for one in known.values() if one in rows), "", f"Newest rows: {where}."])


def write(counts: dict[str, dict[str, object]]) -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    inside, _, after = rest.partition(END)
    write_atomically(PAGE, f"{before}{BEGIN}\n{table(counts, inside)}\n{END}{after}".encode(), replace=True)


def main() -> int:
    """Run the script; return 0 if everything survived and nothing was lost."""
    known = titles()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FAULT", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--kills", type=int, default=20, help="kills of a kind of fault (20)")
    parser.add_argument("--dry-run", action="store_true", help="do not write the table")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in known]
    if unknown:
        parser.error(f"no such fault: {', '.join(unknown)}; there are: {', '.join(known)}")
    counts = {}
    for name in given.names or list(known):
        counts[name] = inject(name, given.kills)
        print(known[name], counts[name], flush=True)
        if not given.dry_run:
            write({name: counts[name]})
    return 0 if all((count["tried"], 0) == (count["survived"], count["lost"]) for count in counts.values()) else 1


if __name__ == "__main__":
    exit_with(main)
