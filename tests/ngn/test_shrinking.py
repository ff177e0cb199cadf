"""Cut in place: the same model, optimiser and deployed copy as a masked twin's, with smaller tensors."""

import copy
import pickle
import re
import warnings

import pytest
import torch
from axes import MODELS, K, X, model_of
from modes import hard_output
from sizable import Fused, Gated, Layers, Plus, chain, convs
from stopping import Stop, stop_after
from structures import STRUCTURES, awake
from structures import model_of as stack_of
from torch import nn
from torch.nn.utils import parametrizations
from traceable import AttentionUNet, C2f, DenseNet, Inception, UNet, example_of, network

import ngn
from experiments.models.optim import ReplicaAdam
from ngn.gate import softplus_inverse
from ngn.shrinking import shrink
from ngn.train.batches import FullBatches, Split
from ngn.train.optim import groups_of

OPTIMIZERS = {
    "sgd": lambda groups: torch.optim.SGD(groups, lr=1e-2, momentum=0.9, weight_decay=0.01),
    "adam": lambda groups: torch.optim.Adam(groups, lr=1e-2, amsgrad=True),
    "adamw": lambda groups: torch.optim.AdamW(groups, lr=1e-2),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, lr=1e-3, momentum=0.9, centered=True),
}


def optimizer_of(learner, kind="adam"):
    groups = [{"params": learner.body_parameters()}, {"params": learner.controller_parameters(), "weight_decay": 0.0}]
    return OPTIMIZERS[kind]([group for group in groups if group["params"]])


def steps(learner, optimizer, x, count=3):
    learner.train()
    for _ in range(count):
        y = learner(x)
        loss = (y - y.detach().sin()).square().mean() + learner.penalty().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    learner.eval()


def twins(learner, x, kind="adam"):
    """The committed learner after a few steps, and a copy of it, each with its optimiser."""
    optimizer = optimizer_of(learner, kind)
    steps(learner, optimizer, x)
    learner.set_progress(0.6)
    learner.before_step(None)
    twin = copy.deepcopy(learner)
    other = optimizer_of(twin, kind)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return learner, optimizer, twin, other


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
    learner = ngn.CapacityLearner(model_of(name, ngn.CountGate(K, t0=1.2, r=r, commit=0.5)))
    assert_same_training(*twins(learner, X), X)
    assert learner.axes[0].capacity.all_open == (r == 1.0)
    assert learner.masked == []


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", ["slices-gated", "channels", "residuals", "state-bank"])
def test_every_optimiser_is_cut(name, kind):
    learner = ngn.CapacityLearner(model_of(name, ngn.CountGate(K, t0=1.2, commit=0.5)))
    assert_same_training(*twins(learner, X, kind), X)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp = nn.MultiheadAttention(8, 4, batch_first=True), Gated()

    def forward(self, x):
        x = x + self.attn(x, x, x, need_weights=False)[0]
        return x + self.mlp(x)


class Stack(Layers):
    def __init__(self):
        super().__init__(*(Layer() for _ in range(4)))
        self.last, self.fused = nn.Linear(8, 8), Fused()

    def forward(self, x):
        return self.last(self.fused(super().forward(x)))


def stack(seed=1, by_magnitude=False, **settings):
    torch.manual_seed(seed)
    heads, widths = (None, None) if by_magnitude else ([2, 0, 3, 1], [5, 0, 4, 2, 1, 3])
    sizes = {
        "layers": ngn.Depth(t0=1.0),
        "layers.*.attn": ngn.Heads(t0=1.0, by_importance=heads),
        "layers.*.mlp": ngn.Width(6, t0=2.0, by_importance=widths),
        "fused": ngn.Heads(t0=2.0),
        "last": ngn.Rank(4, t0=2.0),
    }
    return ngn.learn_sizes(Stack().double(), sizes, example=X, **({"commit": 0.5} | settings))


def test_layers_heads_widths_and_ranks_together():
    learner = stack()
    every = list(learner.parameters())
    learner, optimizer, twin, other = twins(learner, X)
    assert_same_training(learner, optimizer, twin, other, X)
    assert len(learner.model.layers) == 2
    assert learner.count().tolist() == twin.count().tolist()
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert held == {id(p) for p in learner.parameters()}
    assert {id(p) for p in optimizer.state} <= held < {id(p) for p in every}
    lines = [str(each.report()).splitlines() for each in (learner, twin)]
    assert lines[0] == lines[1]


