"""Structures of other people's models that once were refused: each is cut, or the message leads to what works."""

import pytest
import torch
from torch import nn

import ngn

X = torch.randn(2, 5, 24)
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
TINY = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
TINY |= {"num_key_value_heads": 3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class ViTAttention(nn.Module):
    """Attention of timm's vision transformers: what the heads have together is an attribute of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.attn_dim = 6, 4, 24
        self.qkv, self.q_norm, self.proj = nn.Linear(24, 72), nn.LayerNorm(4), nn.Linear(24, 24)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        h = nn.functional.scaled_dot_product_attention(self.q_norm(q), self.q_norm(k), v)
        return self.proj(h.transpose(1, 2).reshape(b, n, self.attn_dim))


class WithTerms(nn.Module):
    """A map with the terms of peft's LoRA."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 4, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(4, base.out_features, bias=False)})

    def forward(self, x):
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


def adapted() -> nn.Module:
    return nn.Sequential(nn.Sequential(WithTerms(nn.Linear(24, 48)), nn.GELU(), WithTerms(nn.Linear(48, 24))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Linear(24, 12), nn.LSTM(12, 16, batch_first=True)
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.head(self.rnn(self.embed(x))[0])


def language(kind, **more):
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{kind}Config")
    return getattr(transformers, f"{kind}ForCausalLM")(config(**TINY | more))


MLP, HEADS = "model.layers.*.mlp", "model.layers.*.self_attn"
CUT = {
    "timm's attention": (ViTAttention, {"": ngn.Heads(t0=1.0)}, X, 1),
    "terms and the units between": (adapted, {"0": ngn.Width(4, t0=1.0)}, X, 3),
    "units between maps with terms": (adapted, {"0.0.base_layer": ngn.Width(16, t0=5.0)}, X, 1),
    "beside a recurrent layer": (Recurrent, {"*": ngn.Width(16, t0=5.0)}, X, 1),
    "grouped queries in one map": (
        lambda: language("Falcon", new_decoder_architecture=True, num_kv_heads=3),
        {"transformer.h.*.self_attention": ngn.Heads(t0=1.0)},
        IDS,
        2,
    ),
}


@pytest.mark.parametrize("case", CUT)
def test_it_is_cut(case):
    make, sizes, x, number = CUT[case]
    torch.manual_seed(0)
    model = make().eval()
    learner = ngn.learn_sizes(model, sizes, example=x)
    assert len(learner.axes) == number
    small = learner.deploy(example=x, unsettled="allow")  # compares outputs
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


def test_heads_in_pairs():
    learner = ngn.learn_sizes(ViTAttention(), {"": ngn.Heads(round_to=2, t0=0.8)}, example=X)
    small = learner.deploy(example=X, unsettled="allow")
    assert (learner.axes[0].K, small.num_heads, small.attn_dim) == (3, 4, 16)


@pytest.mark.parametrize(
    ("make", "sizes", "x", "message", "followed"),
    [
        (
            Recurrent,
            {"rnn": ngn.Width(4)},
            X,
            r"operation .*rnn.* in rnn.* has slices in head\.\d",
            {"head.*": ngn.Width(4)},
        ),
        (
            lambda: language("Phi3"),
            {HEADS: ngn.Heads(), MLP: ngn.Width(4)},
            IDS,
            "self_attn: cut to .* Leave it out",
            {MLP: ngn.Width(4)},
        ),
        (
            lambda: nn.Sequential(adapted()),
            {"0.0.2": ngn.Width(4), "0.0.1": ngn.Width(4)},
            X,
            "0.0.1: no slices to cut inside it",
            {"0.0.2": ngn.Width(4)},
        ),
    ],
)
def test_the_advice_works(make, sizes, x, message, followed):
    with pytest.raises(ValueError, match=message):
        ngn.learn_sizes(make().eval(), sizes, example=x)
    assert ngn.learn_sizes(make().eval(), followed, example=x).names
