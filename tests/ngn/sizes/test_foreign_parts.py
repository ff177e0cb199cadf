"""Parts whose code is not the model's own: compiled, scripted, exported, transformed, quantised; and uncopied ones."""

import io
import math
import pickle
import re
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from sizable import Forward, chain, cut_exactly
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import ngn
from ngn.methods.fixed import Retained
from ngn.sizes.trial import difference

X = torch.linspace(-1, 1, 48).reshape(6, 8).sin()
pytestmark = [  # torch's own
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),  # dynamo looks at every input of a hook
    pytest.mark.filterwarnings("ignore:flex_attention called without"),
]


def parts(middle, wide: int = 16) -> nn.Module:
    """Two branches: one passes ``middle``, the other has a size of its own in any case."""
    maps = {"up": nn.Linear(8, 16), "down": nn.Linear(wide, 3), "beside": chain(8, 12, nn.ReLU(), 3)}
    return Forward(lambda own, x: own.down(own.middle(own.up(x).relu())) + own.beside(x), middle=middle, **maps)


@torch.jit.script
def mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(F.softplus(x))


@torch.jit.script
def halved(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 2, 8).flatten(1)


def quantised() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of the move to torchao
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(16, 16)), {nn.Linear})


class Integers(nn.Module):
    """Weights of eight bits, as buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-9, 9, (16, 16), dtype=torch.int8))

    def forward(self, h):
        return F.linear(h, self.weight.to(h.dtype)) / 9


class Buffer(Integers):
    def __init__(self) -> None:
        super().__init__()
        self.weight = self.weight / 9


def nested(h):
    return torch.nested.as_nested_tensor([h[:3], h[3:]]).relu().to_padded_tensor(0.0).flatten(0, 1)


def scripted(*layers: nn.Module) -> nn.Module:
    return torch.jit.script(nn.Sequential(*layers)).eval()


UP = {"up": "16 units", "beside.0": "12 units"}
CUT: dict[str, tuple] = {
    "a scripted function": (lambda: mish, UP),
    "a package": (lambda: Forward(lambda own, h: h * own.held.sqrt(2.0), held=math), UP),
    "scripted activations": (lambda: scripted(nn.ReLU(), nn.Tanh()), UP),
    "a map over rows": (lambda: torch.vmap(torch.tanh), UP),
    "weights in a buffer": (Buffer, UP | {"middle": "16 units"}),
    "a symbolic trace": (lambda: torch.fx.symbolic_trace(chain(16, 16)), UP | {"middle.0": "16 units"}),
}
FIXED: dict[str, tuple] = {
    "scripted code": (lambda: scripted(nn.Linear(16, 16)), "a tensor of scripted code in middle.0"),
    "frozen scripted code": (lambda: torch.jit.freeze(scripted(nn.Linear(16, 16))), "meets a constant in middle"),
    "a scripted length": (lambda: halved, r"cut to half, .*shape"),
    "a quantised layer": (quantised, "the operation linear_dynamic in middle.0"),
    "integer weights": (Integers, "integer weights in middle"),
    "nested tensors": (lambda: nested, "of nested tensors in the model"),
    "a condition": (
        lambda: lambda h: torch.cond(torch.ones(()) > 0, torch.relu, torch.tanh, (h,)),
        "the operation cond in",
    ),
}


@pytest.mark.parametrize("part", CUT)
def test_units_pass_through_it(part, tmp_path):
    make, wanted = CUT[part]
    cut_exactly(lambda: parts(make()), X, tmp_path, wanted)


@pytest.mark.parametrize("part", FIXED)
def test_what_it_touches_is_fixed_and_the_rest_is_cut(part):
    make, reason = FIXED[part]
    learner = ngn.learn_sizes(parts(make()).eval(), example=X, t0=2.2)
    reasons = [fixed.reason for fixed in learner.found.fixed if "up" in fixed.members]
    assert any(re.search(reason, each) for each in reasons), reasons
    assert "up" not in learner.names
    assert learner.deploy(example=X, unsettled="allow").beside[0].out_features == 3


@pytest.mark.parametrize("way", ["a part", "the model", "a method", "without breaks"])
def test_compiled_parts_are_learned_and_cut(way):
    model = parts(nn.Linear(16, 10), 10)
    if way == "the model":
        model = torch.compile(model, backend="eager")
    elif way == "a method":
        model.middle.compile(backend="eager")
    else:
        model.middle = torch.compile(model.middle, backend="eager", fullgraph=way == "without breaks")
    learner = ngn.learn_sizes(model, example=X, budget=ngn.Budget(parameters="60%"))
    assert len(learner.names) == 3
    optimizer = torch.optim.SGD(learner.body_parameters(), 0.01)
    for n in range(4):
        optimizer.zero_grad()
        learner(X).square().mean().backward()
        learner.step((n + 1) / 4, optimizer if way == "a part" else None)
        optimizer.step()
    small = learner.deploy(example=X)
    with learner.mode("hard"):
        torch.testing.assert_close(small(X[:2]), learner(X[:2]))


def test_heads_of_flexible_attention_are_found():
    """Blocks of positions, and functions of them, that are the same for all heads."""

    def attend(own, x):
        q, k, v = own.qkv(x).unflatten(-1, (3, -1, 4)).permute(2, 0, 3, 1, 4)
        blocks = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], q.shape[2], device="cpu")
        h = flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j), block_mask=blocks)
        return own.out(h.transpose(1, 2).flatten(2))

    model = Forward(attend, qkv=nn.Linear(8, 48), out=nn.Linear(16, 8)).requires_grad_(False)
    x = torch.randn(2, 5, 8)
    learner = ngn.learn_sizes(model, example=x)
    assert [axis.unit for axis in learner.axes] == ["heads"]
    assert difference(model, learner.axes, x, lambda axis: 2) is None


def energy(own, x):
    """The output is a gradient: forces of an energy."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(own.mlp(x).sum(), x, create_graph=True)[0]


