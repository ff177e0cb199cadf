"""Planning and status, with the real script; a damaged file beside the records stops no command."""

import json
import os
from collections import Counter
from types import SimpleNamespace

import pytest
from record_samples import grown, record
from sweep_samples import frozen

from experiments.analysis.selection import Selection
from experiments.config.compose import compose
from experiments.config.identity import runs_of
from experiments.core.blocks import ConfigError
from experiments.data import DataError
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps import settings, slurm, status, worker
from experiments.store.leases import Leases
from experiments.store.records import RecordError, Store
from experiments.studies import STUDIES
from experiments.studies.model import Study
from scripts import sweep


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Make a study of six runs in two tasks, and return the script for it."""
    base = STUDIES["smoke"].make()
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "six", lambda: [s.with_seeds(range(3)) for s in base[:2]]))
    results = tmp_path / "results"

    def call(*words):
        return sweep.main([words[0], "tiny", f"--results={results}", *words[1:]])

    call.results = results
    call.folder = results / ".sweeps" / "tiny"
    return call


def put(tiny, count, **changes):
    """Write made-up records of the first runs of the study."""
    for run in list(STUDIES["tiny"].runs())[:count]:
        Store(tiny.results).write(record(run.config, {"grown": grown([2.0], 1e-3, 1e-3)}, **changes), replace=True)
        assert Store(tiny.results).path(run.id).exists()


def test_a_plan_holds_the_missing_runs_and_never_changes(tiny, capsys):
    put(tiny, 2)
    assert tiny("plan", "runs_per_task=3") == 0
    assert "4 runs in 2 tasks (others with a record or in Slurm's queue: 2), " in capsys.readouterr().out
    (path,) = tiny.folder.glob("plan-*.jsonl")
    before = path.read_bytes()
    put(tiny, 4)
    assert tiny("plan") == 0
    assert path.read_bytes() == before
    first, second = (plans.read_plan(p) for p in sorted(tiny.folder.glob("plan-*.jsonl")))
    assert (first.runs, second.runs) == (4, 2)
    for plan in (first, second):
        for number, runs in plans.runs_of_tasks(plan.path):
            assert [run.id for run in runs] == list(plan.tasks[number])


def test_a_dry_run_lists_runs_and_time_and_what_slurm_would_get(tiny, tmp_path, monkeypatch, capsys):
    put(tiny, 1)
    before = sorted(tiny.results.rglob("*"))
    assert tiny("run", "--dry-run") == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 5
    assert "5 runs (others with a record or in Slurm's queue: 1), " in shown.err
    pytest.importorskip("submitit")
    (tmp_path / "sinfo").write_text("#!/bin/sh\nprintf 'main\\nlong\\n'")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    words = ["--cluster", "slurm", "--dry-run", "task_minutes=30", "memory_gb=4", "gpus=1", "workers=2"]
    assert tiny("run", *words, "partition=main", "runs_per_task=3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[5] == "tasks: 2, at most 1000 in an array"
    for option in ("array=0-1%2", "partition=main", "gpus-per-node=1", "mem=4096M", "time=30", "cpus-per-task=1"):
        assert f"#SBATCH --{option}" in lines
    assert tiny("run", *words, "partition=mian") == 2
    assert "partition=mian: Slurm has no such partition. Did you mean 'main'? It has" in capsys.readouterr().err
    assert sorted(tiny.results.rglob("*")) == before


def test_status_distinguishes_all_states(tiny, capsys):
    names = [run.id for run in STUDIES["tiny"].runs()]
    put(tiny, 3)
    stale = list(STUDIES["tiny"].runs())[1].config
    old = record(stale, {"grown": grown([2.0], 1e-3, 1e-3)})
    old["code"]["numerics"] = {"task": 0, "method": 1}
    Store(tiny.results).write(old, replace=True)
    Store(tiny.results).path(names[2]).write_text("{")
    (tiny.folder / "failures").mkdir(parents=True)
    told = {"run_id": names[3], "error": "ValueError: out of luck", "where": "node1"}
    (tiny.folder / "failures" / "x.json").write_text(json.dumps(told))
    leases = Leases(tiny.results)
    leases.take([names[4]])
    assert tiny("status") == 1
    shown = capsys.readouterr().out
    leases.release([names[4]])
    assert "1 of 6 runs done" in shown
    for state in ("running", "failed", "missing", "stale", "refused"):
        assert f"      1 {state}" in shown, state
    assert "out of luck (node1)" in shown
    assert "digest" not in shown
    told = json.loads(Store(tiny.results).path(names[0]).read_text())
    Store(tiny.results).path(names[0]).write_text(json.dumps({k: v for k, v in told.items() if k != "sha256"}))
    tiny("status")
    assert "1 of the records have no digest" in capsys.readouterr().out
    assert tiny("status", "--strict") == 1
    assert tiny("run", "--strict") == 2
    assert "add --again to run them again" in capsys.readouterr().err
    again = list(status.runs_to_train(STUDIES["tiny"].runs(), status.View(tiny.results), ["stale"]))
    assert [(run.id, run.config.force) for run in again][:1] == [(names[1], True)]
    assert names[2] not in [run.id for run in again]


def test_unknown_arguments_are_refused(tiny, capsys):
    assert sweep.main(["run", "tinny"]) == 2
    assert tiny("run", "worker=3") == 2
    assert "workers" in capsys.readouterr().err
    assert tiny("run", "--cluster=slrum") == 2
    assert "Did you mean 'slurm'" in capsys.readouterr().err
    for name in settings.CLUSTERS:
        assert settings.load_cluster(name).kind in ("local", "slurm")
    with pytest.raises(ConfigError, match="task_minutes"):
        settings.load_cluster("local", ["task_minutes=-1"])


def test_several_studies_run_one_after_the_other(tiny, capsys, monkeypatch):
    runs = STUDIES["smoke"].make()[2].with_seeds(range(2))
    monkeypatch.setitem(STUDIES, "more", Study("more", "two", lambda: [runs]))
    assert tiny("plan", "mroe") == 2
    assert not tiny.folder.exists()
    with pytest.raises(SystemExit, match="2"):
        tiny("run", "more", "--detach")
    assert "take one study" in capsys.readouterr().err
    real = sweep.COMMANDS["plan"]

    def command(chosen, given):
        if chosen.study.name == "tiny":
            raise DataError("no such folder")
        return real(chosen, given)

    monkeypatch.setitem(sweep.COMMANDS, "plan", command)
    assert tiny("plan", "more", "runs_per_task=1") == 1
    shown = capsys.readouterr()
    assert "tiny: no such folder" in shown.err
    assert "more: 2 runs in 2 tasks" in shown.out
    assert tiny("status", "more") == 1
    shown = capsys.readouterr().out
    assert shown.index("0 of 6 runs done") < shown.index("0 of 2 runs done")


def test_planning_a_study_fetches_its_models_and_texts(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(sweep, "fetch", lambda name, root, *_: fetched.append((root, name)))
    language = {"task": "wikisql_easy", "gate": "lora", "model": "smollm2_135m"}
    configs = [compose(choices) for choices in (language, {"task": "mnist"}, {"task": "cora", "profile": "smoke"}, {})]
    sweep._provide(SimpleNamespace(data_root=tmp_path), runs_of(configs), local=False, fetches=True)
    assert fetched == [(tmp_path, name) for name in ("mnist", "pile10k", "smollm2", "wikisql")]


def test_what_a_study_lacks_is_named_at_once_and_nothing_is_fetched(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sweep, "check_packages", lambda config: compose({}, {"task.name": "x"}))
    words = ("lora_llama3", "adapter_llama3", f"--data-root={tmp_path}", f"--results={tmp_path}", "model.path=/none")
    assert sweep.main(["run", *words]) == 2
    told = capsys.readouterr().err
    assert told.count("needs a GPU of 40 GB and 32 GiB of memory and 20 GB of disk, but finds none here") == 2
    for name in ("wikisql", "spider", "gsm8k", "squad", "pile10k"):
        assert told.count(f"`python scripts/fetch_data.py {name} --data-root") == 2
    assert told.count("no config.json in /none") == 2
    assert not list(tmp_path.iterdir())
    assert sweep.main(["plan", "lora_llama3", *words[2:], "--device=cpu"]) == 0
    assert "each needs" not in capsys.readouterr().out
    assert sweep.main(["run", "schedules", *words[2:]]) == 2
    assert "model.path= is for a study of one named language model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("replicas", "trained", "lasted", "alone"),
    [
        (1, 100.0, 125.0, 125.0),  # includes loading and scoring
        (10, 1000.0, 101.0, 101.0),  # one run's share of a stack
        (10, 1000.0, 7.0, 100.0),  # resumed: the time of its last part does not count
    ],
)
def test_estimates_include_all_time_of_a_similar_run(tmp_path, replicas, trained, lasted, alone):
    config = compose({"task": "mnist", "gate": "conv"})
    each = grown([2.0], 1e-3, 1e-3) | {"seconds": trained / len(config.phases)}
    made = record(config, dict.fromkeys(config.phases, each))
    made["time"]["seconds"], made["execution"]["replicas"] = lasted, replicas
    Store(tmp_path).write(made)
    speeds = status.Speeds(tmp_path)
    assert speeds.seconds(config) == pytest.approx(alone)
    longer = compose({"task": "mnist", "gate": "conv"}, {"train.epochs": 2 * config.train.epochs})
    assert speeds.seconds(longer) == pytest.approx(2 * alone)
    committed = compose({"task": "mnist", "gate": "conv"}, {"schedule.commit": 0.9, "phases": ["grown"]})
    assert speeds.seconds(committed) == pytest.approx(alone / 3)  # no record of its kind: estimated from a similar kind


def test_a_plan_for_another_folder_of_records_is_refused(tmp_path, capsys):
    plan = frozen(tmp_path, 1)
    assert sweep.main(["run", "smoke", "--plan", str(plan.path), "--results", str(tmp_path / "elsewhere")]) == 2
    said = capsys.readouterr().err
    assert f"is for records in {plan.results}, but here they go to {tmp_path / 'elsewhere'}" in said
    assert f"--results {plan.results}" in said
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("size", [50, 200])
def test_status_reads_each_record_once_and_lists_the_folder_once(tmp_path, monkeypatch, size):
    """Its reads grow with the study, not with the folder, and so do those of a plan; bench_sweeps.py has the times."""
    calls = []
    for of, name, real in ((status, "read_record", status.read_record), (Store, "paths", Store.paths)):
        monkeypatch.setattr(of, name, lambda *given, name=name, real=real: calls.append(name) or real(*given))
    selection = Selection.of({"task": "regression1d", "gate": "mlp"}, seeds=range(size))
    study, store = Study("many", "many", lambda: [selection]), Store(tmp_path)
    for run in list(study.runs())[: size // 2]:
        store.write(record(run.config, {"grown": grown([2.0], 1e-3, 1e-3)}))
        (store.path(run.id).parent / f"regression1d-other-{run.id[-10:]}.json").write_text("{}")
    calls.clear()
    view = status.View(tmp_path)
    assert Counter(view.state(run).state for run in study.runs()) == {"done": size // 2, "missing": size - size // 2}
    missing = list(status.runs_to_train(study.runs(), view))
    assert len(missing) == size - size // 2
    assert sorted(calls) == ["paths", *["read_record"] * (size // 2)], "a plan opens no record"
    path = plans.freeze(tmp_path / "sweeps", "many", tmp_path, missing, 10)
    first = next(iter(plans.runs_of_tasks(path)))
    assert len(first[1]) == 10
    assert len(plans.read_plan(path).tasks) == -(-len(missing) // 10)


def test_a_study_with_a_damaged_record_is_not_complete(tiny, capsys):
    put(tiny, 6)
    assert tiny("run") == 0
    Store(tiny.results).path(next(STUDIES["tiny"].runs()).id).write_text('{"schema": 2}')
    capsys.readouterr()
    assert tiny("run") == 1
    told = f"1 records do not count: python scripts/sweep.py status tiny --results {tiny.results}"
    assert told in capsys.readouterr().out
    assert tiny("plan", "--again", "refused") == 0
    assert "1 runs in 1 tasks" in capsys.readouterr().out


def test_damaged_failure_files_do_not_hide_the_rest(tmp_path, caplog):
    sound = json.dumps({"job": "1_0", "plan": "p", "task": 0})
    (tmp_path / "jobs.jsonl").write_text(f'{sound}\n{{"job": "1_1", "pl\n[]\n{sound.replace("0}", "[]}")}\n\n{sound}\n')
    assert [job.job for job in slurm.submitted(tmp_path)] == ["1_0", "1_0"]
    assert caplog.text.count("jobs.jsonl: skipping a damaged line") == 3
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "x.json").write_text("{")
    assert "is damaged" in status.failures(tmp_path)["x"]
    (tmp_path / "plan-abc.jsonl").write_text("")
    assert plans._plans(tmp_path) == []


@pytest.mark.parametrize("content", ["", "[]", "[1]", "[" * 100_000, None])
def test_worker_and_status_name_a_damaged_plan(tiny, monkeypatch, capsys, content):
    """``content=None`` removes the task's line."""
    put(tiny, 6)
    runs = list(STUDIES["tiny"].runs())[:3]
    path = plans.freeze(tiny.folder, "tiny", tiny.results, runs, 10)
    head, _ = path.read_text().splitlines()
    path.write_text(head + "\n" + ("" if content is None else f"{content}\n"))
    statuses = worker.run_task(path, 0)
    assert len(statuses) == 3
    assert all(str(path) in why and "write a new plan" in why for why in statuses.values())
    jobs = [{"job": f"7_{task}", "plan": str(path), "task": task} for task in range(2)]
    (path.parent / "jobs.jsonl").write_text("\n".join(map(json.dumps, jobs)))
    monkeypatch.setattr(slurm, "in_queue", lambda jobs: {job.job: "RUNNING" for job in jobs})
    capsys.readouterr()
    assert tiny("status") == 0
    assert "job 7_1: its runs are unknown" in capsys.readouterr().err
    path.write_text("{")
    assert tiny("status") == 0
    assert str(path) in capsys.readouterr().err


def test_a_folder_in_place_of_the_lock_is_named_before_training(tmp_path):
    (tmp_path / ".leases" / ".lock").mkdir(parents=True)
    with pytest.raises(RecordError, match=r"\.lock: is a folder, .*; remove the folder"):
        Leases(tmp_path).take(["a"])
    assert [path.name for path in (tmp_path / ".leases").iterdir()] == [".lock"]
