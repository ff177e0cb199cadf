"""No injected fault loses anything; docs/reliability.md shows the same counts."""

import hashlib
import json
import os
import shlex
import signal

import programs
import pytest
from waiting import until

from experiments.core.paths import ROOT
from scripts.fault_table import titles

FAULTS = ROOT / "tests" / "support" / "faults.py"
DEAR = ("damaged_files", "damaged_records", "damaged_beside", "kill_scripts", "kill_runs", "kill_library")
"""Expensive faults: a few attempts here, many with ``make faults``."""
KILLS = "2"
"""Attempts for each other kind of fault; ``make faults`` makes twenty."""
PROCESSES = 2
"""Processes for the cheap faults. Starting a process costs as much as trying one kind of fault."""
CHEAP = tuple(name for name in titles() if name not in DEAR)


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("names", [DEAR[:3], DEAR[3:], *(CHEAP[n::PROCESSES] for n in range(PROCESSES))], ids=", ".join)
def test_nothing_is_lost(names, tmp_path):
    words = [",".join(names), str(tmp_path), "1" if set(names) <= set(DEAR) else KILLS]
    done = programs.run(FAULTS, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert tuple(counts) == names
    for name, count in counts.items():
        assert count["tried"] > 0 or "allows no mounts" in done.stderr, name
        assert (count["survived"], count["lost"]) == (count["tried"], 0), f"{name}\n{done.stderr}"


@pytest.mark.slow
def test_ctrl_c_prints_the_command_that_continues(tmp_path, monkeypatch):
    """Interrupt the real program while it trains: the printed command, unchanged, finishes the record."""
    script = ROOT / "run.py"
    own = "engine=torch phases=[grown] train.steps=1200 gate.K=4 checkpoint_seconds=0.2 seed=0,1"
    results = tmp_path / "my results"
    monkeypatch.setenv("NGN_OUTPUT", str(tmp_path / "output"))
    words = ["profile=smoke", *own.split(), "progress=never", f"results={results}"]
    log = tmp_path / "log"
    run = programs.start(script, *words, cwd=tmp_path, env=os.environ, log=log)
    saved = f"*-{hashlib.sha256(str(results.resolve()).encode()).hexdigest()[:8]}/grown/step-*.json"
    checkpoints = tmp_path / "output" / "checkpoints"
    until(lambda: list(checkpoints.glob(saved)) or run.poll() is not None, "a checkpoint")
    assert run.poll() is None, log.read_text()
    run.send_signal(signal.SIGINT)
    assert run.wait() == 130, log.read_text()
    command = log.read_text().partition("To continue:\n  ")[2].splitlines()[0]
    assert shlex.split(command)[1:] == [str(script), *words]
    again = programs.run(*shlex.split(command)[1:], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    records = [json.loads(p.read_text()) for p in results.rglob("*.json")]
    assert [r["execution"]["resumed"] for r in records] == [1, 1]
