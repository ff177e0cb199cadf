"""Growth without a preset K computes the same as a preset K that is large enough."""

import pytest
import torch
from learners import put_price
from stopping import resumed
from structures import STRUCTURES

from experiments.models.parallel import ParallelModel
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised
from ngn.methods.base import CapacityExceeded
from ngn.methods.ngn import CountGate
from ngn.train.batches import FullBatches, Split
from ngn.train.plan import TrainPlan
from ngn.train.trainer import Trainer

PRESET = 40


def learner_of(structure, K, seeds, **gate):
    replicas = None if isinstance(seeds, int) else len(seeds)
    settings = {"alpha_max": 0.0, "beta": (6.0, 12.0), "r": 0.9, **gate}
    capacity = CountGate(K, replicas=replicas, **settings)
    learner = Learner(ParallelModel(OrderedSum(structure.bank(capacity.K, seeds), capacity)))
    learner.model.double()
    put_price(learner, -3.0)
    return learner


def trainer_of(learner, structure, **settings):
    def mse(output, target):
        return (output - target).square().mean((-2, -1))

    x = structure.x(torch.float64)
    rows = 4 if structure.name == "gcn" else len(x)
    y = torch.arange(rows * structure.out, dtype=torch.float64).sin().view(rows, structure.out)
    plan = TrainPlan(steps=80, lr=1e-2, lr_boundary=0.3, clip=0.5)
    return Trainer(learner, FullBatches(Split(x, y)), Supervised(mse), plan, progress="never", **settings)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
@pytest.mark.parametrize("seeds", [3, [3, 4]], ids=["plain", "stack"])
def test_grown_equals_preset(structure, seeds):
    free, preset = learner_of(structure, None, seeds), learner_of(structure, PRESET, seeds)
    assert free.axes[0].bank.K < 8
    a, b = trainer_of(free, structure).fit(), trainer_of(preset, structure).fit()
    grown = free.axes[0].bank.K
    assert 8 < grown < PRESET, "the boundary must have travelled for this to test anything"
    assert float(free.size().max()) > 4
    assert abs(a.curves["t"] - b.curves["t"]).max() < 1e-9
    assert abs(a.curves["loss"] - b.curves["loss"]).max() < 1e-9
    axis = 0 if isinstance(seeds, int) else 1
    learned = grown - getattr(free.axes[0].bank, "identity", False)  # an identity has no parameters
    for name, p in free.axes[0].bank.named_parameters():
        assert p.shape[axis] == learned
        assert torch.allclose(p, preset.axes[0].bank.get_parameter(name).narrow(axis, 0, learned), atol=1e-9), name
    assert torch.equal(free.count(), preset.count())


def test_resumed_growth_is_bit_equal(tmp_path):
    def trainer(**settings):
        return trainer_of(learner_of(STRUCTURES[0], None, [1, 2]), STRUCTURES[0], **settings)

    learner, _ = resumed(trainer, tmp_path, 40)
    assert learner.axes[0].bank.K > 8


def test_a_diverged_replica_does_not_stop_the_growth_of_the_others():
    calm, wild = learner_of(STRUCTURES[0], None, [1, 2]), learner_of(STRUCTURES[0], None, [1, 2])
    with torch.no_grad():
        wild.axes[0].capacity.tau[1] = float("nan")
    trainer_of(calm, STRUCTURES[0]).fit()
    history = trainer_of(wild, STRUCTURES[0]).fit()
    assert history.diverged_at.tolist() == [-1, 0]
    assert torch.allclose(calm.size()[0], wild.size()[0], atol=1e-9)
    assert wild.axes[0].bank.K >= 8


def test_growth_stops_with_a_message():
    with pytest.raises(CapacityExceeded, match=r"K_max = 9 components; raise K_max"):
        trainer_of(learner_of(STRUCTURES[0], None, 0, K_max=9), STRUCTURES[0]).fit()