WAYS = {
    "a gradient": lambda: Forward(energy, mlp=chain(8, 16, nn.Softplus(), 1)),
    "a transform": lambda: parts(torch.vmap(torch.tanh)),
    "complex weights": lambda: Forward(
        lambda own, x: own.down(own.up(x.cdouble()).sin()).abs(),
        up=nn.Linear(8, 16, dtype=torch.cdouble),
        down=nn.Linear(16, 2, dtype=torch.cdouble),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_losses_of_gradients_have_gradients(way):
    """As if the gates were written out: the gradient of every weight and of the boundary is that of c(tau) W."""
    learner = ngn.learn_sizes(WAYS[way](), example=X, t0=3.3, by_importance=None)
    wanted = [p.detach().clone() for p in learner.parameters()]
    for p in learner.controller_parameters():
        with torch.no_grad():
            p.add_(1e-5)
            above = learner(X).detach().square().sum().item()
            p.sub_(2e-5)
            below = learner(X).detach().square().sum().item()
            p.add_(1e-5)
        learner.zero_grad()
        learner(X).square().sum().backward()
        assert p.grad.item() == pytest.approx((above - below) / 2e-5, rel=0.05, abs=1e-3)
    assert all(torch.allclose(p, was) for p, was in zip(learner.parameters(), wanted, strict=True))


def test_what_python_cannot_copy_is_named():
    model = chain(8, 16, 8)
    model.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"the model: \.lock holds what cannot be copied"):
        ngn.learn_sizes(model, example=X)
    exported = torch.export.export(chain(8, 16, 8).eval(), (X,)).module()
    with pytest.raises(ValueError, match="an exported program computes in one mode only"):
        ngn.find_sizes(nn.Sequential(exported, chain(8, 12, 3)), X)


@pytest.mark.parametrize("heads", [4, 2])
def test_a_deployed_encoder_scripts_exports_and_pickles(heads):
    layer = nn.TransformerEncoderLayer(8, 4, 16, dropout=0.0, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), torch.randn(2, 5, 8)
    small = ngn.learn_sizes(model, example=x, capacity=lambda name, K: Retained(K, heads if K == 4 else 9)).deploy()
    attention = small.layers[0].self_attn
    assert attention.num_heads == heads
    assert (type(attention) is nn.MultiheadAttention) == (heads == 4), "torch's own needs as many heads as there were"
    scripted = torch.jit.script(small)
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    again = [torch.jit.load(file), torch.export.export(small, (x,)).module(), pickle.loads(pickle.dumps(small))]
    for each in (scripted, *again):
        torch.testing.assert_close(each(x), small(x), atol=1e-5, rtol=1e-4)
