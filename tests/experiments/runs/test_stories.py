"""Language models with every component: smoke runs, their records, and files of deployed models."""

import json
import math

import numpy as np
import programs
import pytest
import torch
from whole_runs import ALL, checked

from experiments.config.compose import compose
from experiments.core.paths import ROOT
from experiments.runs import launch, models
from experiments.runs.phases import learner_of
from experiments.runs.stack import Stack
from experiments.tasks import COMPONENTS, GATES_OF_TASK, make_task
from experiments.tasks.tinystories.model import continued

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
