"""Language models with every component: smoke runs, their records, resuming, and files of deployed models."""

import json
import math

import numpy as np
import programs
import pytest
import torch
from modes import hard_output
from whole_runs import ALL, checked

import ngn
from experiments.config.compose import compose
from experiments.core.paths import ROOT
from experiments.runs import launch, models
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import COMPONENTS, GATES_OF_TASK, make_task
from experiments.tasks.tinystories.model import continued
from ngn.gate import softplus_inverse
from ngn.train.trainer import Trainer

GATES = [gate for gate in GATES_OF_TASK["tinystories"] if not COMPONENTS[gate].given]
SMALL = {"gate.width": 16, "task.context": 16, "train.batch": 4, "progress": "never"}


def configuration(gate, **overrides):
    return compose({"task": "tinystories", "gate": gate, "profile": "smoke"}, {**SMALL, **overrides})


@pytest.mark.slow
@pytest.mark.parametrize("gate", GATES)
def test_a_smoke_run_and_its_model_in_a_fresh_process(tmp_path, gate):
    config = compose(
        {"task": "tinystories", "gate": gate, "profile": "smoke"},
        {"results": str(tmp_path), "progress": "never", "train.steps": 6, "save": "deployed", **ALL},
    )
    (outcome,) = launch.launch([config])
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
        "import torch; from experiments.runs import models; from experiments.tasks.tinystories.model import continued\n"
        f"model = models.load_model({str(outcome.path)!r})\n"
        "print(continued(model, torch.tensor([0]), 20, 128, torch.Generator().manual_seed(0)).tolist())"
    )
    done = programs.run_code(program, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    here = continued(models.load_model(outcome.path), torch.tensor([0]), 20, 128, torch.Generator().manual_seed(0))
    assert json.loads(done.stdout) == here.tolist()


def trainer_of(config, folder=None, on_step=None):
    stack, task = Stack.of(config), make_task(config, torch.device("cpu"))
    learner = learner_of(stack, task)
    return task, Trainer(
        learner,
        task.batches(config.train, stack.seeds),
        task.loss,
        plan_of(stack, task.samples(config.train)),
        folder=folder,
        checkpoint_seconds=1e-9,
        progress="never",
        on_step=on_step,
        on_evaluate=lambda _, model: task.curve(model),
        evaluate_every=3,
    )


@pytest.mark.parametrize("gate", ["heads_slices", "states"])
def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path, gate):
    config = configuration(gate, **{"train.steps": 12})
    _, whole = trainer_of(config)
    expected = whole.fit()

    def dies(step):
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer_of(config, tmp_path, dies)[1].fit()
    _, again = trainer_of(config, tmp_path)
    got = again.fit()
    assert got.resumed == 1
    assert got.curves["held_step"].tolist() == [3, 6, 9, 12]
    for curve, values in expected.curves.items():
        assert (got.curves[curve] == values).all(), curve
    for key, p in whole.learner.model.named_parameters():
        assert torch.equal(p, again.learner.model.get_parameter(key)), key


@pytest.mark.parametrize("gate", GATES)
def test_the_deployed_model_and_smaller_prefixes_equal_the_hard_forward(gate):
    task, trainer = trainer_of(configuration(gate, **{"train.steps": 3, "gate.t0": 2.2}))
    trainer.fit()
    learner = trainer.learner
    x, _ = task.timed_batch()
    small = learner.deploy(example=x, unsettled="allow")
    assert not any(isinstance(module, ngn.Capacity) for module in small.modules())
    with torch.no_grad():
        for axis in learner.axes:
            axis.capacity.tau.copy_(softplus_inverse(0.2))
    wanted = hard_output(learner, x)
    with torch.no_grad():
        for axis in learner.axes:
            axis.capacity.tau.copy_(softplus_inverse(2.2))
    torch.testing.assert_close(ngn.deploy(learner.model, most=1)(x), wanted)
    assert not torch.equal(small(x), wanted)


def test_bits_per_character_sum_all_nats_over_all_characters():
    task, trainer = trainer_of(configuration("heads"))

    class Even(torch.nn.Module):
        def forward(self, tokens):
            return torch.zeros(*tokens.shape, len(task.characters))

    predicted = task.held[1:]
    per_character = len(predicted) / int((predicted != 0).sum())
    bits = float(task.evaluate(Even())["bits_per_character"])
    assert bits == pytest.approx(math.log2(len(task.characters)) * per_character)
    model, total = trainer.learner.model, 0.0
    for start in range(0, len(task.held) - 1, 16):
        window = torch.from_numpy(task.held[start : start + 17].astype(np.int64))
        chances = model(window[None, :-1])[0].log_softmax(-1)
        total -= float(chances[torch.arange(len(window) - 1), window[1:]].detach().double().sum())
    ours = float(task.evaluate(model)["bits_per_character"].detach())
    assert ours == pytest.approx(total / math.log(2) / int((predicted != 0).sum()), rel=1e-6)


def test_validation_stories_come_from_the_training_text():
    test, validation = (
        make_task(configuration("heads", **{"task.split": split}), torch.device("cpu"))
        for split in ("test", "validation")
    )
    assert len(validation.train) + len(validation.held) == len(test.train)
    assert len(test.characters) == len(validation.characters)
