"""The trainer equals torch's optimiser, replicas equal single runs, and resumed runs equal uninterrupted ones."""

import math
from contextlib import nullcontext

import pytest
import torch
from stopping import Stop, stop_after

import ngn
from experiments.models.mlp import MLPBank
from experiments.models.optim import ReplicaAdam
from experiments.models.parallel import ParallelModel
from experiments.models.trainer import StudyTrainer
from experiments.tasks.base import SupervisedTask
from ngn.components.base import OrderedSum
from ngn.components.low_rank import attach_low_rank
from ngn.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.schedules import CONSTANT, COSINE, POWER_DECAY
from ngn.train.batches import FullBatches, IteratedBatches, Split
from ngn.train.losses import Supervised, cross_entropy, mean_squared_error
from ngn.train.optim import clip_gradients, groups_of
from ngn.train.plan import TrainPlan

X = torch.linspace(-2, 2, 33).unsqueeze(-1)
Y = torch.sin(3 * X)
MSE = Supervised(mean_squared_error)


def learner_of(seeds, K=5, **gate):
    replicas = None if isinstance(seeds, int) else len(seeds)
    bank = MLPBank([1, 6, 6, 1], K, seeds)
    settings = {"lambda0": 1e-3, "alpha_max": 1e-3, "t0": 1.3, **gate}
    return CapacityLearner(ParallelModel(OrderedSum(bank, CountGate(K, replicas=replicas, **settings))))


def trainer_of(learner, steps=40, folder=None, on_step=None, **plan):
    settings = {"lr": 1e-2, "lr_boundary": 5e-2, "lr_shape": COSINE, "clip": 0.05, **plan}
    return StudyTrainer(
        learner,
        FullBatches(Split(X, Y)),
        MSE,
        TrainPlan(steps=steps, **settings),
        folder=folder,
        checkpoint_seconds=1e-9,
        progress="never",
        on_step=on_step,
    )


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


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_replica_adam_equals_torchs_adam_with_the_rate_of_each_replica(decay, kind):
    a = torch.randn(3, 4, 2)
    stacked = a.clone().requires_grad_()
    plain = [a[r].clone().requires_grad_() for r in range(3)]
    rates = torch.tensor([1e-3, 1e-2, 0.1], dtype=torch.float64)
    one = ReplicaAdam(groups_of([stacked], [], rates, rates, decay)[0], decoupled=kind == "adamw")
    torchs = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    many = [torchs([p], lr=float(lr), weight_decay=decay) for p, lr in zip(plain, rates, strict=True)]
    for _ in range(20):
        gradient = torch.randn(3, 4, 2)
        stacked.grad = gradient.clone()
        one.step()
        for r in range(3):
            plain[r].grad = gradient[r].clone()
            many[r].step()
    for r in range(3):
        assert torch.allclose(stacked[r], plain[r], rtol=1e-5, atol=1e-7)


def test_the_library_refuses_rates_of_their_own():
    plan = TrainPlan(steps=1, lr=torch.tensor([1e-3, 1e-2]))
    with pytest.raises(ValueError, match="a stack need one learning rate"):
        ngn.Trainer(learner_of([0, 1]), FullBatches(Split(X, Y)), MSE, plan, progress="never").fit()


@pytest.mark.parametrize("scope", ["joint", "separate", "body"])
def test_clipping_is_for_each_replica(scope):
    torch.manual_seed(1)
    body, tau = [torch.randn(3, 4, 5), torch.randn(3, 2)], [torch.randn(3, dtype=torch.float64)]
    gradients = [
        [torch.randn_like(p) * torch.tensor([0.001, 1.0, 50.0]).view(-1, *[1] * (p.dim() - 1)) for p in group]
        for group in (body, tau)
    ]
    for group, grads in zip((body, tau), gradients, strict=True):
        for p, g in zip(group, grads, strict=True):
            p.grad = g.clone()
    clip_gradients(body, tau, 0.5, scope, 3)
    for r in range(3):
        alone = [[torch.zeros_like(p[r]).requires_grad_() for p in group] for group in (body, tau)]
        for group, grads in zip(alone, gradients, strict=True):
            for p, g in zip(group, grads, strict=True):
                p.grad = g[r].clone()
        for part in {"joint": [alone[0] + alone[1]], "separate": alone, "body": [alone[0]]}[scope]:
            torch.nn.utils.clip_grad_norm_(part, 0.5)
        for group, ones in zip((body, tau), alone, strict=True):
            for p, one in zip(group, ones, strict=True):
                assert torch.allclose(p.grad[r], one.grad, rtol=1e-5, atol=1e-8)


def test_a_replica_follows_the_single_run_of_its_seed():
    """Gradients and the first hundred steps; long trajectories amplify rounding."""
    settings = {"lambda0": [1e-3, 1e-2, 1e-4], "t0": [0.5, 1.3, 3.0]}
    stack = learner_of([4, 0, 7], **settings)
    history = trainer_of(stack, steps=100).fit()
    for r, seed in enumerate((4, 0, 7)):
        plain = learner_of(seed, **{key: value[r] for key, value in settings.items()})
        alone = trainer_of(plain, steps=100).fit()
        assert abs(history.curves["t"][:, r] - alone.curves["t"][:, 0]).max() < 1e-4
        assert abs(history.curves["task"][:, r] - alone.curves["task"][:, 0]).max() < 1e-4
        for name, value in state(plain).items():
            assert torch.allclose(state(stack)[name][r], value, atol=2e-3), name


