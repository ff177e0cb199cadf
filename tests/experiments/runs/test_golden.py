"""Golden losses: a change of results must be noticed, and the numerics version of what changed bumped.

Run as a script with ``--update`` it writes the file anew; only together with a bump of the numerics version.
"""

import json
import sys
import tempfile
from pathlib import Path

import pytest

from experiments.config.compose import compose
from experiments.config.numerics import numerics
from experiments.runs import launch, places
from experiments.store.records import Store
from experiments.tasks import GATES_OF_TASK

FILE = Path(__file__).parent / "golden_losses.json"
CASES = [(task, gate, method) for task, gates in GATES_OF_TASK.items() for gate in gates for method in ("ngn", "fixed")]
# The other learners of capacity are compared on the 1D study; the contract test has them on every component.
CASES += [("regression1d", "mlp", method) for method in ("ste", "l0", "awnn", "decay")]


def losses(task, gate, method, folder):
    """Objective of 20 steps and the final boundary of a smoke run."""
    overrides = {"results": str(folder), "progress": "never", "train.steps": 20, "gate.K": 4, "phases": ["grown"]}
    overrides["gate.t0"] = 1e-4  # as in full runs
    if method == "fixed":
        groups = compose({"task": task, "gate": gate}).gate.groups
        overrides["method.count"] = 2 if groups == 1 else [2] * groups
    if method == "awnn":
        overrides["method.width"] = 3.0
    if method == "decay":
        overrides["method.normalise"] = True
    config = compose({"task": task, "gate": gate, "method": method, "profile": "smoke"}, overrides)
    (outcome,) = launch.launch([config])
    curves = Store(folder).curves(outcome.run_id)
    phase = "fixed" if method == "fixed" else "grown"
    t = curves[f"{phase}.t"][:, 0].tolist() if method != "fixed" else []
    return {"numerics": numerics(config), "loss": curves[f"{phase}.loss"].tolist(), "t": t}


@pytest.mark.parametrize(("task", "gate", "method"), CASES)
def test_losses_are_those_of_the_numerics_version(tmp_path, monkeypatch, task, gate, method):
    monkeypatch.setattr(places, "SCRATCH", tmp_path / "scratch")
    golden = json.loads(FILE.read_text())[f"{task}-{gate}-{method}"]
    got = losses(task, gate, method, tmp_path)
    assert got["numerics"] == golden["numerics"], "the numerics version changed: update the golden file with it"
    # Processors round differently, so not to the last bit; any change of settings or arithmetic is far larger.
    assert got["loss"] == pytest.approx(golden["loss"], rel=2e-4, abs=1e-6), (
        "results changed: bump their numerics version"
    )
    assert got["t"] == pytest.approx(golden["t"], rel=1e-3, abs=1e-6), "results changed: bump their numerics version"


if __name__ == "__main__" and sys.argv[1:] == ["--update"]:
    with tempfile.TemporaryDirectory() as folder:
        places.SCRATCH = Path(folder) / "scratch"
        new = {"-".join(case): losses(*case, Path(folder)) for case in CASES}
    FILE.write_text(json.dumps(new, indent=1) + "\n")
