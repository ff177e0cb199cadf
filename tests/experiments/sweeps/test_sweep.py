"""Planning, running here, and watching: the real script, the real workers."""

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from record_samples import grown, record
from waiting import until

from experiments.blocks import ConfigError
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.data import DataError
from experiments.paths import CONF, ROOT
from experiments.store.leases import Leases
from experiments.store.records import Store
from experiments.studies import STUDIES, Study
from experiments.sweeps import plan as plans
from experiments.sweeps import settings, slurm, status
from experiments.sweeps.local import Supervisor
from ngn.train import interrupt

sys.path.insert(0, str(CONF.parent / "scripts"))
import sweep

SCRIPT = CONF.parent / "scripts" / "sweep.py"


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A study of six runs in two tasks, and the script on it."""
    base = STUDIES["smoke"].make()
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "six", lambda: [s.with_seeds(range(3)) for s in base[:2]]))
    results = tmp_path / "results"

    def call(*words):
        return sweep.main([words[0], "tiny", f"--results={results}", *words[1:]])

    call.results = results
    call.folder = results / ".sweeps" / "tiny"
    return call


def put(tiny, count, **changes):
    """Records of the first runs of the study, made up."""
    for name, config in list(STUDIES["tiny"].runs())[:count]:
        Store(tiny.results).write(record(config, {"grown": grown([2.0], 1e-3, 1e-3)}, **changes), replace=True)
        assert Store(tiny.results).path(name).exists()


def test_a_plan_freezes_what_is_missing_and_stays_as_it_is(tiny, capsys):
    put(tiny, 2)
    assert tiny("plan", "runs_per_task=3") == 0
    assert "4 runs in 2 tasks" in capsys.readouterr().out
    (path,) = tiny.folder.glob("plan-*.jsonl")
    before = path.read_bytes()
    put(tiny, 4)
    assert tiny("plan") == 0
    assert path.read_bytes() == before
    first, second = (plans.read(p) for p in sorted(tiny.folder.glob("plan-*.jsonl")))
    assert (first.runs, second.runs) == (4, 2)
    for plan in (first, second):
        for number, configs in plans.configurations(plan.path):
            assert [run_id(c) for c in configs] == list(plan.tasks[number])


def test_edited_yaml_changes_nothing_in_a_plan(tiny, monkeypatch):
    tiny("plan")
    plan = plans.latest(tiny.folder)
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "other", lambda: STUDIES["smoke"].make()[3:]))
    configs = [c for _, task in plans.configurations(plan.path) for c in task]
    assert [run_id(c) for c in configs] == [name for task in plan.tasks for name in task]
    assert not {run_id(c) for c in configs} & {name for name, _ in STUDIES["tiny"].runs()}


def test_a_dry_run_names_the_runs_and_a_time_and_writes_nothing(tiny, capsys):
    put(tiny, 1)
    before = sorted(tiny.results.rglob("*"))
    assert tiny("run", "--dry-run") == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 5
    assert "5 runs" in shown.err
    assert sorted(tiny.results.rglob("*")) == before


def test_states_are_told_apart(tiny, capsys, monkeypatch):
    names = [name for name, _ in STUDIES["tiny"].runs()]
    put(tiny, 3)
    stale = list(STUDIES["tiny"].runs())[1][1]
    old = record(stale, {"grown": grown([2.0], 1e-3, 1e-3)})
    old["code"]["numerics"] = {"task": 0, "method": 1}
    Store(tiny.results).write(old, replace=True)
    Store(tiny.results).path(names[2]).write_text("{")
    (tiny.folder / "failures").mkdir(parents=True)
    told = {"run_id": names[3], "error": "ValueError: out of luck", "where": "node1"}
    (tiny.folder / "failures" / "x.json").write_text(json.dumps(told))
    with Leases(tiny.results) as leases:
        leases.take([names[4]])
        assert tiny("status") == 1
        shown = capsys.readouterr().out
    assert "1 of 6 runs done" in shown
    for state in ("running", "failed", "missing", "stale", "refused"):
        assert f"      1 {state}" in shown, state
    assert "out of luck (node1)" in shown
    assert tiny("status", "--strict") == 1
    assert tiny("run", "--strict") == 2
    assert "--again runs them anew" in capsys.readouterr().err
    again = list(status.wanting(STUDIES["tiny"].runs(), status.View(tiny.results), ["stale"]))
    assert [(run_id(c), c.force) for c in again][:1] == [(names[1], True)]
    assert names[2] not in map(run_id, again)


def test_wrong_words_are_refused(tiny, capsys):
    assert sweep.main(["run", "tinny"]) == 2
    assert tiny("run", "worker=3") == 2
    assert "workers" in capsys.readouterr().err
    assert tiny("run", "--cluster=slrum") == 2
    assert "Did you mean 'slurm'" in capsys.readouterr().err
    for name in settings.names():
        assert settings.load(name).kind in ("local", "slurm")
    with pytest.raises(ConfigError, match="task_minutes"):
        settings.load("local", ["task_minutes=-1"])


def test_several_studies_one_after_the_other(tiny, capsys, monkeypatch):
    monkeypatch.setitem(
        STUDIES, "more", Study("more", "two", lambda: [STUDIES["smoke"].make()[2].with_seeds(range(2))])
    )
    assert tiny("plan", "mroe") == 2
    assert not tiny.folder.exists()
    with pytest.raises(SystemExit, match="2"):
        tiny("run", "more", "--detach")
    assert "go with one study" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        sweep.main(["run", "workers=2"])
    assert "name a study" in capsys.readouterr().err
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


def frozen(tmp_path, tasks, **changes):
    keys = {"gate.K": 2, "train.steps": 2, "progress": "never", **changes}
    configs = [compose({"profile": "smoke"}, {**keys, "gate.width": 4 + n}) for n in range(tasks)]
    results = tmp_path / "results"
    return plans.read(plans.freeze(plans.folder_of("tiny", results), "tiny", results, configs, 10))


def test_what_is_planned_already_is_not_planned_again(tmp_path):
    first = frozen(tmp_path, 2)
    assert frozen(tmp_path, 2).path == first.path
    other = frozen(tmp_path, 3)
    assert other.path != first.path
    assert frozen(tmp_path, 2).path not in (first.path, other.path), "the newest plan counts"


WORKER = """
import json, os, signal, sys
from pathlib import Path
plan = Path(sys.argv[1])
for line in sys.stdin:
    if int(line) == {bad}:
        {does}
    print(json.dumps({{"task": int(line), "runs": {{"run": "complete"}}}}), flush=True)