def test_channels_with_their_norms_in_training():
    x = torch.randn(5, 3, 4, 4)
    model = convs(nn.BatchNorm2d(6), nn.PReLU(6), nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 2, 1))
    learner = ngn.learn_sizes(model, {"0": ngn.Channels(6, t0=2.0)}, commit=0.5, example=x)
    assert_same_training(*twins(learner, x), x, rtol=1e-5, atol=1e-6)
    assert (model[0].out_channels, model[1].num_features, model[3].groups, model[4].in_channels) == (3,) * 4


@pytest.mark.parametrize("structure", STRUCTURES, ids=lambda s: s.name)
@pytest.mark.parametrize("seeds", [3, [3, 4]], ids=["plain", "stack"])
def test_a_stack_is_cut_to_its_largest_count(structure, seeds):
    t0, replicas = (1.2, None) if isinstance(seeds, int) else ([2.2, 1.2], 2)
    gate = ngn.CountGate(5, t0=t0, commit=0.5, replicas=replicas)
    learner = ngn.CapacityLearner(stack_of(awake(structure.bank(5, seeds)), gate, True, seeds)).double()
    learner, optimizer, twin, other = twins(learner, structure.x(torch.float64))
    assert_same_training(learner, optimizer, twin, other, structure.x(torch.float64))
    assert int(twin.count().max()) == learner.axes[0].K


def test_our_adam_with_a_rate_for_each_replica_is_cut():
    structure, seeds, rates = STRUCTURES[0], [3, 4], torch.tensor([1e-2, 1e-3], dtype=torch.float64)
    gate = ngn.CountGate(5, t0=[2.2, 1.2], commit=0.5, replicas=2)
    learner = ngn.CapacityLearner(stack_of(awake(structure.bank(5, seeds)), gate, True, seeds)).double()
    twin, x = copy.deepcopy(learner), structure.x(torch.float64)
    both = [
        (each, ReplicaAdam(groups_of(each.body_parameters(), each.controller_parameters(), rates, rates, 0.1)[0]))
        for each in (learner, twin)
    ]
    for each, optimizer in both:
        steps(each, optimizer, x)
        each.set_progress(0.6)
    assert learner.shrink(both[0][1])
    for each, optimizer in both:
        steps(each, optimizer, x)
    torch.testing.assert_close(learner(x), twin(x), rtol=1e-9, atol=1e-11)


class ModelEma(nn.Module):
    """An average like timm's: a copy, updated by the places of tensors in the state."""

    def __init__(self, model):
        super().__init__()
        self.module = copy.deepcopy(model)

    @torch.no_grad()
    def update_parameters(self, model):
        for mine, other in zip(self.module.state_dict().values(), model.state_dict().values(), strict=True):
            mine.lerp_(other, 0.3)


class ByName(dict):
    """An average by hand: a dictionary of tensors by name, of the parameters or of the state."""

    def __init__(self, model, tensors):
        super().__init__({name: value.detach().clone() for name, value in tensors(model).items()})
        self.tensors = tensors

    def update_parameters(self, model):
        for name, value in self.tensors(model).items():
            self[name] = 0.7 * self[name] + 0.3 * value.detach()


def averaged(average, model):
    """The model of an average."""
    if isinstance(average, nn.Module):
        return ngn.deploy(average.module)
    twin = copy.deepcopy(model)
    twin.load_state_dict({name.removeprefix("model."): value for name, value in average.items()}, strict=False)
    return ngn.deploy(twin)


AVERAGES = {
    "learner, buffers": lambda learner: torch.optim.swa_utils.AveragedModel(learner, use_buffers=True),
    "learner": lambda learner: torch.optim.swa_utils.AveragedModel(learner),
    "model, buffers": lambda learner: torch.optim.swa_utils.AveragedModel(learner.model, use_buffers=True),
    "model": lambda learner: torch.optim.swa_utils.AveragedModel(learner.model),
    "timm, model": lambda learner: ModelEma(learner.model),
    "by name": lambda learner: ByName(learner, lambda part: dict(part.named_parameters())),
    "state of the model by name": lambda learner: ByName(learner.model, lambda part: part.state_dict()),
}


