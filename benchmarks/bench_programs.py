"""Time whole studies, from the command to the last record.

    python benchmarks/bench_programs.py [STUDY ...] [--device cuda] [--results DIR] [--data-root DIR]

Each study is one call of scripts/sweep.py in a separate process, so start, loading, compilation, scoring and records
count. The default studies are figure 2 (500 prices at 25,000 steps), the 1D baseline (fifty seeds), and table 8 (120
trainings). If the folder already has some of the records, only the rest is trained, and the table marks the time as
invalid. The records are ordinary ones.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed

from experiments.core.paths import ROOT
from experiments.store.provenance import machine
from experiments.store.records import Store
from experiments.studies import STUDIES

USUAL = ("lambda_sweep", "baseline", "vision")


def timed(study: str, given: argparse.Namespace, results: Path) -> tuple[float, int, int]:
    """Return the seconds of the study, and the number of its records before and after.

    Raises:
        RuntimeError: if the sweep failed.
    """
    store = Store(results)
    names = [run.id for run in STUDIES[study].runs(store)]

    def present() -> int:
        there = {path.stem for path in store.paths()}
        return len(there.intersection(names))

    before = present()
    command = [sys.executable, str(ROOT / "scripts" / "sweep.py"), "run", study, "workers=1"]
    command += ["--device", given.device, "--results", str(results)]
    command += ["--data-root", str(given.data_root)] if given.data_root else []
    began = time.monotonic()
    if status := subprocess.run(command, cwd=ROOT).returncode:
        raise RuntimeError(f"{study}: the sweep ended with status {status}")
    return time.monotonic() - began, before, present()


def main(arguments: list[str] | None = None) -> int:
    """Run the studies, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"default: {', '.join(USUAL)}")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--results", type=Path, help="where records go and stay (default: a folder that is removed)")
    parser.add_argument("--data-root", type=Path)
    given = parser.parse_args(arguments)
    studies = given.studies or USUAL
    if unknown := [name for name in studies if name not in STUDIES]:
        parser.error(f"no study is called {', '.join(unknown)}; there are: {', '.join(STUDIES)}")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        results = given.results or Path(scratch) / "results"
        for study in studies:
            seconds, before, after = timed(study, given, results.absolute())
            rows.append(f"  {study:22}{seconds:10.1f}{after - before:9,}{before:9,}")
    print(", ".join(f"{key}: {value}" for key, value in machine().items()))
    print(f"  {'study':22}{'seconds':>10}{'trained':>9}{'before':>9}", *rows, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
