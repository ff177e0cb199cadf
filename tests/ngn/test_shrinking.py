"""Cut in place: the same model, optimiser and deployed copy as a masked twin's, with smaller tensors."""

import copy
import pickle

import pytest
import torch
from axes import MODELS, K, X, model_of
from cuttable import OPTIMIZERS, optimizer_of, steps, twins, two_maps
from modes import hard_output
from sizable import Layers, Plus, chain
from structures import STRUCTURES, awake
from structures import model_of as stack_of
from torch import nn
from torch.nn.utils import parametrizations
from traceable import DenseNet, Inception, UNet, example_of, network

import ngn
from ngn.cut.truncation import deploy
from ngn.cuts import outputs
from ngn.gate import softplus_inverse
from ngn.learner.shrinking import shrink
from ngn.methods.orders import Order


def assert_same_training(learner, optimizer, twin, other, x, **tolerance):
    """Before and after further steps, ``learner``, which is cut here, is ``twin``, which is masked."""
    tolerance = tolerance or {"rtol": 1e-9, "atol": 1e-11}
    before = dict(learner.named_parameters())
    wanted = hard_output(learner, x)
    small = learner.deploy(unsettled="allow") if learner.replicas is None else learner.deploy(0, unsettled="allow")
    assert learner.shrink(optimizer)
    assert not learner.shrink(optimizer)
    for mode in ("hard", "kept", "soft"):
        with learner.mode(mode):
            torch.testing.assert_close(learner(x), wanted, **tolerance)
    again = learner.deploy(unsettled="allow") if learner.replicas is None else learner.deploy(0, unsettled="allow")
    for (name, p), q in zip(small.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(p, q), name
    assert all(p is before[name] for name, p in learner.named_parameters() if name in before and "layers" not in name)
    assert torch.equal(learner.count(), twin.count())
    for each, one in ((learner, optimizer), (twin, other)):
        steps(each, one, x)
    torch.testing.assert_close(learner(x), twin(x), **tolerance)
    for r in [None] if learner.replicas is None else range(learner.replicas):
        one, two = (each.deploy(r, unsettled="allow").state_dict() for each in (learner, twin))
        for (name, p), q in zip(one.items(), two.values(), strict=True):
            torch.testing.assert_close(p, q, msg=name, **tolerance)
    for p in learner.parameters():
        for value in optimizer.state.get(p, {}).values():
            assert not isinstance(value, torch.Tensor) or value.numel() == 1 or value.shape == p.shape


@pytest.mark.parametrize("r", [0.8, 1.0])
@pytest.mark.parametrize("name", MODELS)
def test_every_structure_trains_on_as_if_masked(name, r):
    learner = ngn.Learner(model_of(name, ngn.CountGate(K, t0=1.2, r=r, commit=0.5)))
    assert_same_training(*twins(learner, X), X)
    assert learner.axes[0].capacity.all_open == (r == 1.0)
    assert learner.masked == []


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS.keys() - {"ours"}))
@pytest.mark.parametrize("name", ["slices", "channels", "residuals", "head-bank"])
def test_every_optimiser_is_cut(name, kind):
    learner = ngn.Learner(model_of(name, ngn.CountGate(K, t0=1.2, commit=0.5)))
    assert_same_training(*twins(learner, X, kind), X)


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
@pytest.mark.parametrize("seeds", [3, [3, 4]], ids=["plain", "stack"])
def test_a_stack_is_cut_to_its_largest_count(structure, seeds):
    t0, replicas = (1.2, None) if isinstance(seeds, int) else ([2.2, 1.2], 2)
    gate = ngn.CountGate(5, t0=t0, commit=0.5, replicas=replicas)
    learner = ngn.Learner(stack_of(awake(structure.bank(5, seeds)), gate, True, seeds)).double()
    learner, optimizer, twin, other = twins(learner, structure.x(torch.float64), "ours" if replicas else "adam")
    assert_same_training(learner, optimizer, twin, other, structure.x(torch.float64))
    assert int(twin.count().max()) == learner.axes[0].K


@pytest.mark.parametrize("kind", [DenseNet, UNet, Inception], ids=lambda kind: kind.__name__)
def test_branches_of_a_concatenation_are_cut_one_before_the_other(kind):
    model, x, plan = network(kind), example_of(kind), ngn.TrainPlan(steps=20)
    learner = ngn.learn_sizes(model, example=x, budget=ngn.Budget(parameters="30%"))
    ngn.fit(learner, [x], None, lambda m, b: m(b).square().mean(), plan, progress="never")
    assert learner.masked == []
    assert learner.count().tolist() == [axis.K for axis in learner.axes] != [group.length for group in learner.found]
    learner.eval()
    torch.testing.assert_close(learner.deploy(example=x, unsettled="allow")(x), learner(x), rtol=1e-4, atol=1e-5)


def committed(model, sizes, **settings):
    learner = ngn.learn_sizes(
        model, sizes, commit=0.5, example=torch.randn(2, 8)[:, : model[0].in_features], **settings
    )
    learner.set_progress(0.6)
    return learner


