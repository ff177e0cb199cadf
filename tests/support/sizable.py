"""Small modules with learnable sizes, and a check that these are cut exactly."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import ngn
from ngn.gate import softplus_inverse


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(8, 24), nn.Linear(24, 8), nn.Linear(8, 24)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Fused(nn.Module):
    """Attention of vision transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.proj, self.head_dim = nn.Linear(8, 24), nn.Linear(8, 8), 2

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, 2)).movedim(2, 0).transpose(2, 3)
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Adding(nn.Linear):
    """A residual layer."""

    def forward(self, x):
        return x + super().forward(x).tanh()


class Plus(nn.Module):
    """A residual layer around a module."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, x):
        return x + self.mlp(x)


class Layers(nn.Module):
    """Layers, one after the other."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Forward(nn.Module):
    """Parts by their names, and a function of the module and its inputs as the forward pass."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def chain(*parts: int | nn.Module) -> nn.Sequential:
    """Chain linear maps of these sizes, with an activation or a given module between two."""
    sizes, layers = [part for part in parts if isinstance(part, int)], []
    for number, part in enumerate(parts[1:], 1):
        if isinstance(part, int):
            before = next(size for size in reversed(parts[:number]) if isinstance(size, int))
            layers += [nn.Linear(before, part), nn.Tanh()]
        else:
            layers.append(part)
    return nn.Sequential(*layers[:-1]) if len(sizes) > 2 else nn.Sequential(*layers)


def convs(*middle: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 1), *middle)


def parts_of(output):
    """The tensors of an output."""
    return [part for part in tree_leaves(output) if isinstance(part, torch.Tensor)]


def called(model, x):
    """The tensors that a model gives for an example, which may be a tuple of arguments or a dictionary of them."""
    return parts_of(model(*x) if isinstance(x, tuple) else model(**x) if isinstance(x, dict) else model(x))


LENGTHS = {
    nn.Linear: lambda part: (part.out_features, part.in_features),
    nn.Conv2d: lambda part: (part.out_channels, part.in_channels // part.groups),
    nn.ConvTranspose2d: lambda part: (part.in_channels, part.out_channels // part.groups),
    nn.BatchNorm2d: lambda part: (part.num_features,),
}
"""What modules say of the shapes of their weights."""


def cut_exactly(make, x, folder, wanted, sizes=None):
    """Check a structure from its sizes to its file, and return the cut model.

    With all components it is the model. At counts drawn at random, the cut model is the masked one on other values, in
    eval and in train mode; so is a learner of another seed with the state, cut in place, and a model of another seed
    with the file, plain or with learned sizes. It holds nothing of the trained model, and says its own lengths.

    Args:
        wanted: the components and units that each size has, by name, such as "8 channels".
    """

    def learner_of(seed):
        torch.manual_seed(seed)
        model = make().eval()
        for part in model.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):  # that maps zero to something else
                nn.init.normal_(part.running_mean), nn.init.normal_(part.bias)
        before = called(model, x)
        learner = ngn.learn_sizes(model, sizes, example=x)
        close(called(learner, x), before)
        return learner

    learner, source = learner_of(0), torch.Generator().manual_seed(2)
    found = {axis.name: f"{axis.K} {axis.unit}" for axis in learner.axes}
    assert found == wanted, found
    for axis in learner.axes:
        count = int(torch.randint(1, axis.K, (), generator=source))
        axis.capacity.tau.data.fill_(softplus_inverse(max(1e-4, count - 1) / axis.capacity.stride))
    small = learner.deploy(example=x, unsettled="allow")
    assert not any(isinstance(part, (ngn.OrderedAxis, ngn.Capacity)) for part in small.modules())
    assert hooks_of(small) == hooks_of(make())
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in learner.parameters())
    again = learner_of(1)
    again.load_state_dict(learner.state_dict())
    ngn.save(small, folder / "small")
    loaded, plain = ngn.load(again, folder / "small"), make()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(plain), "forward", None)  # a plain model is cut by what the file says, and not traced
        plain = ngn.load(plain, folder / "small")
    again.set_progress(1.0)
    again.shrink()
    other = tree_map(lambda part: part.roll(1, -1) if isinstance(part, torch.Tensor) else part, x)
    for training in (True, False):
        each = [part.train(training) for part in (learner, again, small, loaded, plain)]
        with torch.no_grad(), learner.mode("hard"), again.mode("hard"):
            outputs = [called(part, other) for part in each]
        for got in outputs[1:]:
            close(got, outputs[0])
    for part in small.modules():
        if type(part) in LENGTHS and not part._forward_pre_hooks:
            assert LENGTHS[type(part)](part) == tuple(part.weight.shape[:2])
    (sum(part.abs().square().sum() for part in called(learner, x)) + learner.penalty()).backward()
    assert all(bool(p.grad.isfinite()) and float(p.grad) for p in learner.controller_parameters())
    with torch.no_grad():
        for p in learner.parameters():
            p.zero_()
        close(called(small, other), outputs[0])
    return small


def hooks_of(model):
    return sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in model.modules())


def close(got, wanted):
    torch.testing.assert_close(got, wanted, atol=1e-4, rtol=1e-4, equal_nan=True)