def test_a_diverging_replica_is_named_and_the_others_are_untouched():
    good, with_bad = learner_of([4, 0]), learner_of([4, 0])
    with torch.no_grad():
        with_bad.axes[0].bank.W2[1, 2, 0, 0] = math.nan
    fine = trainer_of(good, steps=30).fit()
    history = trainer_of(with_bad, steps=30).fit()
    assert fine.diverged_at.tolist() == [-1, -1]
    # f_2 is still zero at the first step, but zero times NaN is not.
    assert history.diverged_at.tolist() == [-1, 0]
    for name, value in state(good).items():
        assert torch.equal(value[0], state(with_bad)[name][0]), name


@pytest.mark.parametrize("cut", [1, 20, 40])
@pytest.mark.parametrize("seeds", [3, [3, 5]])
def test_resumed_training_is_bit_equal(tmp_path, cut, seeds):
    """Also with a rate for each replica."""
    whole, lr = learner_of(seeds), 1e-2 if seeds == 3 else torch.tensor([1e-2, 1e-3], dtype=torch.float64)
    expected = trainer_of(whole, lr=lr).fit()
    first = learner_of(seeds)
    with pytest.raises(Stop) if cut < 40 else nullcontext():  # 40: stopped after the training, before its use
        trainer_of(first, lr=lr, folder=tmp_path, on_step=stop_after(cut)).fit()
    second = learner_of(seeds)
    history = trainer_of(second, lr=lr, folder=tmp_path).fit()
    assert history.resumed == 1
    for name, value in state(whole).items():
        assert torch.equal(value, state(second)[name]), name
    for name, curve in expected.curves.items():
        assert (curve == history.curves[name]).all(), name


def test_autocast_keeps_the_boundary_in_float64():
    learner = learner_of(0)
    history = trainer_of(learner, autocast="bf16").fit()
    assert learner.controller_parameters()[0].dtype == torch.float64
    assert history.curves["task"][-1, 0] < history.curves["task"][0, 0]


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


def test_frozen_weights_are_read_before_the_first_step(tmp_path, monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).requires_grad_(False)
    attach_low_rank(model, ["0"], lambda number: CountGate(2), seed=0)
    learner, seen = CapacityLearner(model), []
    trainer = trainer_of(learner, steps=3, folder=tmp_path, on_step=lambda _: seen.extend(learner._digests.values()))
    trainer.loss = lambda model, batch: (model(X) - Y).square().mean()
    trainer.fit()
    assert len(seen) == 3
    assert seen[0] is seen[-1], "and not again"


def test_an_evaluation_computes_each_gate_once(monkeypatch):
    learner, counted = learner_of([0, 1]), []
    trainer = trainer_of(learner, steps=2)
    trainer.fit()
    gate, usual = learner.axes[0].capacity, CountGate.gates
    monkeypatch.setattr(CountGate, "gates", lambda self, mode: counted.append(mode) or usual(self, mode))
    passes = trainer.evaluate(lambda model: torch.stack([model(X) for _ in range(5)]))
    assert counted == ["soft"]
    with torch.no_grad():
        assert torch.equal(passes[-1], learner(X))
        gate.tau += 1
        assert not torch.equal(passes[-1], learner(X))
        assert torch.equal(trainer.evaluate(lambda model: model(X)), learner(X))


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

    gradients = []
    for batches, accumulate in ((Parts(), 3), (Whole(), 1)):
        learner = CapacityLearner(OrderedSum(MLPBank([1, 4, 1], 3, 0), CountGate(3, lambda0=1e-3))).double()
        plan = TrainPlan(steps=3, lr=1e-2, accumulate=accumulate)
        history = StudyTrainer(learner, batches, masked, plan, weight=kept, progress="never").fit()
        gradients.append([*learner.state().values(), torch.from_numpy(history.curves["task"])])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_equal_weights_change_no_bit():
    """And without weights, two halves of a batch give the gradient of the whole."""

    class Halves:
        def at(self, index):
            half = slice(0, 16) if index % 2 == 0 else slice(16, 32)
            return X[half], Y[half]

    states = []
    for weight in (None, lambda batch: 37.0):
        learner = CapacityLearner(OrderedSum(MLPBank([1, 4, 1], 3, 0), CountGate(3, lambda0=1e-3)))
        plan = TrainPlan(steps=10, lr=1e-2, accumulate=2)
        history = StudyTrainer(learner, Halves(), MSE, plan, weight=weight, progress="never").fit()
        states.append([*learner.state().values(), torch.from_numpy(history.curves["loss"])])
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))
    whole = CapacityLearner(OrderedSum(MLPBank([1, 4, 1], 3, 0), CountGate(3, lambda0=1e-3)))
    StudyTrainer(whole, IteratedBatches([(X[:32], Y[:32])]), MSE, TrainPlan(steps=10, lr=1e-2), progress="never").fit()
    for name, value in whole.named_parameters():
        torch.testing.assert_close(value, dict(learner.named_parameters())[name], rtol=1e-3, atol=1e-5)


def test_a_checkpoint_of_other_code_is_not_resumed(tmp_path, caplog):
    for identity, resumed in (({"commit": "a"}, 1), ({"commit": "b"}, 0)):
        folder = tmp_path / identity["commit"]
        trainer = trainer_of(learner_of(0), steps=20, folder=folder, on_step=stop_after(11))
        trainer.identity = {"commit": "a"}
        with pytest.raises(Stop):
            trainer.fit()
        again = trainer_of(learner_of(0), steps=20, folder=folder)
        again.identity = identity
        assert again.fit().resumed == resumed
    assert "commit was a and is now b" in caplog.text
