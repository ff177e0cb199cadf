"""Measure the overhead of a run in a packed multirun: composing, checking, folder, claim, record.

    python benchmarks/bench_overhead.py [--quick] [--rounds N]

The same command runs with few and with many seeds, in separate processes. The overhead per run is the difference of
the two times, minus the time inside the phases (drawing, training, evaluating), over the difference in runs. The rival
is the time that Hydra needs to compose one such job.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from timing import measure, options

FEW = 10


def command(runs: int, folder: Path) -> dict[str, float]:
    """Return the seconds of a command that trains ``runs`` seeds for one step, and of its phases."""
    from experiments.cli import app
    from experiments.runs import phases

    inside, phase = 0.0, phases.fit_phase

    def clocked(*args: Any, **settings: Any) -> Any:
        nonlocal inside
        began = time.perf_counter()
        try:
            return phase(*args, **settings)
        finally:
            inside += time.perf_counter() - began

    phases.fit_phase = clocked
    line = ["task=regression1d", "gate=mlp", "phases=[grown]", "train.steps=1", f"seed=0..{runs - 1}", "progress=never"]
    folders = [f"results={folder}/results", f"hydra.sweep.dir={folder}/multirun"]
    sys.argv = ["run.py"]
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        status = app.main([*line, *folders])
    whole = time.perf_counter() - began
    found = len(list((folder / "results").rglob("*.json")))
    if status != 0 or found != runs:
        raise RuntimeError(f"the command ended with status {status} and {found} of {runs} records")
    return {"whole": whole, "inside": inside}


def hydra_compose(jobs: int) -> dict[str, float]:
    """Return the seconds that Hydra needs to compose ``jobs`` jobs."""
    from hydra import compose, initialize_config_dir

    from experiments.core.paths import CONF

    with initialize_config_dir(str(CONF), version_base="1.3"):
        compose("config", ["task=regression1d", "gate=mlp"])
        began = time.perf_counter()
        for seed in range(jobs):
            compose("config", ["task=regression1d", "gate=mlp", f"seed.value={seed}", "train.steps=1"])
        return {"whole": time.perf_counter() - began, "inside": 0.0}


def measured(request: dict[str, Any], ready: Callable[[], None]) -> dict[str, float]:
    """Measure in one process."""
    ready()
    if request["what"] == "hydra":
        return hydra_compose(request["runs"])
    with tempfile.TemporaryDirectory() as folder:
        return command(request["runs"], Path(folder))


def bench(many: int, rounds: int) -> tuple[float, float, float]:
    """Return median milliseconds per run: composition by Hydra, overhead of the suite, whole command."""
    hydra, own, whole = [], [], []
    for _ in range(rounds):
        hydra.append(measure(__file__, {"what": "hydra", "runs": 10}, 1, 1)["whole"] / 10)
        few, all_ = (measure(__file__, {"what": "command", "runs": n}, 1, 1) for n in (FEW, many))
        whole.append((all_["whole"] - few["whole"]) / (many - FEW))
        own.append(whole[-1] - (all_["inside"] - few["inside"]) / (many - FEW))
    return (1e3 * statistics.median(hydra), 1e3 * statistics.median(own), 1e3 * statistics.median(whole))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    given = options("What a run of a packed multirun costs beside the training itself.", arguments, measured)
    if given is None:
        return
    hydra, own, whole = bench(30 if given.quick else 410, given.rounds)
    print("a run of a packed multirun, 1D study, one training step")
    print(f"  {'Hydra composes one job':44} {hydra:7.1f} ms")
    print(f"  {'this suite beside training: all that a run needs':44} {own:7.1f} ms  {hydra / own:.1f} times as fast")
    print(f"  {'with drawing, one step and evaluating':44} {whole:7.1f} ms", flush=True)


if __name__ == "__main__":
    main()
