"""What a study needs: told, asked of Slurm, checked before and in its tasks. A second pass waits for the first."""

import json
import os
import shlex

import pytest

pytest.importorskip("submitit", reason="needs submitit: pip install -e '.[cluster]'")

from experiments.analysis.selection import Selection
from experiments.config.compose import compose
from experiments.config.identity import runs_of
from experiments.core.needs import NOTHING, Needs
from experiments.runs import training
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps import slurm
from experiments.runs.sweeps.settings import Cluster
from experiments.runs.sweeps.worker import failure_path, run_task
from experiments.studies import STUDIES
from experiments.studies.model import Study
from scripts import sweep

CARD = Needs(gpus=1, gpu_gb=40, memory_gb=8, hours=2)
SBATCH = """#!/bin/sh
for last; do :; done
case "$1" in
--parsable) printf '%s\\0' "$@" > {place}/next; echo "78;cluster" ;;
*) cp "$last" {place}/array; echo "Submitted batch job 77" ;;
esac
"""


@pytest.fixture
def submitted(tmp_path, monkeypatch):
    """A study of one run whose record others follow, and an sbatch that keeps what it gets in two files."""
    stub = tmp_path / "bin" / "sbatch"
    stub.parent.mkdir()
    stub.write_text(SBATCH.format(place=shlex.quote(str(tmp_path))))
    stub.chmod(0o755)
    (stub.parent / "srun").symlink_to("sbatch")  # submitit takes it for the sign of a cluster
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    first = STUDIES["smoke"].make()[0].with_seeds(range(1))
    followed = Selection.of(dict(first.choices), dict(first.overrides), (0,), {"fixed": lambda *_: first})
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "one", lambda: [followed], needs=CARD))
    return lambda *words: sweep.main([words[0], "tiny", f"--results={tmp_path / 'results'}", *words[1:]])


def asked(tmp_path):
    lines = (tmp_path / "array").read_text().splitlines()
    return dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines if line.startswith("#SBATCH"))


def test_slurm_is_asked_for_what_the_study_needs_and_then_for_the_second_pass(submitted, tmp_path, capsys):
    assert submitted("run", "--cluster=slurm", "partition=gpu") == 0
    array = asked(tmp_path)
    assert {name: array[name] for name in ("gpus-per-node", "mem", "time", "partition")} == {
        "gpus-per-node": "1", "mem": "8192M", "time": "120", "partition": "gpu",
    }  # fmt: skip
    words = (tmp_path / "next").read_text().split("\0")
    assert {"--dependency=afterok:77", "--kill-on-invalid-dep=yes", "--partition=gpu"} < {*words}
    (script,) = (word for word in words if word.startswith("--wrap="))
    assert script.endswith(f"run tiny --results {tmp_path / 'results'} --cluster slurm partition=gpu")
    said = capsys.readouterr().out
    assert "each needs a GPU of 40 GB and 8 GiB of memory" in said
    assert "follow from their records as 78" in said


@pytest.mark.parametrize(
    ("queued", "tasks", "settings", "dependency"),
    [
        ([], 3, {"workers": 1, "max_array_size": 2}, "afterany:77"),
        ([], 3, {"workers": 3, "max_array_size": 2}, None),
        (["70_1", "71_0"], 1, {"workers": 2}, "afterany:70:71"),
        (["70_1"], 1, {"workers": 2}, None),
        (["70_1"], 1, {"workers": 1, "more": {"dependency": "singleton"}}, "singleton,afterany:70"),
    ],
)
def test_workers_limits_the_sweep_and_not_each_array(
    submitted, tmp_path, monkeypatch, queued, tasks, settings, dependency
):
    """The last array waits for those before it, also of earlier commands, if together they were too many."""
    runs = runs_of(compose({"profile": "smoke"}, {"gate.K": count}) for count in range(2, 2 + tasks))
    plan = plans.read_plan(plans.freeze(tmp_path / "plans", "tiny", tmp_path / "results", runs, 1))
    monkeypatch.setattr(slurm, "in_queue", lambda jobs: dict.fromkeys(queued, "RUNNING"))
    assert len(slurm.submit(plan, range(tasks), Cluster(kind="slurm", **settings))) == tasks
    assert asked(tmp_path).get("dependency") == dependency


@pytest.mark.parametrize(
    ("cards", "said"), [([], "finds none here"), ([23_000_000_000], "the one here has 23 GB"), ([42_000_000_000], None)]
)
def test_a_task_checks_the_machine_that_it_is_on(tmp_path, monkeypatch, cards, said):
    monkeypatch.setattr(training, "card_sizes", lambda: cards)
    trained = []
    monkeypatch.setattr("experiments.runs.launch.share", lambda runs, patience: trained.append(runs) or {})
    run = runs_of([compose({"profile": "smoke"}, {"gate.K": 2})])
    plan = plans.freeze(tmp_path / "plans", "tiny", tmp_path / "results", run, 1, CARD)
    assert plans.read_plan(plan).needs == CARD
    if said is None:
        with pytest.raises(KeyError):
            run_task(plan, 0)
        assert trained
    else:
        assert said in run_task(plan, 0)[run[0].id]
        assert said in json.loads(failure_path(plan, run[0].id).read_text())["error"]
        assert not trained


def test_plans_without_needs_are_those_of_before(tmp_path):
    run = runs_of([compose({"profile": "smoke"}, {"gate.K": 2})])
    path = plans.freeze(tmp_path / "plans", "tiny", tmp_path / "results", run, 1)
    head, *tasks = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps({k: v for k, v in json.loads(head).items() if k != "needs"}), *tasks]))
    assert plans.read_plan(path).needs == NOTHING
