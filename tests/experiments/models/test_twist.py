"""The twist: layers against the paper's equation; sizes, prices and weights per layer; what is truncated and fixed."""

import copy
import math

import pytest
import torch
from modes import hard_output

from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.methods.fixed import fixed_size
from experiments.models.depth import LayerStack, TanhBank
from experiments.models.trainer import StudyTrainer
from experiments.runs.phases import fixed_configuration, learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from experiments.tasks.generated.task import twist
from ngn.components.base import OrderedSum
from ngn.gate import softplus_inverse
from ngn.learner import Learner
from ngn.methods.ngn import CountGate


def test_the_teacher_composes_three_rotations():
    x = torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = x
    for _ in range(3):
        angle = 0.5 * x.norm(dim=-1)
        c, s = torch.cos(angle), torch.sin(angle)
        y = torch.stack([c * y[:, 0] - s * y[:, 1], s * y[:, 0] + c * y[:, 1]], -1)
    assert torch.allclose(twist(x, 0.5), y, atol=1e-12)


def test_targets_are_standardised_and_shared_by_all_seeds():
    task = make_task(compose({"task": "twist"}), torch.device("cpu"))
    y = task.train.targets.double()
    assert y.shape == (4096, 2)
    assert y.mean(0).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert y.square().mean(0).tolist() == pytest.approx([1, 1], abs=1e-6)
    other = make_task(compose({"task": "twist"}, {"seed.value": 3}), torch.device("cpu"))
    assert torch.equal(task.train.inputs, other.train.inputs)


def test_layers_follow_the_papers_equation():
    K, sizes = 4, (0.4, 1.3, 2.6)
    layers = [
        OrderedSum(TanhBank(2, K, 5, number, identity=number < 2), CountGate(K, t0=t, r=0.7, beta=(3.0, 3.0)))
        for number, t in enumerate(sizes)
    ]
    x = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    h = x
    for number, t in enumerate(sizes):
        bank, total = layers[number].bank.double(), torch.zeros_like(h)
        for k in range(K):
            weight = 0.7**k / (1 + math.exp(-3 * (t - k + 0.5)))
            j = k - (number < 2)
            f = h if j < 0 else torch.tanh(torch.stack([bank.W[j].T @ row for row in h]) + bank.b[j])
            total = total + weight * f
        h = total
    assert torch.allclose(Learner(LayerStack(layers))(x), h, atol=1e-12)


def test_the_fixed_run_of_layers_does_not_depend_on_the_price():
    counts = [1, 1, 1, 1, 3, 4, 8, 10, 10, 10]
    grown = compose({"task": "twist", "schedule": "dec_lambda_inc_r"}, {"seed.value": 2})
    alone = compose(
        {"task": "twist", "method": "fixed", "schedule": "inc_r"}, {"method.count": counts, "seed.value": 2}
    )
    assert run_id(fixed_configuration(grown, fixed_size(counts))) == run_id(alone)
    assert "-fixed1_1_1_1_3_4_8_10_10_10-s2-" in run_id(alone)
    other = compose({"task": "twist", "method": "fixed"}, {"method.count": counts, "seed.value": 2})
    assert run_id(other) != run_id(alone), "the weights of the layers differ"
    empty = fixed_configuration(grown, [0, *counts[1:]])
    assert empty.gate.delta == -0.5


SMALL = {"layers": {"gate.layers": 4, "gate.K": 3}, "chain": {"gate.K": 4, "gate.width": 5}}


def made(gate, **overrides):
    """The task, and a trainer of a small model."""
    keys = {"train.steps": 12, "gate.t0": 0.8, "train.lr": 1e-2, **SMALL[gate], **overrides}
    config = compose({"task": "twist", "gate": gate, "profile": "smoke"}, keys)
    task, stack = make_task(config, torch.device("cpu")), Stack.of(config)
    batches, plan = task.batches(config.train, stack.seeds), plan_of(stack, task.samples(config.train))
    return task, StudyTrainer(learner_of(stack, task), batches, task.loss, plan, progress="never")


def spread(learner, sizes):
    """Put the boundaries at ``sizes``."""
    with torch.no_grad():
        for group, t in zip(learner.axes, sizes, strict=True):
            group.capacity.tau.copy_(softplus_inverse(t))


def test_layers_reduced_to_the_identity_are_removed():
    task, trainer = made("layers")
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
    task, trainer = made("chain")
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
