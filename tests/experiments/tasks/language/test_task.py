"""The language tasks on the small random model: training, scoring and resuming."""

from types import SimpleNamespace

import pytest
import torch
from stopping import resumed

import ngn
from experiments.config.compose import compose
from experiments.core.blocks import ConfigError
from experiments.models.trainer import StudyTrainer
from experiments.tasks import make_task
from experiments.tasks.language.task import AdaptationTask

TASKS = ("wikisql_easy", "wikisql_hard", "spider", "gsm8k", "squad")
TRAIN = SimpleNamespace(batch=8)


def made(task="wikisql_easy", gate="lora", **settings):
    own = {"max_new_tokens": 12, "perplexity_tokens": 64, "train_examples": None, **settings}
    keys = {f"task.{name}": value for name, value in own.items()} | {"gate.K": 4, "progress": "never"}
    config = compose({"task": task, "gate": gate, "profile": "smoke"}, keys)
    made = make_task(config, torch.device("cpu"))
    assert isinstance(made, AdaptationTask)
    return made, ngn.Learner(made.model(config.gate, 0, lambda group: ngn.CountGate(4, t0=1.0, delta=-0.5)))


def trainer(task, learner, steps, **rest):
    plan = ngn.TrainPlan(steps=steps, lr=1e-2, accumulate=rest.pop("accumulate", 1))
    train = SimpleNamespace(batch=rest.pop("batch", 8))
    return StudyTrainer(learner, task.batches(train, 0), task.loss, plan, weight=task.weight, progress="never", **rest)


@pytest.mark.parametrize("gate", ["lora", "adapter"])
@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_trained_and_scored(name, gate):
    task, learner = made(name, gate)
    before = float(task.evaluate(learner.eval())["nats"])
    fit = trainer(task, learner, 3)
    fit.fit()
    scores = fit.evaluate(task.evaluate)
    assert list(scores) == list(task.n)
    assert all(value.dtype == torch.float64 and value.isfinite() for value in scores.values())
    assert float(scores["nats"]) < before
    assert task.info.name == name
    assert len(learner.count()) == {"lora": 4, "adapter": 2}[gate]
    assert [p for p in learner.parameters() if p.requires_grad]


def test_the_untrained_model_is_the_base_model():
    task, learner = made()
    batch = task.batches(TRAIN, 0).at(0)
    with torch.no_grad():
        assert torch.equal(task.loss(learner.eval(), batch), task.loss(task.base.model, batch))


def test_nats_are_the_mean_over_all_answer_tokens():
    task, learner = made()
    learner.eval()
    with torch.no_grad():
        total = sum(float(task.loss(learner, (batch, None))) * len(batch.targets) for batch in packs(task))
    expected = total / task.n["nats"]
    assert float(task.evaluate(learner)["nats"]) == pytest.approx(expected, rel=1e-5)
    assert task.n["nats"] == sum(len(batch.targets) for batch in packs(task))


def packs(task):
    from experiments.tasks.language.packing import pack

    return [pack([each], torch.device("cpu")) for each in task.held]


def test_a_run_that_was_stopped_in_mid_epoch_ends_bit_equal(tmp_path):
    resumed(lambda **settings: trainer(*made(), steps=11, **settings), tmp_path, 9)  # an epoch has eight


def test_validation_questions_are_held_out_of_the_training_questions(monkeypatch):
    monkeypatch.setattr("experiments.tasks.language.task.SMOKE", {"train_examples": None, "eval_examples": 8})
    everything, validation = (made(split=split)[0] for split in ("test", "validation"))
    assert validation.train + validation.held == everything.train
    assert len(validation.held) == 8


def test_limits_on_tokens_take_the_first_that_fit(monkeypatch):
    monkeypatch.setattr("experiments.tasks.language.task.SMOKE", {"train_examples": None, "eval_examples": 4})
    everything = made()[0].train
    sizes = [len(prompt) + len(target) for prompt, target in everything]
    assert made(train_tokens=sum(sizes[:5]))[0].train == everything[:5]
    short = sorted(sizes)[len(sizes) // 2]
    limited = made(max_tokens=short)[0].train
    assert limited == [each for each, size in zip(everything, sizes, strict=True) if size <= short]
    with pytest.raises(ConfigError, match="no question is left to train on"):
        made(max_tokens=1)


def test_gradient_checkpointing_changes_nothing_but_memory(monkeypatch):
    def gradient():
        task, learner = made()
        task.loss(learner.train(), task.batches(TRAIN, 0).at(0)).backward()
        return torch.cat([p.grad.flatten() for p in learner.body_parameters()])

    plain, fresh = gradient(), AdaptationTask.fresh

    def recomputing(task, *given):
        task.recomputes = True
        return fresh(task, *given)

    monkeypatch.setattr(AdaptationTask, "fresh", recomputing)
    torch.testing.assert_close(gradient(), plain)
