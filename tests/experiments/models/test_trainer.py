"""The trainer equals torch's optimiser, replicas equal single runs, and resumed runs equal uninterrupted ones."""

import math

import pytest
import torch

from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel
from experiments.models.trainer import StudyTrainer
from experiments.tasks.base import SupervisedTask
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised, cross_entropy, mean_squared_error
from ngn.methods.ngn import CountGate
from ngn.schedules import CONSTANT, COSINE, POWER_DECAY
from ngn.train.batches import FullBatches, Split
from ngn.train.plan import TrainPlan
from ngn.train.trainer import Trainer

X = torch.linspace(-2, 2, 33).unsqueeze(-1)
Y = torch.sin(3 * X)
MSE = Supervised(mean_squared_error)


def learner_of(seeds, K=5, **gate):
    replicas = None if isinstance(seeds, int) else len(seeds)
    bank = MLPBank([1, 6, 6, 1], K, seeds)
    settings = {"lambda0": 1e-3, "alpha_max": 1e-3, "t0": 1.3, **gate}
    return Learner(ParallelModel(OrderedSum(bank, CountGate(K, replicas=replicas, **settings))))


def trainer_of(learner, steps=40, folder=None, on_step=None, **plan):
    settings = {"lr": 1e-2, "lr_boundary": 5e-2, "lr_shape": COSINE, "clip": 0.05, **plan}
    saved = {"folder": folder, "checkpoint_seconds": 1e-9, "progress": "never", "on_step": on_step}
    return StudyTrainer(learner, FullBatches(Split(X, Y)), MSE, TrainPlan(steps=steps, **settings), **saved)


def state(learner):
    return {name: p.detach().clone() for name, p in learner.model.named_parameters()}


@pytest.mark.parametrize("boundary", [CONSTANT, POWER_DECAY], ids=["constant", "falling"])
def test_steps_are_those_of_torch_adam_and_clip_grad_norm(boundary):
    ours, reference = learner_of(0), learner_of(0)
    trainer_of(ours, steps=25, weight_decay=0.01, lr_boundary_shape=boundary).fit()
    body, tau = reference.body_parameters(), reference.controller_parameters()
    optimizer = torch.optim.Adam([{"params": body, "lr": 1e-2, "weight_decay": 0.01}, {"params": tau, "lr": 5e-2}])
    for step in range(25):
        p = step / 25
        optimizer.param_groups[0]["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * p))
        optimizer.param_groups[1]["lr"] = 5e-2 * (1.0 if boundary is CONSTANT else 1 - p)
        reference.set_progress(p)
        t = reference.axes[0].capacity.t()
        price, alpha = 1e-3 * (1 - p), 1e-3 * max(0.0, 2 * p - 1)
        loss = ((reference(X) - Y) ** 2).mean() + price * t + alpha * torch.sin(math.pi * t) ** 2
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(body + tau, 0.05)
        optimizer.step()
    for name, value in state(reference).items():
        assert torch.allclose(value, state(ours)[name], rtol=1e-4, atol=1e-6), name


def test_the_library_refuses_rates_of_their_own():
    plan = TrainPlan(steps=1, lr=torch.tensor([1e-3, 1e-2]))
    with pytest.raises(ValueError, match="a stack need one learning rate"):
        Trainer(learner_of([0, 1]), FullBatches(Split(X, Y)), MSE, plan, progress="never").fit()


def test_curves_have_at_most_300_points_and_both_ends():
    history = trainer_of(learner_of(0), steps=320).fit()
    assert len(history.curves["step"]) == 300
    assert history.curves["step"][[0, -1]].tolist() == [0, 319]
    assert history.curves["t"].shape == (300, 1, 1)


def test_cross_entropy_of_stacks_with_shared_and_own_targets():
    output, target = torch.randn(3, 7, 4), torch.randint(4, (3, 7))
    for y in (target[0], target):
        got = cross_entropy(output, y)
        want = [torch.nn.functional.cross_entropy(output[r], y if y.dim() == 1 else y[r]) for r in range(3)]
        assert torch.allclose(got, torch.stack(want))


def test_evaluation_weighs_batches_by_their_samples():
    class Half(SupervisedTask):
        held, chunk = Split(X, Y), 30

        def metrics(self, output, target):
            return {"mse": mean_squared_error(output, target)}

        model = loss = None

    got = Half().evaluate(lambda x: 0.5 * x)["mse"]
    assert float(got) == pytest.approx(float(mean_squared_error(0.5 * X, Y)), rel=1e-6)


def masked(model, batch):
    x, y, mask = batch
    return ((model(x) - y).square().squeeze(-1) * mask).sum(-1) / mask.sum()


def kept(batch):
    return float(batch[2].sum())


@pytest.mark.parametrize("counts", [(1, 8, 3), (0, 5, 7), (4, 4, 4)])
def test_weighted_micro_batches_have_the_gradient_of_one_batch(counts):
    x, y = X[:24].double(), Y[:24].double()
    mask = torch.zeros(24, dtype=torch.float64)
    for part, count in enumerate(counts):
        mask[8 * part : 8 * part + count] = 1

    class Parts:
        def at(self, index):
            part = slice(8 * (index % 3), 8 * (index % 3) + 8)
            return x[part], y[part], mask[part]

    class Whole:
        def at(self, index):
            return x, y, mask

    def trained(batches, accumulate, weight=kept):
        learner = Learner(OrderedSum(MLPBank([1, 4, 1], 3, 0), CountGate(3, lambda0=1e-3))).double()
        plan = TrainPlan(steps=3, lr=1e-2, accumulate=accumulate)
        history = StudyTrainer(learner, batches, masked, plan, weight=weight, progress="never").fit()
        return [*learner.state().values(), torch.from_numpy(history.curves["task"])]

    parts = trained(Parts(), 3)
    torch.testing.assert_close(parts, trained(Whole(), 1), rtol=1e-9, atol=1e-12)
    if len(set(counts)) == 1:
        none, equal = (trained(Parts(), 3, weight) for weight in (None, lambda batch: 37.0))
        assert all(map(torch.equal, none, equal)), "equal weights change no bit"
        torch.testing.assert_close(parts, none, rtol=1e-9, atol=1e-12)
