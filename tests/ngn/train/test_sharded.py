"""Two gloo processes, for real: cut and wrapped again (DDP), sharded (FSDP), tensor parallel."""

from collections import OrderedDict

import pytest
import torch
import two_processes
from sizable import chain
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import ngn
from ngn.components.low_rank import LowRankLinear
from ngn.losses import Supervised
from ngn.train.batches import FullBatches, Split
from ngn.train.trainer import Trainer

X = torch.linspace(-2, 2, 512, dtype=torch.float64).view(64, 8).sin()
Y = X.roll(1, -1)
SIZES = {"a": ngn.Width(16, t0=8.0), "b": ngn.Width(8, t0=5.0)}
STEPS = 40


def two(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(OrderedDict(a=chain(8, 32, 8), b=chain(8, 16, 8))).double()


def made(budget, seed=0):
    if budget:
        sizes = {"a": ngn.Width(16), "b": ngn.Width(8)}
        return ngn.learn_sizes(two(seed), sizes, example=X, budget=ngn.Budget(parameters="50%"))
    return ngn.learn_sizes(two(seed), SIZES, example=X, lambda0=1e-2)


def optimizer_of(learner):
    groups = [{"params": learner.body_parameters()}, {"params": learner.controller_parameters(), "lr": 0.1}]
    return torch.optim.Adam(groups, lr=1e-2)


def step(called, learner, optimizer, n, share, after_backward=None):
    loss = (called(share(X)) - share(Y)).square().mean() + learner.penalty()
    optimizer.zero_grad()
    loss.backward()
    if after_backward is not None:
        after_backward()
    optimizer.step()
    learner.step((n + 1) / STEPS, optimizer)


def cut_and_wrapped_again(rank, budget):
    learner = made(budget)
    optimizer, called, cuts = optimizer_of(learner), DistributedDataParallel(learner), 0
    for n in range(STEPS):
        step(called, learner, optimizer, n, lambda x: x[rank::2])
        if learner.shrink(optimizer):
            called, cuts = DistributedDataParallel(learner, find_unused_parameters=True), cuts + 1
    assert cuts > (1 if budget else 0)
    assert learner.masked == []
    return learner.state()


def sharded(rank, budget):
    learner = made(budget)
    boundaries = learner.controller_parameters()
    fully_shard(learner.model, mesh=init_device_mesh("cpu", (2,)), ignored_params={*boundaries})
    optimizer = optimizer_of(learner)

    def average():
        for p in boundaries:
            distributed.all_reduce(p.grad)
            p.grad /= 2

    for n in range(STEPS):
        step(learner, learner, optimizer, n, lambda x: x[rank::2], average)
    assert learner.masked == ["a", "b"]
    return get_model_state_dict(learner, options=StateDictOptions(full_state_dict=True))


def parallel(rank, budget):
    alone, model = made(False), two()
    found = ngn.find_sizes(model, X)
    for part in (model.a, model.b):
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(part, init_device_mesh("cpu", (2,)), plan)
    learner = ngn.learn_sizes(model, SIZES, example=found, lambda0=1e-2)
    for each in (alone, learner):
        step(each, each, optimizer_of(each), 0, lambda x: x)
    torch.testing.assert_close(learner(X), alone(X), rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(learner(X), alone(X), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(learner.size(), alone.size(), rtol=1e-9, atol=1e-12)
    model.requires_grad_(False)
    torch.testing.assert_close(learner(X), alone(X), rtol=1e-9, atol=1e-12)
    return {}


def trained(rank, parts=2):
    """Trained by ``Trainer``. Initial values differ between processes; those of the first process are used."""
    torch.manual_seed(rank)
    gate = ngn.CountGate(4, t0=1.3, lambda0=1e-2, alpha_max=1e-2)
    learner = ngn.Learner(LowRankLinear(nn.Linear(8, 8), gate, seed=rank, name="map")).double()
    plan = ngn.TrainPlan(steps=12, lr=1e-2, lr_boundary=0.1, clip=0.1, optimizer="adamw", weight_decay=0.1)
    batches, loss = FullBatches(Split(X[rank::parts], Y[rank::parts])), Supervised(nn.functional.mse_loss)
    model = DistributedDataParallel(learner) if parts > 1 else learner
    Trainer(learner, batches, loss, plan, model=model, progress="never").fit()
    return learner.state()


@pytest.mark.slow
def test_processes_agree_and_follow_the_joint_batch(tmp_path):
    first, second = two_processes.results(tmp_path, trained, 2)
    for name, value in trained(0, 1).items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-9, atol=1e-12, msg=name)


def alone(budget):
    """Train in one process, in which ``step`` cuts the model."""
    learner = made(budget)
    optimizer = optimizer_of(learner)
    for n in range(STEPS):
        step(learner, learner, optimizer, n, lambda x: x)
    return learner


@pytest.mark.slow
@pytest.mark.parametrize("budget", [True, False])
def test_cut_and_wrapped_again_processes_follow_the_joint_batch(tmp_path, budget):
    first, second = two_processes.results(tmp_path, cut_and_wrapped_again, budget)
    for name, value in alone(budget).state().items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name].to(value), value, rtol=1e-6, atol=1e-9, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [True, False])
def test_sharded_weights_stay_masked_and_are_deployed_from_the_whole_state(tmp_path, budget):
    state, _ = two_processes.results(tmp_path, sharded, budget)
    learner = made(budget, seed=1)
    learner.load_state_dict(state)
    learner.resume(STEPS, 1.0)
    other = alone(budget)
    assert learner.count().tolist() == other.count().tolist()
    small = learner.deploy(example=X)
    # cut on the way, the other one lost gates that were not quite closed
    torch.testing.assert_close(small(X), other.deploy(example=X)(X), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_tensor_parallel_weights_take_the_coefficients(tmp_path):
    two_processes.results(tmp_path, parallel, False)
