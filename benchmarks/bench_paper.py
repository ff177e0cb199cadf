"""Time `make paper` on 5,000 records of all 1D studies and table rows, and compare with only parsing them.

python benchmarks/bench_paper.py
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import record_samples as samples  # noqa: E402

from experiments.config.schema import branch_phase  # noqa: E402
from experiments.core.config import Config  # noqa: E402
from experiments.methods.fixed import Fixed  # noqa: E402
from experiments.store.provenance import machine  # noqa: E402
from experiments.store.records import Store  # noqa: E402
from experiments.studies import study  # noqa: E402
from scripts import build_figures, build_paper_data, build_report  # noqa: E402


def phases_of(config: Config) -> dict[str, Any]:
    """Make a 1D record of realistic size."""
    seed = config.seed.value
    if isinstance(config.method, Fixed):
        assert isinstance(config.method.count, int)  # a 1D run has one group
        return {"fixed": samples.fixed(config.method.count, (1 + seed) * 1e-6)}
    t, mse = samples.values(seed)
    norms = [1.23456 * 0.5**k for k in range(32)]
    grown = {**samples.grown([t], mse, 2 * mse), "norms": norms, "r": [0.8]}
    return {"grown": grown, **{branch_phase(factor): grown for factor in config.continue_with}}


def curves_of(phases: dict[str, Any]) -> bytes:
    """Pack the curves of a run once. All runs with these phases share the bytes, because packing is slow."""
    import numpy as np

    packed = io.BytesIO()
    courses = samples.curves(300)
    parts: dict[str, Any] = {name.replace("grown", phase): each for phase in phases for name, each in courses.items()}
    np.savez_compressed(packed, **parts)
    return packed.getvalue()


def write_records(results: Path) -> int:
    """Write records of all 1D studies, with curves, and one per run of a table; return their number."""
    store = Store(results)
    samples.fill(store)
    packed: dict[tuple[str, ...], bytes] = {}
    for run in study("one_d").runs(store):
        phases = phases_of(run.config)
        path = store.path(run.id)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(samples.record(run.config, phases), indent=1))
        kind = tuple(phases)
        packed.setdefault(kind, curves_of(phases))
        store.curves_path(run.id).write_bytes(packed[kind])
    return sum(1 for _ in results.rglob("*.json"))


def parse_records(results: Path) -> None:
    """Parse every record and do nothing else: the lower bound."""
    for path in results.rglob("*.json"):
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
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, {here['system']}")
    with tempfile.TemporaryDirectory() as folder:
        results, paper = Path(folder) / "results", Path(folder) / "paper"
        paper.mkdir()
        count = write_records(results)
        print(f"{count:,} records\n{'':44} {'s':>7} {'CPU s':>7} {'x floor':>7}")
        floor = timed("the floor: parse every record", lambda: parse_records(results))
        given, output = f"--results={results}", f"--output={paper}"
        data = f"--output={paper / 'data_generated.tex'}"
        figures = f"--output={paper / 'figures'}"
        timed("tables (build_paper_data.py)", lambda: build_paper_data.main([given, data]), floor)
        timed("figures, all drawn (build_figures.py)", lambda: build_figures.main([given, figures]), floor)
        timed("figures, nothing changed", lambda: build_figures.main([given, figures]), floor)
        timed("report (build_report.py)", lambda: build_report.main([given, output]), floor)
        print(f"the page: {(paper / 'report.html').stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
