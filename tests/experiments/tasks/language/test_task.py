"""The language tasks on the small random model: training, scoring and resuming."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from stopping import Stop, stop_after

import ngn
from experiments.core.blocks import ConfigError, legal_name
from experiments.models.trainer import Trainer
from experiments.tasks.language import GSM8K, Adaptation, Spider, SQuAD, WikiSQLEasy, WikiSQLHard
from experiments.tasks.language.components import AdapterComponent, LoRAComponent
from experiments.tasks.language.task import AdaptationTask

KINDS = (WikiSQLEasy, WikiSQLHard, Spider, GSM8K, SQuAD)
LORA = LoRAComponent(component="lora", K=4, delta=-0.5, t0=1.0, targets=["q", "v"])
ADAPTER = AdapterComponent(component="adapter", K=4, delta=-0.5, t0=1.0)
TRAIN: Any = SimpleNamespace(batch=8)


def config(kind: type[Adaptation] = WikiSQLEasy, gate=LORA, **settings) -> Any:
    usual = {"max_new_tokens": 12, "perplexity_tokens": 64}
    task = kind(name=legal_name(kind, "name"), **(usual | settings))
    carried_out = {"profile": "smoke", "data_root": None, "model": None, "train": None, "progress": "never"}
    return SimpleNamespace(task=task, gate=gate, **carried_out)


def made(config: Any) -> tuple[AdaptationTask, ngn.CapacityLearner]:
    task = AdaptationTask(config.task, config, torch.device("cpu"))
    model = task.model(config.gate, 0, lambda group: ngn.CountGate(4, t0=1.0, delta=-0.5))
    return task, ngn.CapacityLearner(model)


def trainer(task: AdaptationTask, learner: ngn.CapacityLearner, steps: int, **rest) -> Trainer:
    plan = ngn.TrainPlan(steps=steps, lr=1e-2, accumulate=rest.pop("accumulate", 1))
    train = SimpleNamespace(batch=rest.pop("batch", 8))
    return Trainer(learner, task.batches(train, 0), task.loss, plan, weight=task.weight, progress="never", **rest)


@pytest.mark.parametrize("gate", [LORA, ADAPTER], ids=["lora", "adapter"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_task_is_trained_and_scored(kind, gate):
    settings = config(kind, gate)
    task, learner = made(settings)
    before = float(task.evaluate(learner.eval())["nats"])
    fit = trainer(task, learner, 3)
    fit.fit()
    scores = fit.evaluate(task.evaluate)
    assert list(scores) == list(task.n)
    assert all(value.dtype == torch.float64 and value.isfinite() for value in scores.values())
    assert float(scores["nats"]) < before
    assert task.info.name == settings.task.name
    assert len(learner.count()) == len(task.targets(gate)) == gate.groups
    assert [p for p in learner.parameters() if p.requires_grad]


def test_the_untrained_model_is_the_base_model():
    task, learner = made(config())
    batch = task.batches(TRAIN, 0).at(0)
    with torch.no_grad():
        assert torch.equal(task.loss(learner.eval(), batch), task.loss(task.base.model, batch))


def test_nats_are_the_mean_over_all_answer_tokens():
    task, learner = made(config())
    learner.eval()
    with torch.no_grad():
        total = sum(float(task.loss(learner, (batch, None))) * len(batch.targets) for batch in packs(task))
    expected = total / task.n["nats"]
    assert float(task.evaluate(learner)["nats"]) == pytest.approx(expected, rel=1e-5)
    assert task.n["nats"] == sum(len(batch.targets) for batch in packs(task))


def packs(task: AdaptationTask) -> list:
    from experiments.tasks.language.packing import pack

    return [pack([each], torch.device("cpu")) for each in task.held]


def test_a_run_that_was_stopped_in_mid_epoch_ends_bit_equal(tmp_path):
    steps = 11  # an epoch has eight

    def ended(folder, stop: int) -> tuple:
        task, learner = made(config())

        history = trainer(task, learner, steps, folder=folder, checkpoint_seconds=1e-9, on_step=stop_after(stop)).fit()
        return history, learner.state()

    whole, expected = ended(tmp_path / "whole", stop=steps)
    with pytest.raises(Stop):
        ended(tmp_path / "parts", stop=9)
    resumed, found = ended(tmp_path / "parts", stop=steps)
    assert resumed.resumed == 1
    assert (resumed.curves["task"] == whole.curves["task"]).all()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_validation_questions_are_held_out_of_the_training_questions(monkeypatch):
    monkeypatch.setattr("experiments.tasks.language.task.SMOKE", {"train_examples": None, "eval_examples": 8})
    everything, validation = (made(config(split=split))[0] for split in ("test", "validation"))
    assert validation.train + validation.held == everything.train
    assert len(validation.held) == 8


def test_limits_on_tokens_take_the_first_that_fit(monkeypatch):
    monkeypatch.setattr("experiments.tasks.language.task.SMOKE", {"train_examples": None, "eval_examples": 4})
    everything = made(config())[0].train
    sizes = [len(prompt) + len(target) for prompt, target in everything]
    assert made(config(train_tokens=sum(sizes[:5])))[0].train == everything[:5]
    short = sorted(sizes)[len(sizes) // 2]
    limited = made(config(max_tokens=short))[0].train
    assert limited == [each for each, size in zip(everything, sizes, strict=True) if size <= short]
    with pytest.raises(ConfigError, match="no question is left to train on"):
        made(config(max_tokens=1))


def test_gradient_checkpointing_changes_nothing_but_memory():
    plain, checkpointed = config(), config()
    checkpointed.model = SimpleNamespace(gradient_checkpointing=True)

    def gradient(settings: Any) -> torch.Tensor:
        task, learner = made(settings)
        task.loss(learner.train(), task.batches(TRAIN, 0).at(0)).backward()
        return torch.cat([p.grad.flatten() for p in learner.body_parameters()])

    torch.testing.assert_close(gradient(checkpointed), gradient(plain))
