"""Time plan and status of a study with 10,000 jobs in a folder of 100,000 records.

python benchmarks/bench_sweeps.py [--records 100000] [--runs 10000]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from record_samples import grown, record  # noqa: E402
from timing import seconds  # noqa: E402

from experiments.analysis.selection import Selection  # noqa: E402
from experiments.runs.host import peak_mib  # noqa: E402
from experiments.store.records import check  # noqa: E402
from experiments.studies import STUDIES  # noqa: E402
from experiments.studies.model import Study  # noqa: E402
from scripts import sweep  # noqa: E402

PHASES = {"grown": grown([2.0], 1e-3, 1e-3)}


def write_records(results: Path, records: int, runs: int) -> None:
    """Write records of half of the study's runs, and others up to ``records``, of realistic size."""
    folder = results / "regression1d"
    folder.mkdir(parents=True)
    study = list(STUDIES["scale"].runs())
    for n, run in enumerate(study[: runs // 2]):
        made = record(run.config, PHASES)
        if n == 0:
            check(made, run.id)
        (folder / f"{run.id}.json").write_text(json.dumps(made, indent=1))
    text = (folder / f"{study[0].id}.json").read_text()
    for n in range(records - runs // 2):
        (folder / f"regression1d-mlp-ngn-s{n}-other{n:06d}.json").write_text(text)


def timed(title: str, work: Callable[[], object]) -> None:
    """Run it; print the time and the peak memory."""
    print(f"{title}: {seconds(work, time.perf_counter):.1f} s, {peak_mib():.0f} MiB at the peak", flush=True)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=10_000)
    given = parser.parse_args()
    choices = {"task": "regression1d", "gate": "mlp"}
    made = [
        Selection.of(choices, {"schedule.lambda0": 1e-6 * (1 + n)}, range(100))
        for n in range(max(1, given.runs // 100))
    ]
    STUDIES["scale"] = Study("scale", "a study to measure with", lambda: made)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        timed(f"writing {given.records:,} records", lambda: write_records(results, given.records, given.runs))
        timed("plan", lambda: sweep.main(["plan", "scale", f"--results={results}"]))
        timed("status", lambda: sweep.main(["status", "scale", f"--results={results}"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
