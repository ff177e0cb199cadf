"""AdamW with quantised moments learns as AdamW in float32 does, in a third of its memory, and resumes exactly."""

import importlib.util
import sys

import pytest
import torch
from stopping import Stop, stop_after
from torch import nn

import ngn
from experiments.models.optim import EightBitAdamW
from experiments.models.trainer import StudyTrainer
from ngn.losses import Supervised
from ngn.train.batches import FullBatches, Split
from ngn.train.plan import TrainPlan

needs_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs torchao")


@pytest.fixture
def eager():
    """torchao compiles its update, which takes a minute."""
    before = torch.compiler.set_stance("force_eager")
    with before:
        yield


class Words:
    """Sequences in which each token follows from the one before, except for one in ten."""

    def __init__(self, seed):
        self.seed = seed

    def at(self, index):
        draw = torch.Generator().manual_seed(1000 * self.seed + index)
        rows = [torch.randint(64, (8,), generator=draw)]
        for _ in range(15):
            wrong = torch.rand(8, generator=draw) < 0.1
            rows.append(torch.where(wrong, torch.randint(64, (8,), generator=draw), (3 * rows[-1] + 1) % 64))
        return torch.stack(rows, 1)


def llama(dtype):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    return LlamaForCausalLM(shape).to(dtype)


def loss(model, batch):
    logits = model(input_ids=batch[:, :-1]).logits.float()
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def trained(kind, dtype, seed=0, **settings):
    """Return the trainer and its task losses."""
    sizes = {f"model.layers.{n}.mlp": ngn.Width(8) for n in range(2)}
    learner = ngn.learn_sizes(llama(dtype), sizes, lambda0=1e-3)
    plan = TrainPlan(steps=60, lr=3e-3, optimizer="adamw", weight_decay=0.01)
    settings |= {"eight_bit": kind == "adamw8bit"}
    trainer = StudyTrainer(learner, Words(seed), loss, plan, progress="never", **settings)
    return trainer, torch.from_numpy(trainer.fit().curves["task"][:, 0])


@needs_torchao
@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_losses_are_those_of_adamw_in_float32_within_their_noise():
    pytest.importorskip("transformers")
    ends = {
        kind: torch.stack([trained(kind, dtype, seed)[1][-20:].mean() for seed in range(3)])
        for kind, dtype in (("adamw", torch.float32), ("adamw8bit", torch.bfloat16))
    }
    start = trained("adamw", torch.float32)[1][0]
    difference, noise = (ends["adamw8bit"] - ends["adamw"]).mean().abs(), ends["adamw"].std()
    assert difference < 2 * noise
    assert ends["adamw8bit"].mean() < start - 1, "and it learns"


@needs_torchao
@pytest.mark.usefixtures("eager")
def test_it_resumes_exactly_from_a_checkpoint_of_quantised_moments(tmp_path):
    pytest.importorskip("transformers")

    torch.manual_seed(1)
    _, whole = trained("adamw8bit", torch.bfloat16)
    torch.manual_seed(1)
    with pytest.raises(Stop):
        trained("adamw8bit", torch.bfloat16, folder=tmp_path, checkpoint_seconds=1e-9, on_step=stop_after(1))
    trainer, again = trained("adamw8bit", torch.bfloat16, folder=tmp_path)
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