"""


@pytest.mark.parametrize(
    ("does", "reason"),
    [
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()", "stopped after"),
        ("signal.pause()", "stopped after"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("sys.exit(7)", "status 7"),
    ],
)
def test_a_worker_that_hangs_or_dies_costs_one_task(tmp_path, does, reason):
    plan = frozen(tmp_path, 4)
    told = {}
    limit = 0.2 if "pause" in does else None  # long enough for an interpreter to start on a machine that stalls
    cluster = settings.Cluster(kind="local", workers=2, task_minutes=limit, grace_seconds=0.5)
    command = [sys.executable, "-c", WORKER.format(bad=1, does=does)]
    Supervisor(plan, range(4), cluster, lambda task, runs: told.update({task: runs}), command).run()
    assert sorted(told) == [0, 1, 2, 3]
    (name,) = plan.tasks[1]
    assert reason in told[1][name]
    assert reason in status.failures(plan.path.parent)[name]
    assert all(told[n] == {"run": "complete"} for n in (0, 2, 3))


def test_what_others_train_is_put_off(tmp_path):
    """The real worker: a run that somebody else holds is not waited for while there is other work."""
    plan, told = frozen(tmp_path, 3), {}
    (name,) = plan.tasks[0]
    leases = Leases(plan.results)
    assert leases.take([name]) == [name]

    def report(task, runs):
        told[task] = set(runs.values())
        if len(told) == 2:
            leases.release([name])

    Supervisor(plan, range(3), settings.Cluster(kind="local", workers=1), report).run()
    assert list(told) == [1, 2, 0]
    assert list(told.values()) == [{"complete"}] * 3


def test_several_gpus_share_the_tasks(tmp_path, monkeypatch):
    """A worker a GPU, each seeing its own; here the workers only say which."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    plan, told = frozen(tmp_path, 6), {}
    says = """
import json, os, sys
for line in sys.stdin:
    seen = os.environ["CUDA_VISIBLE_DEVICES"]
    # nobody answers a first task before both GPUs have one
    open(f"{sys.argv[1]}.{seen}", "w").close()
    while not all(os.path.exists(f"{sys.argv[1]}.{n}") for n in "25"):
        os.sched_yield()
    print(json.dumps({"task": int(line), "runs": {"run": seen}}), flush=True)
"""
    command = [sys.executable, "-c", says]
    Supervisor(plan, range(6), settings.Cluster(kind="local"), lambda t, r: told.update({t: r["run"]}), command).run()
    assert sorted(told) == list(range(6))
    assert set(told.values()) == {"2", "5"}


@pytest.mark.slow
def test_ctrl_c_saves_says_how_to_go_on_and_goes_on(tmp_path):
    plan = frozen(tmp_path, 1, **{"train.steps": 20_000, "engine": "torch", "checkpoint_seconds": 1e9})
    line = [sys.executable, str(SCRIPT), "run", "smoke", f"--plan={plan.path}", f"--results={plan.results}"]
    leases = plan.results / ".leases"
    process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    until(lambda: list(leases.glob("*.lease")), "a lease")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=900)
    assert process.returncode == 130
    assert "To go on:" in err
    assert f"run smoke --plan={plan.path}" in err
    assert not list(leases.glob("*.lease"))


