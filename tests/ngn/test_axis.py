"""Ordered axes: what is cut, tied, shared, refused, compared and stored."""

import copy
import dataclasses

import pytest
import torch
from axes import K, X, model_of
from learners import LEARNERS
from sizable import Forward
from torch import nn

import ngn
from experiments.models.mlp import MLPBank
from ngn.axis import OrderedAxis
from ngn.comparison import check_equal
from ngn.components.base import OrderedSum
from ngn.cut.truncation import deploy
from ngn.cuts import inputs, outputs
from ngn.methods.ngn import CountGate


def test_frozen_parameters_can_be_shared():
    learner = ngn.Learner(model_of("adapter", CountGate(K, t0=1.2)))
    assert learner.deploy(share_frozen=True).base.weight is learner.model.base.weight
    assert learner.deploy().base.weight is not learner.model.base.weight


def listed(registered: bool) -> nn.Module:
    stages = [model_of("slices", CountGate(K, t0=1.2))]
    parts = nn.ModuleList(stages if registered else [])
    return Forward(lambda own, x: own.stages[0](x), stages=stages, parts=parts)


def test_axes_in_plain_lists_are_truncated_or_refused():
    learner = ngn.Learner(listed(registered=True))
    small = learner.deploy(example=X)
    assert small.stages[0] is small.parts[0]
    assert small.stages[0].axis.capacity is None
    with pytest.raises(ValueError, match=r"stages.*ModuleList"):
        ngn.Learner(listed(registered=False))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_what_an_axis_cannot_be_is_refused():
    up, down, embed, head = nn.Linear(8, 2 * K), nn.Linear(2 * K, 8), nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
    with pytest.raises(ValueError, match="not part of the model"):
        ngn.Learner(nn.Sequential(up, OrderedAxis(CountGate(K), [*outputs(up, 2), *inputs(down, 2)])))
    with pytest.raises(ValueError, match="needs 12"):
        deploy(nn.Sequential(up, OrderedAxis(CountGate(K), outputs(up, 3))))
    axis = OrderedAxis(CountGate(K, t0=1.2), [*outputs(up, 2), *inputs(down, 2)])
    with pytest.raises(ValueError, match=r"weight_norm.*parametrizations"):
        deploy(nn.Sequential(nn.utils.weight_norm(up), nn.Tanh(), axis, down))
    head.weight = embed.weight
    axis = OrderedAxis(CountGate(K, t0=1.2), [*outputs(embed, 2), *inputs(head, 2, fold=True)])
    with pytest.raises(ValueError, match="tied"):
        deploy(nn.Sequential(embed, axis, head))
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
