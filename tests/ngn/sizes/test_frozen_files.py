"""Files without frozen weights: what they leave out has to be the same in the model that loads them."""

import pytest
import torch
from sizable import Adding, Layers, chain

import ngn

X = torch.linspace(-1, 1, 48).reshape(6, 8).sin()


def test_a_frozen_map_with_weights_folded_in_is_saved_with_the_rest(tmp_path):
    def model():
        torch.manual_seed(0)
        made = chain(8, 16, 8)
        made[-1].requires_grad_(False)
        return made

    small = ngn.learn_sizes(model(), {"": ngn.Width(16, t0=5.0)}, r=0.9, example=X).deploy(unsettled="allow")
    ngn.save(small, tmp_path / "small.safetensors", frozen=False)
    fresh = ngn.learn_sizes(model(), {"": ngn.Width(16)}, r=0.9, example=X)
    assert torch.equal(ngn.load(fresh, tmp_path / "small.safetensors")(X), small(X))
    whole = ngn.learn_sizes(model(), {"": ngn.Width(16, t0=5.0)}, example=X).deploy(unsettled="allow")
    assert [p.requires_grad for p in whole.parameters()] == [True, True, False, False], (
        "without weights it stays frozen"
    )


def partly_frozen(frozen, order, seed=0):
    torch.manual_seed(seed)
    model = chain(8, 16, 8)
    model[frozen].requires_grad_(False)
    return ngn.learn_sizes(model, {"": ngn.Width(8, by_importance=order, t0=2.0)}, example=X)


@pytest.mark.parametrize("frozen", [0, 2])
def test_what_a_file_leaves_out_is_the_same_in_the_model_and_in_the_same_order(frozen, tmp_path):
    order, path = [3, 1, 6, 0, 2, 7, 5, 4], tmp_path / "small.safetensors"
    small = partly_frozen(frozen, order).deploy(unsettled="allow")
    ngn.save(small, path, frozen=False)
    again = partly_frozen(frozen, order)
    assert torch.equal(ngn.load(again, path)(X), small(X))
    assert ngn.load(again.bfloat16(), path)[0].out_features == small[0].out_features, "precision is no difference"
    for other in (partly_frozen(frozen, order[::-1]), partly_frozen(frozen, order, seed=1)):
        with pytest.raises(ValueError, match=r"the model are others: .* same pretrained .* same by_importance"):
            ngn.load(other, path)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (lambda: Layers(*(Adding(8, 8) for _ in range(6))), {"layers": ngn.Depth(t0=2.0)}),
        (lambda: chain(8, 16, 8), {"": ngn.Width(4, t0=2.0)}),
    ],
)
def test_a_size_of_which_a_file_holds_nothing_is_said(kind, sizes, tmp_path):
    learner = ngn.learn_sizes(kind(), sizes, example=X, frozen=True)
    small = learner.deploy(unsettled="allow")
    ngn.save(small, tmp_path / "part", frozen=False)
    with pytest.raises(ValueError, match=r"does not follow from the tensors of .*part: save with frozen=True"):
        ngn.load(learner, tmp_path / "part")
    ngn.save(small, tmp_path / "whole")
    assert torch.equal(ngn.load(learner, tmp_path / "whole")(X), small(X))