@pytest.mark.slow
def test_two_hundred_runs_killed_five_times(tmp_path):
    """The whole sweep, supervisor and workers, is killed five times at growing numbers of records, then completes."""
    results = tmp_path / "results"
    line = [sys.executable, str(SCRIPT), "run", "smoke", f"--results={results}", "workers=2", "runs_per_task=5"]
    folder = results / "regression1d"
    kills = 0
    for wanted in (1, 30, 60, 90, 120):
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        until(lambda wanted=wanted: len(list(folder.glob("*.json"))) >= wanted, f"{wanted} records")
        workers = [int(p) for p in _children(process.pid)]
        for pid in (process.pid, *workers):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        kills += 1
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert kills == 5
    names = {name for name, _ in STUDIES["smoke"].runs()}
    assert status.present(results) == names
    assert len(names) == 200
    view = status.View(results)
    assert {view.state(name, config).state for name, config in STUDIES["smoke"].runs()} == {"done"}
    assert not list(results.rglob("*.lease"))


def _children(pid):
    """Process numbers of a process's children, which have sessions of their own here."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return listed.stdout.split()


@pytest.mark.slow
def test_two_sweeps_share_the_work(tmp_path):
    """Both end well, and every run was trained by one of them."""
    results = tmp_path / "results"
    line = [sys.executable, str(SCRIPT), "run", "smoke", f"--results={results}", "runs_per_task=20"]
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [process.communicate(timeout=900) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert len(status.present(results)) == 200
    assert not list(results.rglob("*.lease"))


def test_a_detached_sweep_is_asked_for_with_the_options_it_was_given(tmp_path, monkeypatch, capsys):
    plan, started = frozen(tmp_path, 1), []
    monkeypatch.setattr(sweep.subprocess, "Popen", lambda words, **_: started.append(words) or SimpleNamespace(pid=7))
    options = ["--results", str(plan.results), "--data-root", str(tmp_path), "--device", "cpu"]
    assert sweep.main(["run", "smoke", "workers=2", "--plan", str(plan.path), "--detach", *options]) == 0
    assert f"python scripts/sweep.py status smoke {' '.join(options)}; kill 7" in capsys.readouterr().out
    words = started[0]
    assert words[words.index("run") :] == [
        "run", "smoke", "workers=2", "--cluster", "local", "--plan", str(plan.path), *options
    ]  # fmt: skip


@pytest.mark.skipif("--block-signal" not in slurm._python(), reason="env cannot block signals here")
def test_a_warning_that_comes_while_python_starts_is_kept_until_it_is_handled(tmp_path):
    code = (
        "import os, signal; os.kill(os.getpid(), signal.SIGUSR1)\n"
        "from ngn.train import interrupt\n"
        "try:\n with interrupt.handled(): pass\n"
        "except KeyboardInterrupt as stopped: print(stopped.signum)"
    )
    line = [*slurm.PATIENT, sys.executable, "-c", code]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(int(signal.SIGUSR1))]


@pytest.mark.slow
def test_a_detached_sweep_leaves_the_terminal_and_finishes(tmp_path):
    plan = frozen(tmp_path, 2)
    line = [sys.executable, str(SCRIPT), "run", "smoke", f"--plan={plan.path}", f"--results={plan.results}"]
    left = subprocess.run([*line, "--detach"], capture_output=True, text=True, check=True)
    assert "sweep.py status" in left.stdout
    names = [name for task in plan.tasks for name in task]
    until(lambda: all(Store(plan.results).path(name).exists() for name in names), "all records")
    process = int(left.stdout.split("process ")[1].split(",")[0])
    until(lambda: not os.path.exists(f"/proc/{process}"), "the end of the detached process")


def test_a_signal_between_trainings_raises_at_once():
    with interrupt.handled(), pytest.raises(interrupt.Interrupted, match="SIGUSR1") as stopped:
        os.kill(os.getpid(), signal.SIGUSR1)
    assert stopped.value.status == 128 + signal.SIGUSR1
    assert not interrupt.asked()


@pytest.mark.parametrize(
    ("signum", "answer", "told"),
    [
        ("SIGUSR1", 0, "job 12_3 is in Slurm's queue again"),
        ("SIGUSR2", 1, "Slurm did not requeue job 12_3: no such job"),
        ("SIGTERM", 0, None),
    ],
)
def test_a_warned_job_queues_itself_again_and_a_cancelled_one_does_not(
    tmp_path, monkeypatch, capsys, signum, answer, told
):
    """A stand-in for scontrol writes down what it was asked; tests/slurm has the real one."""
    asked = tmp_path / "asked"
    script = tmp_path / "scontrol"
    script.write_text(f"#!/bin/sh\necho $@ >> {asked}\necho no such job >&2\nexit {answer}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in {"JOB_ID": "15", "ARRAY_JOB_ID": "12", "ARRAY_TASK_ID": "3"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    number = signal.Signals[signum]
    assert interrupt.leave(interrupt.Interrupted(number), "the command") == 128 + number
    shown = capsys.readouterr().err
    assert "To go on:\n  the command" in shown
    assert asked.exists() == (told is not None)
    if told is not None:
        assert told in shown
        assert asked.read_text() == "requeue 12_3\n"
