"""Ordered axes: what is cut, tied, shared, refused, compared and stored."""

import copy
import dataclasses
import functools

import pytest
import torch
from axes import K, X, model_of
from learners import LEARNERS
from modes import hard_output
from torch import nn
from torch.nn.utils import parametrizations

import ngn
from experiments.models.mlp import MLPBank
from ngn.axis import OrderedAxis
from ngn.comparison import check_equal
from ngn.components.base import OrderedSum
from ngn.cut.copying import reached
from ngn.cut.truncation import deploy
from ngn.cuts import inputs, outputs
from ngn.methods.ngn import CountGate


def test_two_axes_cut_one_tensor():
    middle, ends = nn.Linear(6, 8), (nn.Linear(2, 6), nn.Linear(8, 3))
    first = OrderedAxis(CountGate(3, t0=1.2), [*outputs(ends[0], 2), *inputs(middle, 2)])
    second = OrderedAxis(CountGate(8, t0=4.6, r=0.9, lambda0=1e-2), [*outputs(middle), *inputs(ends[1])])
    learner = ngn.Learner(nn.Sequential(ends[0], nn.Tanh(), first, middle, nn.Tanh(), second, ends[1]).double())
    x = torch.randn(7, 2).double()
    small = learner.deploy(example=x)
    assert learner.count().tolist() == [2, 6]
    assert small[3].weight.shape == (6, 4)
    assert torch.allclose(small(x), hard_output(learner, x), atol=1e-12)
    assert float(learner.penalty().detach()) == pytest.approx(1e-4 * 1.2 + 1e-2 * 4.6)


