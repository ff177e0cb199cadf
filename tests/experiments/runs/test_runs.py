"""Complete runs, from configuration to record, on tiny data: of every task, continued ones, and their process."""

import json
import math
import subprocess
import sys

import numpy as np
import programs
import pytest
import torch
from record_samples import untimed
from whole_runs import ALL, checked, smoke, trained

from experiments.config import identity
from experiments.config.compose import compose
from experiments.config.identity import Run, run_id
from experiments.config.schema import branch_of, branch_phase
from experiments.core.paths import ROOT
from experiments.models.trainer import StudyTrainer
from experiments.runs import models, training
from experiments.runs.host import tuned_for_training
from experiments.runs.launch import launch
from experiments.runs.outcome import prunes_back
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.store import provenance
from experiments.store.records import Store
from experiments.tasks import COMPONENTS, GATES_OF_TASK, TASKS, make_task
from experiments.tasks.tinystories.task import continued

# one of the tasks on a pretrained model: they differ only in their questions; tinystories has a test of its own below
OTHERS = {name for name, task in TASKS.items() if task.usual_model != "none"} - {"wikisql_easy"} | {"tinystories"}
FITTING = [(task, gate) for task, gates in GATES_OF_TASK.items() if task not in OTHERS for gate in gates]
PAIRS = [(task, gate) for task, gate in FITTING if not COMPONENTS[gate].given]
SLOW = ("conv", "lora", "adapter", "prune")


@pytest.mark.parametrize(
    ("task", "gate"), [pytest.param(*pair, marks=[pytest.mark.slow] if pair[1] in SLOW else []) for pair in PAIRS]
)
def test_every_pair_goes_from_configuration_to_record(tmp_path, task, gate):
    steps = 3 if gate in SLOW else 12
    small = {"gate__K": 4, "train__steps": steps, **ALL}
    configs = [smoke(tmp_path, task, gate, seed__value=s, **small) for s in range(2)]
    outcomes = launch(configs)
    assert [o.status for o in outcomes] == ["complete"] * 2
    for config, outcome in zip(configs, outcomes, strict=True):
        checked(config, outcome, steps)
    assert not (tmp_path / "scratch").exists() or not list((tmp_path / "scratch").rglob("step-*"))


def test_a_diverged_run_has_a_status_and_no_scores(tmp_path):
    alone = [smoke(tmp_path / "calm", seed__value=seed) for seed in range(2)]
    wild = smoke(tmp_path, seed__value=1, train__lr=1e30)
    (undisturbed, _), (calm, wild) = launch(alone), launch([smoke(tmp_path, seed__value=0), wild])
    record, expected, got = (json.loads(one.path.read_text()) for one in (wild, undisturbed, calm))
    assert (calm.status, wild.status, record["status"]) == ("complete", "diverged", "diverged")
    assert untimed(got["phases"]) == untimed(expected["phases"]), "the others are the same to the bit"
    phase = record["phases"]["grown"]
    assert phase["diverged_at"] >= 0
    assert not {"soft", "truncated", "t"} & set(phase)
    assert "diverged" in wild.message


def test_smoke_and_dirty_runs_go_to_scratch(monkeypatch):
    clean, dirty = provenance.Code("c", True, "git"), provenance.Code("c", False, "git")
    for code, profile, place in (
        (clean, "full", provenance.ROOT / "runs"),
        (dirty, "full", identity.SCRATCH / "results"),
        (clean, "smoke", identity.SCRATCH / "results"),
    ):
        monkeypatch.setattr(identity, "code", lambda code=code: code)
        assert Run.of(compose({"profile": profile})).root == place
    assert str(Run.of(compose({}, {"results": "elsewhere"})).root) == "elsewhere"