@pytest.mark.parametrize("told", ["step", "callback"])
@pytest.mark.parametrize("name", AVERAGES)
def test_averages_are_cut_with_the_model(name, told):
    learner, twin = stack(), stack()
    averages = [AVERAGES[name](each) for each in (learner, twin)]
    if told == "callback":
        learner.on_cut(lambda cut: cut(averages[0]))
    for each, average in zip((learner, twin), averages, strict=True):
        optimizer = optimizer_of(each)
        for n in range(6):
            steps(each, optimizer, X, 1)
            average.update_parameters(each.model if "model" in name else each)
            passed = [average] if told == "step" else []
            each.step((n + 1) / 6, optimizer if each is learner else None, passed if each is learner else [])
    assert len(learner.model.layers) < 4
    one, two = (averaged(*each) for each in zip(averages, (learner.model, twin.model), strict=True))
    torch.testing.assert_close(one(X), two(X), rtol=1e-9, atol=1e-11)


def test_a_loop_goes_on_behind_the_removal_of_layers(recwarn):
    learners = learner, again = stack(), stack(seed=2)
    optimizer = torch.optim.Adam(learner.parameters(), 1e-2)
    steps(learner, optimizer, X)
    learner.step(0.6, optimizer)
    assert len(learner.model.layers) < 4
    again.load_state_dict(learner.state_dict())
    second = torch.optim.Adam(again.parameters(), 1e-2)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # by number
    again.resume(1, 0.6)
    for each, its in zip(learners, (optimizer, second), strict=True):
        names = {p: name for name, p in each.named_parameters()}
        assert [names.get(p) for p in its.param_groups[0]["params"]] == [*names.values()]
        steps(each, its, X)
        each.step(1.0, its)
    one, two = (each.deploy(example=X) for each in learners)
    assert torch.equal(one(X), two(X))
    assert not [str(w.message) for w in recwarn if "never part" in str(w.message)]


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
    assert learner.confirmation.given


class SAM(torch.optim.Optimizer):
    """An optimiser like the usual one of that name, with another inside that has the same groups."""

    def __init__(self, groups):
        super().__init__(groups, {"rho": 0.05})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=1e-2, momentum=0.9)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            self.state[p]["old_p"] = p.data.clone()
            p.add_(p.grad, alpha=0.05 / (p.grad.norm() + 1e-12))

    @torch.no_grad()
    def step(self, closure=None):
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            p.data = self.state[p]["old_p"]
        self.base_optimizer.step()


def sam(learner):
    return [SAM([{"params": learner.body_parameters()}, {"params": learner.controller_parameters()}])]


def two(learner, of_matrices=lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9)):
    body = learner.body_parameters()
    boundaries = {"params": learner.controller_parameters(), "weight_decay": 0.0}
    others = [{"params": [p for p in body if p.dim() != 2]}, boundaries]
    return [of_matrices([p for p in body if p.dim() == 2]), torch.optim.AdamW(others, lr=1e-2)]


@pytest.mark.parametrize("make", [sam, two])
def test_optimisers_within_others_and_beside_them_are_cut(make):
    learner, twin = stack(), stack()
    for each in (learner, twin):
        optimizers = make(each)
        for n in range(8):
            for again in range(1 + (make is sam)):
                each.zero_grad()
                ((each(X) - X.sin()).square().mean() + each.penalty()).backward()
                if make is sam and not again:
                    optimizers[0].first_step()
            for optimizer in optimizers:
                optimizer.step()
            each.step((n + 1) / 8, optimizers if each is learner else None)
    assert learner.masked == [] != twin.masked
    torch.testing.assert_close(learner(X), twin(X), rtol=1e-9, atol=1e-11)


def test_muon_beside_adamw_trains_on_with_small_matrices():
    """What it computes of a matrix depends on all of it, so that a cut is not a mask."""
    learner = two_maps()
    optimizers = two(learner, lambda p: torch.optim.Muon(p, lr=1e-2))
    for n in range(10):
        steps(learner, optimizers[1], X, 1)
        optimizers[0].step()
        learner.step((n + 1) / 10, optimizers)
    assert learner.masked == []
    for p, state in optimizers[0].state.items():
        assert state["momentum_buffer"].shape == p.shape
    assert learner.model[0].weight.shape == (int(learner.count()), 8) < (32, 8)


