"""Sizes that were found, from the first step to the file."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from traceable import NETWORKS, Experts, ResNet, ShuffleNet, UNet, example_of, network

import ngn
from ngn.budget.cost import Cost
from ngn.cut import cut_to


@pytest.mark.parametrize("kind", [ResNet, ShuffleNet, Experts], ids=lambda kind: kind.__name__)
def test_half_of_the_multiply_adds_trained_deployed_saved_and_loaded(kind, tmp_path):
    model, x = network(kind), example_of(kind)
    learner = ngn.learn_sizes(model, example=x, budget=ngn.Budget(macs="60%", example=x))
    y = torch.zeros_like(model(x).detach())
    _ = ngn.fit(learner, x, y, nn.functional.mse_loss, ngn.TrainPlan(steps=30, lr=1e-3), progress="never")
    small = learner.deploy(example=x)
    assert learner.cost.of(small) <= 0.6 * learner.cost.full
    for module in small.modules():
        if isinstance(module, _ConvNd):
            assert module.weight.shape[:2] == (module.out_channels, module.in_channels // module.groups)
        if isinstance(module, nn.BatchNorm2d):
            assert module.num_features == len(module.weight) == len(module.running_mean)
    ngn.save(small, tmp_path / "small.safetensors")
    fresh = kind().eval()
    ngn.learn_sizes(fresh, example=x)
    again = ngn.load(fresh, tmp_path / "small.safetensors")
    torch.testing.assert_close(again(x), small(x))
    ngn.export(small, tmp_path / "small.pt2", example=x)
    program = torch.export.load(tmp_path / "small.pt2").module()
    torch.testing.assert_close(program(x), small(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("which", ["parameters", "macs"])
def test_the_traced_cost_is_the_measured_one_at_any_counts(kind, which):
    model, x = network(kind), example_of(kind)
    learner = ngn.learn_sizes(model, example=x)
    cost = Cost(model, learner.axes, which, x)
    assert cost.exact is not None
    random = torch.Generator().manual_seed(3)
    for _ in range(3):
        counts = tuple(int(torch.randint(1, axis.K + 1, (), generator=random)) for axis in learner.axes)
        assert cost.measured(counts) == cost.of(cut_to(model, learner.axes, counts))
        value, slope = cost(torch.tensor(counts, dtype=torch.float64))
        more = torch.tensor(counts, dtype=torch.float64)
        more[0] += 1e-3
        assert float(cost(more)[0] - value) == pytest.approx(1e-3 * float(slope[0]), rel=1e-2)


def test_a_choice_of_what_was_found():
    model, x = network(UNet), example_of(UNet)
    found = ngn.find_sizes(model, x)
    assert ngn.learn_sizes(model, found.without("merge")).names == ["down2", "middle"]
    with pytest.raises(ValueError, match="found in another model"):
        ngn.learn_sizes(network(UNet), found)


def test_without_an_example_the_message_says_what_to_give():
    with pytest.raises(ValueError, match="pass example=, an input of it"):
        ngn.learn_sizes(network(UNet))


def test_the_start_is_the_model_and_all_weights_are_trained():
    model, x = network(ResNet), example_of(ResNet)
    learner = ngn.learn_sizes(model, example=x, lambda0=0.1, t0=3.0)
    (learner(x).square().mean() + learner.penalty()).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in learner.parameters() if p.requires_grad)


def test_torchs_encoder_with_and_without_its_heads():
    layer = nn.TransformerEncoderLayer(8, 4, 24, batch_first=True)
    x = torch.randn(2, 5, 8)
    wanted = ["layers.0.linear1", "layers.0.self_attn", "layers.1.linear1", "layers.1.self_attn"]
    model = nn.TransformerEncoder(layer, 2).eval()
    found = ngn.find_sizes(model, x)
    assert sorted(group.name for group in found) == wanted
    assert ngn.learn_sizes(model, found.without("**.self_attn")).names == wanted[::2]
    learner = ngn.learn_sizes(nn.TransformerEncoder(layer, 2), example=x, t0=1.2)
    assert sorted(learner.names) == wanted
    assert learner.deploy(example=x, unsettled="allow").layers[1].self_attn.num_heads == 2