@pytest.mark.parametrize("task", ["regression1d", "cora"])
def test_a_stacked_run_equals_the_plain_run_of_its_seed(tmp_path, task):
    configs = [
        smoke(tmp_path, task, seed__value=s, schedule__lambda0=price, train__steps=30, phases=["grown"])
        for s, price in ((0, 1e-4), (1, 1e-2), (2, 1e-4))
    ]
    together = [json.loads(o.path.read_text())["phases"]["grown"] for o in launch(configs)]
    for config, stacked in zip(configs, together, strict=True):
        elsewhere = config.model_copy(update={"results": str(tmp_path / "plain")})
        (outcome,) = launch([elsewhere])
        alone = json.loads(outcome.path.read_text())["phases"]["grown"]
        assert stacked["t"] == pytest.approx(alone["t"], abs=1e-4)
        assert stacked["count"] == alone["count"]
        for mode in ("soft", "truncated", "gates_kept"):
            assert stacked[mode] == pytest.approx(alone[mode], rel=1e-2, abs=1e-6)


@pytest.mark.parametrize(
    ("grown", "high", "t", "outcome"),
    [
        ([3], [4], [3.0], "yes"),
        ([3], [5], [4.0], "partial"),
        ([3], [8], [6.5], "no"),
        ([3, 2], [3, 9], [2.0, 6.4], "no"),
        ([2], [1], [0.0], "yes"),
        ([3, 2], [3, 4], [2.0, 3.0], "partial"),
    ],
)
def test_prunes_back_follows_the_papers_definition(grown, high, t, outcome):
    """Rounded counts decide "yes", the continuous boundary decides "partial". Runs start at t = 7."""
    got = prunes_back(grown, high, t, [7.0] * len(t))
    assert got["outcome"] == outcome


FACTORS = [0.1, 1.0, 10.0]
NAMES = ["continue_0p1", "continue_1", "continue_10"]


@pytest.mark.parametrize("K", [6, None])
def test_a_branch_is_a_new_training_from_the_grown_parameters(tmp_path, K):
    """Compare with two trainers in sequence; the second has its own optimiser and schedules."""
    keys = {"train.steps": 40, "gate.K": K, "gate.t0": 1.5, "continue_with": FACTORS, "phases": ["grown"]}
    config = smoke(tmp_path, **keys, engine="torch")
    launch([config])
    curves = Store(tmp_path / "results").curves(run_id(config))
    task = make_task(config, torch.device("cpu"))
    grown = learner_of(Stack.of(config), task)
    batches = task.batches(config.train, config.seed.value)
    StudyTrainer(grown, batches, task.loss, plan_of(Stack.of(config), len(task.train)), progress="never").fit()
    for factor, name in zip(FACTORS, NAMES, strict=True):
        branch = Stack.of(branch_of(config, factor))
        fresh = learner_of(branch, task)
        fresh.restore(grown.state())
        history = StudyTrainer(fresh, batches, task.loss, plan_of(branch, len(task.train)), progress="never").fit()
        assert np.array_equal(history.curves["task"][:, 0].astype(np.float32), curves[f"{name}.task"])
        assert np.array_equal(history.curves["t"][:, 0].astype(np.float32), curves[f"{name}.t"])


def test_a_model_that_diverged_has_diverged_branches(tmp_path):
    rates = {"train.lr": 1e-3}, {"train.lr": 1e30, "seed.value": 1}
    calm_record, record = trained(*(smoke(tmp_path, **own, continue_with=FACTORS) for own in rates))
    assert (calm_record["status"], record["status"]) == ("complete", "diverged")
    assert [record["phases"][name]["diverged_at"] for name in NAMES] == [0, 0, 0]
    assert not {"t", "soft", "truncated"} & set(record["phases"]["continue_1"])


def test_continue_with_changes_the_run_id_only_if_set():
    plain, branched = compose(), compose({}, {"continue_with": FACTORS})
    assert run_id(compose({}, {"continue_with": []})) == run_id(plain) != run_id(branched)
    assert [branch_phase(factor) for factor in FACTORS] == NAMES
    fixed = compose({"method": "fixed"}, {"method.count": 3})
    assert run_id(fixed.model_copy(update={"continue_with": FACTORS})) == run_id(fixed)


flushes = pytest.mark.skipif(
    not (torch.set_flush_denormal(True) and torch.set_flush_denormal(False)), reason="this processor cannot flush them"
)