class Tied(nn.Module):
    """A small language model: the embedding and the head share one matrix, with K slices in between."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight
        self.body = model_of("slices", CountGate(K, t0=1.2)).float()

    def forward(self, x):
        return self.head(self.body(self.embed(x)))


def test_ties_stay_tied(tmp_path):
    learner = ngn.Learner(Tied())
    x = torch.arange(11)
    small = learner.deploy(example=x)
    assert small.head.weight is small.embed.weight
    assert small.head.weight is not learner.model.head.weight
    ngn.save(small, tmp_path / "tied")
    loaded = ngn.load(Tied(), tmp_path / "tied")
    assert loaded.head.weight is loaded.embed.weight
    assert torch.equal(loaded(x), small(x))


def test_a_tied_tensor_is_cut_but_nothing_is_folded_into_it():
    def tied(fold):
        model = Tied()
        cuts = [*outputs(model.embed, 2), *inputs(model.head, 2, fold=fold)]
        model.body = OrderedAxis(CountGate(K, t0=1.2), cuts)
        return ngn.Learner(model)

    small = tied(fold=False).deploy(example=torch.arange(11))
    assert small.head.weight is small.embed.weight
    assert small.head.in_features == small.embed.embedding_dim == 4
    with pytest.raises(ValueError, match="tied"):
        tied(fold=True).deploy()


def test_frozen_parameters_can_be_shared():
    learner = ngn.Learner(model_of("adapter", CountGate(K, t0=1.2)))
    assert learner.deploy(share_frozen=True).base.weight is learner.model.base.weight
    assert learner.deploy().base.weight is not learner.model.base.weight


class Listed(nn.Module):
    def __init__(self, registered: bool) -> None:
        super().__init__()
        self.stages = [model_of("slices", CountGate(K, t0=1.2))]
        self.parts = nn.ModuleList(self.stages if registered else [])

    def forward(self, x):
        return self.stages[0](x)


def test_axes_in_plain_lists_are_truncated_or_refused():
    learner = ngn.Learner(Listed(registered=True))
    small = learner.deploy(example=X)
    assert small.stages[0] is small.parts[0]
    assert small.stages[0].axis.capacity is None
    with pytest.raises(ValueError, match=r"stages.*ModuleList"):
        ngn.Learner(Listed(registered=False))


def closures(model):
    """Functions of each kind that hold the axis of a model."""
    axis, inner = model[2], functools.partial(lambda axis, h: axis(h), model[2])
    return {
        "closure": lambda h: axis(h),
        "method": (lambda call: lambda h: call(h))(axis.forward),
        "default": lambda h, axis=axis: axis(h),
        "list": (lambda parts: lambda h: parts[0](h))([axis]),
        "nested": lambda h: inner(h),
    }


@pytest.mark.parametrize("kind", ["closure", "method", "default", "list", "nested"])
def test_functions_that_hold_an_axis_hold_that_of_the_copy(kind):
    attribute, hook = (model_of("neurons", CountGate(K, t0=1.2)) for _ in range(2))
    attribute.act, function = closures(attribute)[kind], closures(hook)[kind]
    hook[0].register_forward_hook(lambda module, args, output: function(output))
    for model in (attribute, hook):
        small = ngn.Learner(model).deploy()
        assert reached(small).keys() & {id(module) for module in model.modules()} == set()
        assert small(X).shape == model(X).shape


def test_a_parametrised_tensor_is_deployed_as_what_it_stands_for():
    for bound in (parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal):
        up, down = nn.Linear(8, 2 * K), bound(nn.Linear(2 * K, 8))
        axis = OrderedAxis(CountGate(K, t0=1.2), [*outputs(bound(up), 2), *inputs(down, 2)])
        learner = ngn.Learner(nn.Sequential(up, nn.Tanh(), axis, down).double())
        small = learner.deploy(example=X)
        assert (small[0].weight.shape, small[3].weight.shape) == ((4, 8), (8, 4))
        assert sum(p.numel() for p in small.parameters()) == 4 * 8 + 4 + 8 * 4 + 8
        learner.model(X).sum().backward()  # the original still works


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_a_tensor_that_a_hook_computes_is_copied_but_not_cut():
    def model(cut):
        up, down = nn.Linear(8, 2 * K), nn.Linear(2 * K, 8)
        axis = OrderedAxis(CountGate(K, t0=1.2), [*outputs(up, 2), *inputs(down, 2)])
        return nn.Sequential(
            nn.utils.weight_norm(up) if cut else up, nn.Tanh(), axis, down, nn.utils.weight_norm(nn.Linear(8, 8))
        ).double()

    learner = ngn.Learner(model(cut=False))
    learner(X)
    learner.deploy(example=X)
    with pytest.raises(ValueError, match=r"weight_norm.*parametrizations"):
        ngn.Learner(model(cut=True)).deploy()


def test_what_an_axis_cannot_be_is_refused():
    up, down = nn.Linear(8, 2 * K), nn.Linear(2 * K, 8)
    with pytest.raises(ValueError, match="not part of the model"):
        ngn.Learner(nn.Sequential(up, OrderedAxis(CountGate(K), [*outputs(up, 2), *inputs(down, 2)])))
    with pytest.raises(ValueError, match="needs 12"):
        deploy(nn.Sequential(up, OrderedAxis(CountGate(K), outputs(up, 3))))
    with pytest.raises(ValueError, match="use OrderedSum"):
        OrderedAxis(CountGate(None), outputs(up))
    with pytest.raises(ValueError, match="a name of its own"):
        ngn.Learner(nn.Sequential(*(OrderedSum(MLPBank([2, 3, 2], 3, 0), CountGate(3)) for _ in range(2))))


def test_an_example_shows_what_does_not_follow_the_axis():
    """The mean of a layer norm on the axis includes components that truncation removes."""
    up, norm, down = nn.Linear(8, 2 * K), nn.LayerNorm(2 * K), nn.Linear(2 * K, 8)
    axis = OrderedAxis(CountGate(K, t0=1.2), [*outputs(up, 2), *outputs(norm, 2), *inputs(down, 2)])
    learner = ngn.Learner(nn.Sequential(up, norm, axis, down).double())
    with pytest.raises(ValueError, match="differs from the truncated model"):
        learner.deploy(example=X)


def test_an_output_of_another_shape_is_named():
    with pytest.raises(ValueError, match=r"returns \[5, 4\] on the example, not \[5, 3\]"):
        check_equal(nn.Linear(2, 3), nn.Linear(2, 4), torch.ones(5, 2))


class Told(nn.Module):
    """Return fixed outputs."""

    def __init__(self, *outputs):
        super().__init__()
        self.outputs = outputs

    def forward(self, x):
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    words: list


@pytest.mark.parametrize(("dtype", "near", "far"), [(torch.float32, 3e-5, 2e-4), (torch.bfloat16, 0.03, 0.2)])
def test_outputs_are_compared_by_what_their_type_can_hold(dtype, near, far):
    y = torch.tensor([1.0, -torch.inf, 0.5]).to(dtype)
    check_equal(Told(y, [1, None]), Told(y * (1 - near), [1, None]), X)
    for wrong in (Told(y * (1 - far)), Told(torch.zeros(3, dtype=dtype)), Told(y * torch.nan), Told(y, y)):
        with pytest.raises(ValueError, match="on the example"):
            check_equal(Told(y), wrong, X)
    answers = [Told(Answer(value, ["a"])) for value in (y, y * (1 - near), y * (1 - far))]
    check_equal(*answers[:2], X)
    with pytest.raises(ValueError, match="differs"):
        check_equal(answers[0], answers[2], X)
    with pytest.raises(ValueError, match="no floating-point tensor on the example"):
        check_equal(Told("yes"), Told("no"), X)


def test_what_draws_random_numbers_draws_the_same():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn(3)

    state = torch.random.get_rng_state()
    check_equal(Noisy(), Noisy(), torch.zeros(3))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_modes_of_training_are_left_as_they_are():
    learner = ngn.Learner(model_of("channels", CountGate(K, t0=1.2)).train())
    mean = learner.model.norm.running_mean.clone()
    small = learner.deploy(example=X)
    assert learner.model.norm.training
    assert not any(module.training for module in small.modules())
    assert torch.equal(learner.model.norm.running_mean, mean)


def test_state_holds_buffers_and_a_digest_of_what_is_frozen():
    learner, other = (ngn.Learner(model_of("channels", CountGate(K))) for _ in range(2))
    learner.model.train()
    learner(X)
    other.restore(learner.state())
    assert torch.equal(other.model.norm.running_mean, learner.model.norm.running_mean)
    adapted, changed = (ngn.Learner(model_of("adapter", CountGate(K))) for _ in range(2))
    state = adapted.state()
    assert "model.base.weight" not in state
    changed.restore(state)
    with torch.no_grad():
        changed.model.base.weight[0, 0] += 1.0
    with pytest.raises(ValueError, match="frozen"):
        changed.restore(state)


@pytest.mark.parametrize("cast", ["half", "bfloat16", "to", "deepcopy", "autocast"])
def test_the_boundary_stays_exact(cast):
    for made in LEARNERS.values():
        learner = ngn.Learner(nn.Sequential(OrderedSum(MLPBank([8, 3, 8], K, 3), made(None)), nn.Linear(8, 8)))
        sizes, penalty = learner.size(), learner.axes[0].capacity.penalty()
        if cast == "deepcopy":
            learner = copy.deepcopy(learner)
        elif cast == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                assert torch.equal(learner.size(), sizes)
        else:
            learner.to(torch.bfloat16) if cast == "to" else getattr(learner, cast)()
            assert learner.model[1].weight.dtype == (torch.float16 if cast == "half" else torch.bfloat16)
        assert torch.equal(learner.size(), sizes)
        assert torch.equal(learner.axes[0].capacity.penalty(), penalty)
        assert learner.size().dtype == learner.axes[0].capacity.coefficients("soft").dtype == torch.float64


def test_a_state_dict_says_how_far_training_has_come():
    first, second = (ngn.Learner(model_of("neurons", CountGate(K, t0=1.7, alpha_max=1.0))) for _ in range(2))
    first.set_progress(0.8)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.penalty(), second.penalty())
    assert torch.equal(first(X), second(X))
    third = ngn.Learner(model_of("neurons", CountGate(K, t0=1.7, alpha_max=1.0)))
    third.restore(first.state())
    assert torch.equal(first.penalty(), third.penalty())
