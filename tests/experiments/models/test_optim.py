"""AdamW with quantised moments learns as AdamW in float32 does, in a third of its memory, and resumes exactly."""

import importlib.util
import sys

import pytest
import torch
from stopping import Stop, stop_after
from torch import nn

import ngn
from experiments.models.trainer import EightBitAdamW, StudyTrainer
from ngn.losses import Supervised
from ngn.train.batches import FullBatches, Split
from ngn.train.plan import TrainPlan

needs_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs torchao")


def trained(**settings):
    """Return the trainer of a map whose moments are quantised, and its task losses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)).bfloat16()
    x = torch.randn(32, 64).bfloat16()
    learner = ngn.learn_sizes(model, {"": ngn.Width(8)}, example=x, lambda0=1e-3)
    plan = TrainPlan(steps=60, lr=3e-3, optimizer="adamw", weight_decay=0.01)
    batches, criterion = FullBatches(Split(x, x.roll(1, 1))), Supervised(nn.functional.mse_loss)
    trainer = StudyTrainer(learner, batches, criterion, plan, progress="never", **{"eight_bit": True} | settings)
    return trainer, torch.from_numpy(trainer.fit().curves["task"][:, 0])


@needs_torchao
def test_it_learns_and_resumes_exactly_from_a_checkpoint_of_quantised_moments(tmp_path):
    with torch.compiler.set_stance("force_eager"):  # torchao compiles its update, which takes a minute
        _, whole = trained()
        with pytest.raises(Stop):
            trained(folder=tmp_path, checkpoint_seconds=1e-9, on_step=stop_after(1))
        trainer, again = trained(folder=tmp_path)
    assert whole[-1] < 0.5 * whole[0]
    torch.testing.assert_close(again, whole, rtol=1e-6, atol=0)
    assert all(p.dtype == torch.bfloat16 for p in trainer.learner.body_parameters())


@needs_torchao
def test_a_number_of_the_body_takes_two_bytes_of_moments():
    weight = nn.Parameter(torch.zeros(64, 256, dtype=torch.bfloat16))
    state = EightBitAdamW([{"params": [weight], "lr": 1e-3}]).blank_state(weight)
    held = [getattr(state[name], part) for name in ("exp_avg", "exp_avg_sq") for part in ("codes", "scale")]
    assert sum(t.numel() * t.element_size() for t in held) / weight.numel() == pytest.approx(2 + 2 * 4 / 256)
    small = nn.Parameter(torch.zeros(64, dtype=torch.bfloat16))
    assert EightBitAdamW([{"params": [small], "lr": 1e-3}]).blank_state(small)["exp_avg"].dtype == torch.float32


def refused(lr=1e-3, **settings):
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    learner = ngn.learn_sizes(model, {"": ngn.Width(4)}, example=torch.ones(1, 2))
    batches, plan = (
        FullBatches(Split(torch.zeros(3, 2), torch.zeros(3, 1))),
        TrainPlan(steps=1, lr=lr, optimizer="adamw"),
    )
    criterion = Supervised(nn.functional.mse_loss)
    StudyTrainer(learner, batches, criterion, plan, progress="never", eight_bit=True, **settings).fit()


def test_without_its_package_the_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao.optim", None)
    with pytest.raises(ModuleNotFoundError, match="adamw8bit' needs torchao: pip install torchao"):
        refused()


@pytest.mark.parametrize("settings", [{"lr": torch.tensor([1e-3, 1e-2])}, {"shrink": True}])
def test_what_it_cannot_do_is_refused(settings):
    with pytest.raises(ValueError, match=r"one learning rate for all replicas.*shrink=False"):
        refused(**settings)