@flushes
def test_the_callers_denormal_setting_is_restored(tmp_path):
    def is_zero():
        return float(torch.tensor(1e-40) * 0.5) == 0

    with tuned_for_training():
        assert is_zero()
        with tuned_for_training():
            pass
        assert is_zero()  # the inner context did not end the outer one's setting
    assert not is_zero()
    with pytest.raises(RuntimeError, match="on the way"), tuned_for_training():
        raise RuntimeError("on the way")
    assert not is_zero()
    training.train_stack(Stack.of(smoke(tmp_path)))
    assert not is_zero()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is getrusage's")
def test_peak_memory_excludes_the_parent_process():
    """The child of a 700 MiB process reports its own memory: less at first, about 100 MiB more afterwards."""
    child = (
        "from experiments.runs.host import peak_mib; before = peak_mib(); much = bytearray(100 * 2**20); "
        "print(before, peak_mib())"
    )
    parent = f"import subprocess, sys; much = bytearray(700 * 2**20); subprocess.run([sys.executable, '-c', {child!r}])"
    done = subprocess.run([sys.executable, "-c", parent], cwd=ROOT, capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert 10 < before < 700
    assert 90 < after - before < 200


GATES = [gate for gate in GATES_OF_TASK["tinystories"] if not COMPONENTS[gate].given]


def task_of(**overrides):
    keys = {"gate.width": 16, "task.context": 16, "train.batch": 4, "progress": "never", **overrides}
    config = compose({"task": "tinystories", "gate": "heads", "profile": "smoke"}, keys)
    return config, make_task(config, torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
def test_a_smoke_run_and_its_model_in_a_fresh_process(tmp_path, gate):
    config = compose(
        {"task": "tinystories", "gate": gate, "profile": "smoke"},
        {"results": str(tmp_path), "progress": "never", "train.steps": 6, "save": "deployed", **ALL},
    )
    (outcome,) = launch([config])
    record, curves = checked(config, outcome, 6)
    assert not list((tmp_path / "scratch").rglob("step-*"))
    grown = record["phases"]["grown"]
    assert len(grown["t"]) == config.gate.groups
    assert len(grown["prefixes"]) == max(grown["count"]) - 1
    assert set(grown["samples"]) == {"soft", "truncated"}
    assert set(record["phases"]["fixed"]["samples"]) == {"truncated"}
    assert len(grown["samples"]["soft"]) == 20
    assert curves["grown.held_step"].tolist() == list(range(1, 7))
    assert curves["grown.held"][-1] < curves["grown.held"][0] < 5
    program = (
        "import torch; from experiments.runs import models; from experiments.tasks.tinystories.task import continued\n"
        f"model = models.load_model({str(outcome.path)!r})\n"
        "print(continued(model, torch.tensor([0]), 20, 128, torch.Generator().manual_seed(0)).tolist())"
    )
    done = programs.run_code(program, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    here = continued(models.load_model(outcome.path), torch.tensor([0]), 20, 128, torch.Generator().manual_seed(0))
    assert json.loads(done.stdout) == here.tolist()


def test_bits_per_character_sum_all_nats_over_all_characters():
    config, task = task_of()

    class Even(torch.nn.Module):
        def forward(self, tokens):
            return torch.zeros(*tokens.shape, len(task.characters))

    predicted = task.held[1:]
    per_character = len(predicted) / int((predicted != 0).sum())
    bits = float(task.evaluate(Even())["bits_per_character"])
    assert bits == pytest.approx(math.log2(len(task.characters)) * per_character)
    model, total = learner_of(Stack.of(config), task).model, 0.0
    for start in range(0, len(task.held) - 1, 16):
        window = torch.from_numpy(task.held[start : start + 17].astype(np.int64))
        chances = model(window[None, :-1])[0].log_softmax(-1)
        total -= float(chances[torch.arange(len(window) - 1), window[1:]].detach().double().sum())
    ours = float(task.evaluate(model)["bits_per_character"].detach())
    assert ours == pytest.approx(total / math.log(2) / int((predicted != 0).sum()), rel=1e-6)


def test_validation_stories_come_from_the_training_text():
    (_, test), (_, validation) = (task_of(**{"task.split": split}) for split in ("test", "validation"))
    assert len(validation.train) + len(validation.held) == len(test.train)
    assert len(test.characters) == len(validation.characters)