@pytest.mark.parametrize("way", ["fit", "own loop"])
@pytest.mark.parametrize("kind", [DenseNet, UNet, C2f, AttentionUNet, Inception], ids=lambda kind: kind.__name__)
def test_branches_of_a_concatenation_are_cut_one_before_the_other(kind, way):
    model, x, steps = network(kind), example_of(kind), 12 if kind is AttentionUNet else 20
    learner = ngn.learn_sizes(model, example=x, budget=ngn.Budget(parameters="30%"))
    if way == "fit":
        ngn.fit(learner, [x], None, lambda m, b: m(b).square().mean(), ngn.TrainPlan(steps=steps), progress="never")
    else:
        body = learner.body_parameters()
        first = torch.optim.SGD([p for p in body if p.dim() > 1], 1e-3, momentum=0.9)
        both = [first, torch.optim.AdamW([p for p in body if p.dim() < 2], 1e-3)]
        for n in range(steps):
            learner(x).square().mean().backward()
            for optimizer in both:
                optimizer.step()
            learner.step((n + 1) / steps, both)
            learner.zero_grad()
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
        ngn.OrderedAxis(ngn.CountGate(3, t0=0.2, commit=0.5), ngn.outputs(middle, 2), name="a"),
        ngn.OrderedAxis(ngn.CountGate(6, t0=2.0, commit=0.5), ngn.outputs(middle), name="b"),
    ]
    learner = ngn.CapacityLearner(nn.Sequential(middle, *axes))
    learner.set_progress(0.6)
    assert not learner.shrink()
    assert learner.masked == ["a", "b"]


def two_maps(seed=0, **settings):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)).double()
    return ngn.learn_sizes(model, example=X, budget=ngn.Budget(parameters="50%"), **settings)


UNCUTTABLE = {
    "factored state": (lambda p: [torch.optim.Adafactor(p)], r"Adafactor keeps a state of shape \[32, 1\]"),
    "history of all": (lambda p: [torch.optim.LBFGS(p, max_iter=1)], "LBFGS keeps a state that is larger"),
    "one of two": (
        lambda p: [torch.optim.SGD(p[:2])],
        "no optimiser holds Linear.weight; pass all of them: learner.step",
    ),
    "quantised": (lambda p: [EightBit(p, momentum=0.9)], r"EightBit keeps a Quantised state"),
    "aside": (lambda p: [Aside(p)], "Aside keeps tensors outside of its state"),
}


class Quantised(torch.Tensor):
    """A tensor of another type, as moments of eight bits are."""


class EightBit(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for state in self.state.values():
            state["momentum_buffer"] = state["momentum_buffer"].as_subclass(Quantised)


class Aside(torch.optim.SGD):
    def __init__(self, params):
        super().__init__(params, lr=0.01)
        self.slow = [p.detach().clone() for p in params]


@pytest.mark.parametrize("name", UNCUTTABLE)
def test_what_an_optimiser_cannot_follow_is_said_in_the_first_step_and_masked(name):
    learner, (make, message) = two_maps(), UNCUTTABLE[name]
    optimizers = make(learner.body_parameters())

    def closure():
        loss = (learner(X) - X.sin()).square().mean()
        learner.zero_grad()
        loss.backward()
        return loss

    for n in range(10):
        closure()
        for optimizer in optimizers:
            optimizer.step(closure)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            learner.step((n + 1) / 10, optimizers)
        assert [bool(re.search(message, str(w.message))) for w in said] == [True] * (n == 0)
    assert learner.masked == learner.names
    assert learner.deploy(example=X, unsettled="allow")[0].out_features == int(learner.count()) < 32


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
    learner = ngn.CapacityLearner(axis)
    learner.set_progress(0.6)
    assert not learner.shrink()


def test_a_schedule_that_starts_again_goes_on_from_what_is_left():
    learner = committed(nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 8)), {"": ngn.Width(6, t0=3.0)})
    assert learner.shrink()
    learner.set_progress(0.0)
    assert float(learner.size()) == pytest.approx(3.0)
    assert learner(X.float()).requires_grad
    with torch.no_grad():
        learner.axes[0].capacity.tau.fill_(softplus_inverse(1.0))
    learner.set_progress(0.6)
    assert learner.shrink()
    assert learner.model[0].out_features == 2


def test_the_matryoshka_of_a_cut_gate_is_that_of_all_candidates():
    order = ngn.Order("nested_dropout", ranks=None)
    gates = [ngn.CountGate(8, t0=2.0, commit=0.5, order=order, r=0.9) for _ in range(2)]
    gates[0].set_progress(0.6)
    gates[0].shrink(3)
    for gate in gates:
        gate.set_progress(0.7)
    assert torch.equal(gates[0].law, gates[1].law[:3])
    assert not gates[0].all_open


