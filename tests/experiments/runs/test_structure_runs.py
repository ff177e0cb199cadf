"""The manifold and the twist: equal results in stacks, after interruptions and after truncation."""

import copy

import pytest
import torch
from modes import hard_output

from experiments.config.compose import compose
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from ngn.gate import softplus_inverse
from ngn.train.trainer import Trainer

SMALL = {
    "manifold-latent": {"gate.width": 8, "gate.hidden_layers": 2, "train.batch": 32, "gate.K": 4, "task.D": 3},
    "twist-layers": {"gate.layers": 4, "gate.K": 3},
    "twist-chain": {"gate.K": 4, "gate.width": 5},
}
STEPS = 12


def configuration(name, seed=0, **overrides):
    task, gate = name.split("-")
    keys = {"seed.value": seed, "train.steps": STEPS, "gate.t0": 0.8, "train.lr": 1e-2, **SMALL[name], **overrides}
    return compose({"task": task, "gate": gate, "profile": "smoke"}, keys)


def trainer_of(configs, folder=None, on_step=None):
    stack = Stack.of(*configs)
    train = stack.first.train
    task = make_task(stack.first, torch.device("cpu"))
    learner = learner_of(stack, task)
    batches = task.batches(train, stack.seeds)
    plan = plan_of(stack, task.samples(train))
    return task, Trainer(
        learner, batches, task.loss, plan, folder=folder, checkpoint_seconds=1e-9, progress="never", on_step=on_step
    )


def spread(learner, sizes):
    """Put the boundaries at ``sizes``."""
    with torch.no_grad():
        for group, t in zip(learner.axes, sizes, strict=True):
            group.capacity.tau.copy_(softplus_inverse(t))


@pytest.mark.parametrize("name", SMALL)
def test_a_stack_trains_each_seed_as_it_would_alone(name):
    pack = [configuration(name, seed) for seed in (3, 8)]
    _, stacked = trainer_of(pack)
    together = stacked.fit().curves
    for r, config in enumerate(pack):
        _, plain = trainer_of([config])
        alone = plain.fit().curves
        for curve in ("loss", "task", "t"):
            assert together[curve][:, r] == pytest.approx(alone[curve][:, 0], rel=1e-4, abs=1e-6)
        for key, p in plain.learner.model.named_parameters():
            other = stacked.learner.model.get_parameter(key)[r]
            assert torch.allclose(p, other, atol=1e-4), key


@pytest.mark.parametrize("name", SMALL)
def test_an_interrupted_training_equals_an_uninterrupted_one(name, tmp_path):
    _, whole = trainer_of([configuration(name)])
    expected = whole.fit()

    def dies(step):
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer_of([configuration(name)], tmp_path, dies)[1].fit()
    _, again = trainer_of([configuration(name)], tmp_path)
    got = again.fit()
    assert got.resumed == 1
    for curve, values in expected.curves.items():
        assert (got.curves[curve] == values).all()
    for key, p in whole.learner.model.named_parameters():
        assert torch.equal(p, again.learner.model.get_parameter(key))


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("replicas", [None, 2])
def test_the_deployed_model_equals_the_hard_forward(name, replicas):
    task, trainer = trainer_of([configuration(name, seed) for seed in range(replicas or 1)])
    trainer.fit()
    learner = trainer.learner
    spread(learner, [1.2, 0.2, 2.7, 0.9][: len(learner.axes)])
    x = task.held.inputs
    for r in [None] if replicas is None else range(replicas):
        hard, small = hard_output(learner, x), learner.deploy(r)
        want = hard if r is None else hard[r]
        assert torch.allclose(small(x), want, atol=1e-5)
        assert float(want.detach().abs().max()) > 1e-2, "an output of zeros would prove nothing"
        assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in learner.model.parameters())


def test_layers_reduced_to_the_identity_are_removed():
    task, trainer = trainer_of([configuration("twist-layers")])
    learner = trainer.learner
    spread(learner, [0.1, 1.4, 0.4, 0.1])
    small = learner.deploy()
    assert learner.count().tolist() == [1, 2, 1, 1]
    assert task.describe(small) == {"depth": 2}, "the last layer has no identity, so it counts with one map"
    assert not any(isinstance(module, torch.nn.Identity) for module in small.modules())
    assert sum(p.numel() for p in small.parameters()) == 2 * 6
    x = task.held.inputs
    assert torch.allclose(small(x), hard_output(learner, x), atol=1e-6)


def test_a_chain_is_truncated_after_its_last_retained_layer():
    task, trainer = trainer_of([configuration("twist-chain")])
    trainer.fit()
    learner = trainer.learner
    before = copy.deepcopy(learner.model.group.bank)
    spread(learner, [1.3])
    small = learner.deploy()
    assert task.describe(small) == {"depth": 2}
    x = task.held.inputs
    both = before.components(x)[:2]
    assert torch.allclose(small(x), both.sum(0), atol=1e-6), "w_k = 1"


def test_each_group_has_its_own_price_and_weights():
    config = compose({"task": "twist", "schedule": "dec_lambda_inc_r"})
    capacities = [group.capacity for group in learner_of(Stack.of(config), make_task(config, torch.device("cpu"))).axes]
    prices = torch.logspace(-1, -5, 10, dtype=torch.float64)
    ratios = torch.linspace(0.5, 0.75, 10, dtype=torch.float64)
    for capacity, price, r in zip(capacities, prices, ratios, strict=True):
        assert torch.allclose(capacity.lambda0, price, rtol=1e-12)
        assert torch.allclose(capacity.w, r ** torch.arange(10, dtype=torch.float64))
    same = compose({"task": "twist"})
    groups = learner_of(Stack.of(same), make_task(same, torch.device("cpu"))).axes
    assert {(float(g.capacity.lambda0), float(g.capacity.r)) for g in groups} == {(1e-3, 0.5)}


def test_a_fixed_model_has_the_count_of_each_layer_and_its_weights():
    counts = [1, 3, 1, 2]
    overrides = {**SMALL["twist-layers"], "method.count": counts, "gate.r_last": 0.75}
    config = compose({"task": "twist", "method": "fixed", "profile": "smoke"}, overrides)
    task = make_task(config, torch.device("cpu"))
    learner = learner_of(Stack.of(config), task, count=counts)
    assert learner.count().tolist() == counts
    assert [group.bank.K for group in learner.axes] == counts
    assert learner.axes[1].capacity.w.tolist() == pytest.approx([1, (0.5 + 0.25 / 3), (0.5 + 0.25 / 3) ** 2])
    trainer = Trainer(
        learner, task.batches(config.train, 0), task.loss, plan_of(Stack.of(config), 64), progress="never"
    )
    losses = trainer.fit().curves["loss"]
    assert losses[-1] < losses[0]
    assert task.describe(learner.deploy()) == {"depth": 2}
