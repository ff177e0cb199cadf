"""Time `make paper` on the records in results/, and compare with only parsing them.

python benchmarks/bench_paper.py
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.core.paths import RESULTS
from experiments.store.provenance import machine
from scripts import build_figures, build_paper_data, build_report


def parse_records() -> None:
    """Parse every record and do nothing else: the lower bound."""
    for path in RESULTS.rglob("*.json"):
        json.loads(path.read_bytes())


def processor() -> float:
    """Return the processor seconds of this process and its finished children."""
    return sum(os.times()[:4])


def timed(title: str, work: Callable[[], object], floor: float | None = None) -> float:
    """Run it; print wall seconds, processor seconds, and their ratio to the lower bound."""
    said = io.StringIO()
    wall, cpu = time.perf_counter(), processor()
    with redirect_stdout(said), redirect_stderr(said):
        status = work()
    wall, cpu = time.perf_counter() - wall, processor() - cpu
    if status:
        raise SystemExit(f"{title} ended with status {status}:\n{said.getvalue()}")
    beside = "" if floor is None else f" {cpu / floor:7.1f}"
    print(f"{title:44} {wall:7.1f} {cpu:7.1f}{beside}", flush=True)
    return cpu


def main() -> int:
    """Run the benchmark."""
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, {here['system']}")
    with tempfile.TemporaryDirectory() as folder:
        paper = Path(folder)
        count = sum(1 for _ in RESULTS.rglob("*.json"))
        print(f"{count:,} records\n{'':44} {'s':>7} {'CPU s':>7} {'x floor':>7}")
        floor = timed("the floor: parse every record", parse_records)
        output, figures = f"--output={paper}", f"--output={paper / 'figures'}"
        data = f"--output={paper / 'data_generated.tex'}"
        timed("tables (build_paper_data.py)", lambda: build_paper_data.main([data]), floor)
        timed("figures, all drawn (build_figures.py)", lambda: build_figures.main([figures]), floor)
        timed("figures, nothing changed", lambda: build_figures.main([figures]), floor)
        timed("report (build_report.py)", lambda: build_report.main([output]), floor)
        print(f"the page: {(paper / 'report.html').stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
