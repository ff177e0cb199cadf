"""Inject every kind of fault, count the survivors, and write the table of docs/reliability.md.

python scripts/fault_table.py                 # all kinds, half an hour on a free core
python scripts/fault_table.py signals         # one kind, without writing
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.paths import ROOT
from experiments.store.provenance import code, machine, packages

FAULTS = ROOT / "tests" / "support" / "faults.py"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: written by scripts/fault_table.py -->", "<!-- end of faults -->"


def titles() -> dict[str, str]:
    """Return the faults and their descriptions, in order, without importing torch."""
    return dict(re.findall(r'^    "(\w+)": Fault\(\s*"(.*?)"', FAULTS.read_text(), re.MULTILINE))


def inject(name: str) -> dict[str, object]:
    """Inject one kind of fault in a separate process; return its counts.

    Raises:
        RuntimeError: if the fault could not be injected; with the output of the process.
    """
    with tempfile.TemporaryDirectory() as folder:
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, str(FAULTS), name, folder], capture_output=True, text=True, env=one_thread, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{name}: status {done.returncode}\n{done.stderr}")
    count: dict[str, object] = json.loads(done.stdout)[name]
    return count


def table(counts: dict[str, dict[str, object]]) -> str:
    """Format the rows, and the machine and versions that they come from."""
    rows = ["| fault | tried | survived | lost | survived means |", "| --- | ---: | ---: | ---: | --- |"]
    for name, title in titles().items():
        if name in counts:
            count = counts[name]
            rows.append(f"| {title} | {count['tried']} | {count['survived']} | {count['lost']} | {count['means']} |")
    where = f"{machine()['cpu']}, {machine()['cores']} cores, {machine()['system']}, torch {packages()['torch']}"
    return "\n".join([*rows, "", f"Commit {code().commit}; {where}."])


def write(counts: dict[str, dict[str, object]]) -> None:
    """Write the table into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(counts)}\n{END}{after}")


def main() -> int:
    """Run the script; return 0 if everything survived and nothing was lost."""
    known = titles()
    names = sys.argv[1:] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such fault: {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    counts = {}
    for name in names:
        counts[name] = inject(name)
        print(known[name], counts[name], flush=True)
    if not sys.argv[1:]:
        write(counts)
    return 0 if all((count["tried"], 0) == (count["survived"], count["lost"]) for count in counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
