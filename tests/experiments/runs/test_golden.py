"""Golden losses and what computed them: whoever changes them must bump a numerics version.

Another engine, or another form of a kernel, changes only the last bits. A long training can amplify them to another
count. So each case also stores its engine and, for a kernel, a digest of the kernel's code.

Run this file as a script with ``--update`` to write the golden file anew. It refuses if a case differs but its version
does not. Add ``--same-numbers`` to accept the new digest of a kernel that still computes the same bits. It never
accepts new losses or another engine.
"""

import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

import pytest

from experiments.config import identity
from experiments.config.compose import compose
from experiments.config.identity import numerics
from experiments.models.kernels.libraries import FLAGS, FOLDER, library
from experiments.runs import launch
from experiments.store.records import Store
from experiments.tasks import GATES_OF_TASK, TASKS

FILE = Path(__file__).parent / "golden_losses.json"
# One of the language tasks: they differ only in their questions.
PAIRS = [(name, gate) for name, gates in GATES_OF_TASK.items() for gate in gates]
SAME = {name for name, task in TASKS.items() if task.usual_model != "none"} - {"wikisql_easy"}
CASES = [(name, gate, method) for name, gate in PAIRS if name not in SAME for method in ("ngn", "fixed")]
# The other methods are compared on the 1D study only; the contract test runs them on every component.
CASES += [("regression1d", "mlp", method) for method in ("ste", "l0", "awnn", "decay", "budget")]


def code_of(source):
    """Return the code of a C++ file and of its local includes, without comments and layout."""
    files = [source]
    for file in files:
        named = re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE)
        files += [file.parent / name for name in named if file.parent / name not in files]
    code = "\n".join(file.read_text() for file in files)
    return re.sub(r"\s+", " ", re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL))


def digest_of(kernel):
    """Return a digest of a kernel's code and its compiler flags."""
    return hashlib.sha256(f"{FLAGS}{code_of(FOLDER / f'{kernel}.cpp')}".encode()).hexdigest()


def config_of(task, gate, method, folder):
    """A smoke run of 20 steps."""
    overrides = {"results": str(folder), "progress": "never", "train.steps": 20, "gate.K": 4, "phases": ["grown"]}
    overrides["gate.t0"] = 1e-4  # as in full runs
    overrides["train.autocast"] = "none"  # bfloat16 is another one on each kind of processor
    if task == "regression1d":  # the setting under which these losses were recorded
        overrides["task.draw"] = 0
        if method in ("ngn", "decay", "budget"):
            overrides["train.lr_boundary"] = 0.05
    if method == "fixed":
        groups = compose({"task": task, "gate": gate, "profile": "smoke"}).gate.groups
        overrides["method.count"] = 2 if groups == 1 else [2] * groups
    if method == "budget":
        overrides["method.count"] = 2
    if method == "awnn":
        overrides["method.width"] = 3.0
    if method == "decay":
        overrides["method.normalise"] = True
    return compose({"task": task, "gate": gate, "method": method, "profile": "smoke"}, overrides)


def train(config, folder):
    """Train and return numerics version, engine, kernel digest, and the loss and boundary at every step."""
    (outcome,) = launch.launch([config])
    store = Store(folder)
    engine, curves = store.get(outcome.run_id)["execution"]["engine"], store.curves(outcome.run_id)
    phase = "fixed" if config.method.name == "fixed" else "grown"
    return {
        "numerics": numerics(config),
        "engine": engine,
        "kernel": digest_of(config.task.kernel) if engine == "fused" else None,
        "loss": curves[f"{phase}.loss"].tolist(),
        "t": curves[f"{phase}.t"][:, 0].tolist() if phase == "grown" else [],
    }


def differences(golden, got, rel=2e-4):
    """Return the fields that differ by more than rounding between processors: any change of arithmetic does."""
    near = {"loss": {"rel": rel, "abs": 1e-6}, "t": {"rel": 1e-3, "abs": 1e-6}}
    return [
        name
        for name in golden
        if got[name] != (pytest.approx(golden[name], **near[name]) if name in near else golden[name])
    ]


@pytest.mark.parametrize(
    ("task", "gate", "method"),
    [pytest.param(*case, marks=pytest.mark.slow(seconds=10) if case[1] == "channels" else ()) for case in CASES],
)
def test_losses_engine_and_kernel_match_the_numerics_version(tmp_path, task, gate, method):
    golden = json.loads(FILE.read_text())[f"{task}-{gate}-{method}"]
    config = config_of(task, gate, method, tmp_path)
    got = train(config, tmp_path)
    if golden["engine"] == "fused" and library(config.task.kernel) is None:
        got |= {"engine": "fused", "kernel": digest_of(config.task.kernel)}  # no compiler here, so torch trained it
    assert got["loss"][:5] == pytest.approx(golden["loss"][:5], rel=2e-4), "results may have changed"
    rel = 5e-3 if gate == "channels" else 2e-4  # later steps of batch norm make more of rounding
    assert not differences(golden, got, rel), "results may have changed: see 'Numbers have versions' in CONTRIBUTING.md"


def merged(old, new, same_numbers=False):
    """Return the new content of the golden file; a SystemExit if a case differs but its version does not."""
    content = {name: old[name] for name in old if name in new}
    for name, got in new.items():
        before = old.get(name, got)
        changed = differences(before, got)
        if before["numerics"] == got["numerics"] and changed and not (same_numbers and changed == ["kernel"]):
            raise SystemExit(f"{name}: another {', '.join(changed)}; bump the numerics version of its task or method")
        content[name] = got if changed else before  # ignore rounding differences of this processor
    return content


def test_the_golden_file_accepts_changes_only_with_a_new_version():
    case = {"numerics": {"task": 1}, "engine": "fused", "kernel": "a", "loss": [1.0], "t": [0.5]}
    for change in ({"engine": "torch"}, {"kernel": "b"}, {"loss": [1.001]}, {"t": [0.6]}):
        after, bumped = {"case": case | change}, {"case": case | change | {"numerics": {"task": 2}}}
        with pytest.raises(SystemExit, match=f"another {next(iter(change))}; bump"):
            merged({"case": case}, after)
        assert merged({"case": case}, bumped) == bumped
        if "kernel" in change:
            assert merged({"case": case}, after, same_numbers=True) == after
        else:
            with pytest.raises(SystemExit):
                merged({"case": case}, after, same_numbers=True)


if __name__ == "__main__" and "--update" in sys.argv:
    with tempfile.TemporaryDirectory() as folder:
        identity.SCRATCH = Path(folder) / "scratch"
        new = {"-".join(case): train(config_of(*case, Path(folder)), Path(folder)) for case in CASES}
    content = merged(json.loads(FILE.read_text()), new, "--same-numbers" in sys.argv)
    FILE.write_text(json.dumps(content, indent=1) + "\n")