def test_what_cannot_be_cut_stays_masked():
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 8))
    parametrizations.weight_norm(model[0])
    learner = committed(model, {"0": ngn.Width(t0=2.0)})
    wanted, x = learner(X.float()), X.float()
    assert not learner.shrink(optimizer_of(learner))
    assert learner.masked == ["0"]
    torch.testing.assert_close(learner(x), wanted)
    assert learner.deploy(example=x, unsettled="allow")[0].out_features == 3


def test_a_tensor_that_two_cuts_claim_stays_whole():
    middle = nn.Linear(6, 6)
    axes = [
        ngn.OrderedAxis(ngn.CountGate(3, t0=0.2, commit=0.5), outputs(middle, 2), name="a"),
        ngn.OrderedAxis(ngn.CountGate(6, t0=2.0, commit=0.5), outputs(middle), name="b"),
    ]
    learner = ngn.Learner(nn.Sequential(middle, *axes))
    learner.set_progress(0.6)
    assert not learner.shrink()
    assert learner.masked == ["a", "b"]


def test_no_size_ends_without_components():
    """Many modules fail without any: the last one is masked, and deployment removes it."""
    learner = committed(nn.Sequential(nn.Linear(6, 6)), {"0": ngn.Rank(4, t0=0.1)}, frozen=True)
    assert learner.shrink()
    assert learner.model[0].down.shape == (1, 6)
    assert learner.masked == []
    assert isinstance(learner.deploy(unsettled="allow")[0], nn.Linear)


def test_components_that_carry_noise_are_kept():
    from experiments.models.latent import GatedBottleneck, RankOneBank

    axis = GatedBottleneck(RankOneBank(4, 3, 5, 0), ngn.CountGate(5, t0=1.0, commit=0.5))
    learner = ngn.Learner(axis)
    learner.set_progress(0.6)
    assert not learner.shrink()


def test_a_schedule_that_starts_again_goes_on_from_what_is_left():
    learner = committed(nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 8)), {"": ngn.Width(6, t0=3.0)})
    assert learner.shrink()
    learner.axes[0].capacity.tau.data.add_(1.0)  # as the momentum of an optimiser would
    learner.set_progress(0.0)
    assert float(learner.size()) == pytest.approx(3.0)
    assert learner(X.float()).requires_grad
    with torch.no_grad():
        learner.axes[0].capacity.tau.fill_(softplus_inverse(1.0))
    learner.set_progress(0.6)
    assert learner.shrink()
    assert learner.model[0].out_features == 2


def test_the_matryoshka_of_a_cut_gate_is_that_of_all_candidates():
    order = Order("nested_dropout", ranks=None)
    gates = [ngn.CountGate(8, t0=2.0, commit=0.5, order=order, r=0.9) for _ in range(2)]
    gates[0].set_progress(0.6)
    gates[0].shrink(3)
    for gate in gates:
        gate.set_progress(0.7)
    assert torch.equal(gates[0].law, gates[1].law[:3])
    assert not gates[0].all_open


def test_shrink_cuts_axes_of_any_model():
    model = model_of("heads", ngn.CountGate(K, t0=9.0, r=1.0))
    axes = [model.axis]
    assert shrink(model, axes, [3])
    assert shrink(model, axes, [2])  # the starts of the parts of a fused map have moved
    other = model_of("heads", ngn.CountGate(K, t0=1.0, r=1.0))
    torch.testing.assert_close(model(X), deploy(other)(X), rtol=1e-4, atol=1e-6)


def test_a_copy_of_a_learner_has_none_of_its_callbacks():
    learner, calls = two_maps(t0=40.0), []
    learner.on_cut(calls.append)
    for copied in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        copied.set_progress(1.0)
        assert copied.shrink()
    assert calls == []
    learner.set_progress(1.0)
    assert learner.shrink()
    assert len(calls) == 1


def test_what_is_no_optimiser_and_no_average_is_refused():
    learner = two_maps()
    with pytest.raises(TypeError, match="expected an optimiser or several, not a StepLR"):
        learner.step(0.1, torch.optim.lr_scheduler.StepLR(optimizer_of(learner), 1))
    with pytest.raises(ValueError, match="average Sequential does not have the sizes"):
        two_maps().step(0.1, optimizer_of(learner), nn.Sequential(nn.Linear(8, 8)))


@pytest.mark.slow
def test_held_out_data_judge_after_layers_were_removed_on_the_way_to_a_budget():
    tower = Layers(*(Plus(chain(8, 6, 8)) for _ in range(9)))
    sizes, x = {"layers": ngn.Depth(), "layers.*": ngn.Width(6)}, X.float()
    learner = ngn.learn_sizes(tower, sizes, example=x, budget=ngn.Budget(parameters="15%"), commit=0.9)
    optimizer = torch.optim.Adam(learner.parameters(), 1e-3)
    for n in range(17):
        steps(learner, optimizer, x, 1)
        learner.step((n + 1) / 20, optimizer if n > 13 else None)
    assert len(learner.model.layers) < 9
    assert not learner.axes[0].capacity.committed
    learner.judge(lambda number: learner(x).square().mean(), 0)
    assert learner.confirmation.seen.any()
