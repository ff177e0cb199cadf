"""The paper's model at its true shapes, without weights: modules and their numbers."""

import pytest
import torch

import ngn
from experiments.core.task import DataInfo
from experiments.models.adapter import Adapter, attach_adapters
from experiments.tasks.language.base import PretrainedModel

transformers = pytest.importorskip("transformers")
IDS = torch.zeros(1, 16, dtype=torch.int64, device="meta")


@pytest.fixture
def model():
    shape = transformers.LlamaConfig(
        vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=8192, rope_theta=500_000.0,
    )  # fmt: skip
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(shape).to(torch.bfloat16).requires_grad_(False).eval()


def parts(model):
    base = PretrainedModel(model, None, DataInfo("llama3_8b", "", ""), (0,))
    return base.layers, base.maps()


def numbers(model, trained):
    return sum(p.numel() for p in model.parameters() if p.requires_grad == trained)


def test_ranks(model):
    _, maps = parts(model)
    t0 = [0.1, 2.1, 16.1, 1.1] * 16
    assert ngn.attach_low_rank(model, maps, lambda n: ngn.CountGate(16, t0=t0[n], delta=-0.5), seed=0) == maps
    assert len(maps) == 64
    assert numbers(model, False) == 8_030_261_248
    assert numbers(model, True) == 32 * 16 * (4096 + 4096 + 4096 + 1024) + 64
    learner = ngn.CapacityLearner(model)
    assert learner(input_ids=IDS).logits.shape == (1, 16, 128_256)
    small = learner.deploy(share_frozen=True)
    left = {name: part.down.shape[0] for name, part in small.named_modules() if isinstance(part, ngn.LowRankLinear)}
    assert left == {name: n for name, n in zip(maps, learner.count().tolist(), strict=True) if n}
    assert sorted({*left.values()}) == [1, 2, 16]
    assert numbers(small, True) == sum(n * (4096 + (1024 if "v_proj" in name else 4096)) for name, n in left.items())


def test_adapters(model):
    layers, _ = parts(model)
    attach_adapters(model, layers, 4096, lambda n: ngn.CountGate(16, t0=0.1 + n % 3, delta=-0.5), seed=0)
    assert numbers(model, True) == 32 * 16 * 2 * 4096 + 32
    learner = ngn.CapacityLearner(model)
    assert learner(input_ids=IDS).logits.shape == (1, 16, 128_256)
    small = learner.deploy(share_frozen=True)
    assert numbers(small, True) == sum(n % 3 for n in range(32)) * 2 * 4096
    assert sum(isinstance(part, Adapter) for part in small.modules()) == sum(n % 3 > 0 for n in range(32))