def test_shrink_cuts_axes_of_any_model():
    model = model_of("heads-fused", ngn.CountGate(K, t0=9.0, r=1.0))
    axes = [model.axis]
    assert shrink(model, axes, [3])
    assert shrink(model, axes, [2])  # the starts of the parts of a fused map have moved
    other = model_of("heads-fused", ngn.CountGate(K, t0=1.0, r=1.0))
    torch.testing.assert_close(model(X), ngn.deploy(other)(X), rtol=1e-4, atol=1e-6)


def trainer_of(learner, folder=None, stop=None, steps=20):
    plan = ngn.TrainPlan(steps=steps, lr=1e-2, lr_boundary=0.1, clip=0.5, optimizer="adamw", weight_decay=0.1)
    batches = FullBatches(Split(X, X.sin()))
    settings = {"folder": folder, "checkpoint_seconds": 1e-9, "progress": "never", "shrink": True}
    settings["on_step"] = stop_after(stop - 1 if stop else steps)
    trainer = ngn.Trainer(learner, batches, ngn.Supervised(nn.functional.mse_loss), plan, **settings)
    if stop is None:
        return trainer.fit()
    with pytest.raises(Stop):
        trainer.fit()
    return None


@pytest.mark.parametrize("stop", [5, 10, 12])  # the sizes are fixed and cut at the start of step 10
def test_fit_resumes_to_the_last_bit(tmp_path, stop):
    whole, first, second = (stack(seed, by_magnitude=True) for seed in (1, 1, 2))
    expected = trainer_of(whole)
    trainer_of(first, tmp_path, stop)
    got = trainer_of(second, tmp_path)
    assert got.resumed == (stop > 1)
    assert len(whole.model.layers) < 4
    one, other = whole.state(), second.state()
    assert [*one] == [*other]
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert str(whole.report()) == str(second.report())
    assert torch.equal(whole.size(), second.size())
    for name, curve in expected.curves.items():
        assert (curve == got.curves[name]).all(), name


HALF = ngn.Budget(parameters="50%", round_to=2)


@pytest.mark.parametrize(
    ("stop", "budget", "by_magnitude", "cut"),
    [
        (4, None, True, True),
        (12, None, True, False),
        (6, HALF, False, True),
        (8, HALF, True, False),
    ],
)
def test_an_own_loop_resumes_to_the_last_bit_in_a_model_of_another_seed(tmp_path, stop, budget, by_magnitude, cut):
    def train(learner, optimizer, span):
        for n in span:
            loss = (learner(X) - X.sin()).square().mean() + learner.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            layers = len(learner.model.layers)
            learner.step((n + 1) / 12, optimizer if cut else None)  # while the graph of ``loss`` is alive
            assert (len(learner.model.layers) < layers) == (n == 5 and cut)
        return learner

    whole, first, second = (stack(seed, by_magnitude, budget=budget) for seed in (1, 1, 2))
    one, other = ([axis.order.tolist() for axis in each.axes if "layers." in axis.name] for each in (whole, second))
    assert (one == other) != by_magnitude
    train(whole, optimizer_of(whole), range(12))
    optimizer = optimizer_of(train(first, saved := optimizer_of(first), range(stop)))
    torch.save({"learner": first.state_dict(), "optimizer": saved.state_dict()}, tmp_path / "checkpoint.pt")
    kept = torch.load(tmp_path / "checkpoint.pt")
    second.load_state_dict(kept["learner"])
    optimizer = optimizer_of(second)
    optimizer.load_state_dict(kept["optimizer"])
    second.resume(stop, stop / 12)
    train(second, optimizer, range(stop, 12))
    one, other = whole.state(), second.state()
    assert [*one] == [*other]
    assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert str(whole.report()) == str(second.report())
    assert str(whole.report(latency=X)).count("->") == str(second.report()).count("->") + 1
    assert torch.equal(whole.deploy()(X), second.deploy(example=X)(X))


@pytest.mark.filterwarnings("ignore")  # torch's own, of tensors that it looks at
def test_a_compiled_model_follows_the_cut():
    def trained(compiled):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 8)).double()
        learner = ngn.learn_sizes(model, {"": ngn.Width(6, t0=2.0)}, example=X, commit=0.5)
        called, optimizer = torch.compile(learner, backend="eager") if compiled else learner, optimizer_of(learner)
        for n in range(6):
            loss = (called(X) - X.sin()).square().mean() + learner.penalty()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            learner.step((n + 1) / 6, optimizer)
        assert model[0].out_features == 3
        return called(X)

    torch.testing.assert_close(trained(True), trained(False), rtol=1e-9, atol=1e-11)
