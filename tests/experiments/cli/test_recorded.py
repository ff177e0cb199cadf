"""What a command says of the committed records: how long such runs took, what they found, and ``show=true``."""

import json

import pytest
from record_samples import grown, record, sealed

from experiments.cli import app, pipes, recorded
from experiments.config.compose import compose
from experiments.config.identity import Run, run_id
from experiments.core import paths
from experiments.runs.outcome import summary
from experiments.store import provenance
from experiments.store.records import Store
from experiments.studies import macros


@pytest.fixture
def committed(tmp_path, monkeypatch):
    """A folder of committed records, and no git that could say what has changed since."""
    monkeypatch.setattr(recorded, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(recorded, "changed_since", lambda commit: ["ngn/gate.py", "run.py", "a.py", "b.py"])
    monkeypatch.setattr(paths, "SCRATCH", tmp_path / "scratch")
    return Store(tmp_path / "results")


def made(store, seed, t=6.0, mse=1e-3, seconds=60.0, **changes):
    """Write a record of one seed of the 1D study; return its run, which writes to another folder."""
    config = compose({}, {"seed.value": seed, "phases": ["grown"], **changes})
    execution = {"device": "cpu", "engine": "torch", "replicas": 20, "threads": 2}
    time = {"started": "2026-01-01T00:00:00+00:00", "seconds": seconds}
    blocks = {"execution": execution, "time": time, "hardware": {"cpu": "Some CPU"}}
    store.write(record(config, {"grown": grown([t], mse, mse)}, **blocks))
    return Run.of(config)


def test_the_time_of_runs_follows_from_records_of_their_kind_and_from_their_steps(committed):
    done = made(committed, 0, **{"train.steps": 1000})
    longer = compose({}, {"seed.value": 7, "phases": ["grown"], "train.steps": 5000})
    assert recorded.forecast([Run.of(longer)] * 3) == (
        "3 runs to train: about 5.0 min each, 15.0 min in all\n"
        "  by records of this task and method: up to 20 at a time, on Some CPU\n"
    )
    other = Run.of(compose({"task": "cora"}))
    assert "2 runs to train: about 5.0 min each, 5.0 min in all; of 1 run no record tells" in recorded.forecast(
        [Run.of(longer), other]
    )
    assert recorded.forecast([other]) == "", "nothing is guessed"
    assert recorded.forecast([Run.of(compose({}, {"train.steps": 10, "phases": ["grown"]}))]) == "", "too short to tell"
    assert recorded.forecast([Run.of(compose({"method": "ste"}))]) == "", "of another method"
    for typed in ({"engine": "fused"}, {"device": "cuda"}):
        assert recorded.forecast([Run.of(longer.model_copy(update=typed))]) == "", f"of another {typed}"
    path = committed.path(done.id)
    path.write_text(json.dumps(sealed(json.loads(path.read_text().replace('"torch"', '"fused-step"')))))
    assert recorded.forecast([Run.of(longer)]) == "", "of an engine that is gone"


def shown(line, capsys):
    status = app.main(line.split())
    told = capsys.readouterr()
    assert told.err == ""
    return status, told.out


def test_show_prints_committed_records_and_writes_nothing(committed, tmp_path, capsys):
    for seed in range(2):
        made(committed, seed, t=6.0 + seed)
    before = sorted(tmp_path.rglob("*"))
    status, out = shown("phases=[grown] seed=0..1 show=true", capsys)
    assert status == 0
    lines = out.splitlines()
    assert lines[:3] == ["seed  grown t  grown mse", "   0     6.00   1.00e-03", "   1     7.00   1.00e-03"]
    assert lines[3] == "made by other sources of the same numerics version: seed=0, seed=1"
    assert "ngn/gate.py" not in out, "only if it is asked for"
    told = shown("phases=[grown] show=true hydra.verbose=true", capsys)[1]
    assert "(since 0000000000 changed: ngn/gate.py, run.py, a.py and 1 more)" in told
    status, out = shown("phases=[grown] seed=1..2 show=true", capsys)
    assert status == 1
    assert f"no record in {tmp_path / 'results'}: seed=2" in out.splitlines()
    (committed.path(run_id(compose({}, {"phases": ["grown"], "seed.value": 1})))).write_text("{")
    status, out = shown("phases=[grown] seed=1 show=true", capsys)
    assert status == 1
    assert "unreadable" in out
    assert sorted(tmp_path.rglob("*")) == before


def test_show_of_another_folder_has_its_numbers_in_the_row_of_the_paper(committed, tmp_path, capsys):
    own = Store(tmp_path / "mine")
    for seed in range(2):
        made(own, seed)
    assert "yours (2 seeds)" in shown(f"phases=[grown] seed=0..2 show=true results={own.root}", capsys)[1]
    status, out = shown(f"phases=[grown] seed=0..2 show=true results={tmp_path / 'none'}", capsys)
    assert status == 1
    assert out.splitlines() == [f"no record in {tmp_path / 'none'}: seed=0, seed=1, seed=2"]


def test_show_starts_no_git(monkeypatch, capsys):
    """``git status`` and ``git diff`` may write the index of the checkout."""
    monkeypatch.setattr(provenance, "_git", lambda *words: pytest.fail(f"git {words}"))
    provenance.code.cache_clear()
    status, out = shown("task=regression1d seed=0..1 show=true", capsys)
    assert status == 0
    assert "published (" in out


def test_a_command_ends_with_its_numbers_beside_the_others(committed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(recorded, "room", lambda: 80)
    monkeypatch.setattr(pipes, "room", lambda: 80)
    row = next(row for table in macros() for row in table.rows if row.key == "baseline")
    own, runs = Store(tmp_path / "runs"), []
    for seed in range(2):
        config = row.runs.config(seed)
        phases = {name: grown([6.0 + seed], 1e-3, 1e-3) for name in config.phases}
        committed.write(record(config, phases))
        own.write(record(config, {name: grown([5.0], 2e-3, 2e-3) for name in config.phases}))
        runs.append(Run.of(config.model_copy(update={"results": str(own.root)})))
    jobs = [(f"seed={run.config.seed.value}", run) for run in runs]
    pipes.show(*recorded.closing(jobs, [own.path(run.id) for run in runs]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "yours, and in brackets the committed record of the same run:"
    assert "5.00 (6.00)  2.00e-03 (1.00e-03)" in lines[2]
    assert "5.00 (7.00)  2.00e-03 (1.00e-03)" in lines[3]
    text = "\n".join(lines)
    assert "yours (2 seeds)" in text
    assert "published (10)" in text
    assert not any(line.startswith("medians") for line in lines)
    for seed in range(2):  # another method, whose size is no boundary
        changes = {"method": compose({"method": "l0"}).method, "phases": ["grown"], "results": str(own.root)}
        runs.append(Run.of(row.runs.config(seed).model_copy(update=changes)))
        phase = {key: value for key, value in grown([9.0], 3e-3, 3e-3).items() if key != "integer"}
        own.write(made := record(runs[-1].config, {"grown": phase}))
    assert summary(made).startswith("grown size 10, soft 3.00e-03, truncated 3.00e-03 (")
    pipes.show(*recorded.closing([(run.id, run) for run in runs], [own.path(run.id) for run in runs]))
    text = capsys.readouterr().out.partition("differences of means, with their 95 % intervals:\n")[2]
    assert text.splitlines()[0].split() == ["number", "method=ngn", "method=l0", "difference", "low", "high", "runs"]
    assert "truncated.mse       0.002      0.003      -0.001  -0.001  -0.001  2 pairs" in text
    assert max(map(len, lines)) <= 80
