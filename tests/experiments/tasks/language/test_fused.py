"""Low-rank terms for q, k and v of GPT-NeoX, whose three maps are one."""

import dataclasses

import pytest
import torch

import ngn
from experiments.tasks.language import export
from experiments.tasks.language.base import PretrainedModel, tiny_base
from experiments.tasks.language.fused import FUSED, SplitMap, join_maps

pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
IDS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
COUNTS = [2, 0, 1, 0, 3, 0]  # q, k and v of two layers


@pytest.fixture
def base() -> PretrainedModel:
    shape = transformers.GPTNeoXConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = transformers.GPTNeoXForCausalLM(shape).requires_grad_(False).eval()
    for name, p in model.named_parameters():  # transformers starts them at zero
        if name.endswith("bias"):
            p.data.copy_(torch.linspace(-1, 1, len(p)))
    return dataclasses.replace(tiny_base(torch.device("cpu")), model=model)


def with_terms(base):
    apart = base.taken_apart()
    model, names = apart.shared_copy(), apart.maps(("q", "k", "v"))
    ngn.attach_low_rank(model, names, lambda n: ngn.CountGate(4, t0=COUNTS[n] + 0.1, delta=-0.5, r=0.5), seed=1)
    for name in names:
        up = model.get_submodule(name).up
        up.data.copy_(torch.randn(up.shape, generator=torch.Generator().manual_seed(5)))
    return model, names


@torch.no_grad()
def test_maps_that_are_taken_apart_compute_the_same(base):
    apart = base.taken_apart()
    assert apart.maps(("q",)) == [f"gpt_neox.layers.{n}.attention.{FUSED}.q" for n in (0, 1)]
    expected = base.model(IDS).logits
    torch.testing.assert_close(apart.model(IDS).logits, expected, rtol=1e-6, atol=1e-6)
    again = join_maps(apart.shared_copy())
    assert again.state_dict().keys() == base.model.state_dict().keys()
    assert all(torch.equal(again.state_dict()[name], value) for name, value in base.model.state_dict().items())
    assert not any(isinstance(part, SplitMap) for part in base.model.modules())  # the base itself stays


@torch.no_grad()
def test_rows_are_those_that_attention_reads(base):
    """Attention of transformers views the output as [heads, 3 size] and cuts it into q, k and v."""
    fused = base.model.gpt_neox.layers[0].attention.query_key_value
    split, x = SplitMap(fused, heads=4), torch.randn(3, 16)
    for part, read in zip("qkv", fused(x).view(3, 4, -1).chunk(3, -1), strict=True):
        torch.testing.assert_close(split.get_submodule(part)(x), read.flatten(1))


def test_models_without_fused_maps_stay_themselves():
    base = tiny_base(torch.device("cpu"))
    assert base.taken_apart() is base


def test_stock_peft_reads_the_terms_as_those_of_one_map(base, tmp_path):
    model, _ = with_terms(base)
    small = ngn.deploy(model, share_frozen=True)
    ranks = export.write_peft(small, tmp_path, "the/base")
    assert list(ranks.values()) == [3, 3]
    assert export.check_peft(tmp_path, base.taken_apart().shared_copy(), small, IDS) < 1e-6
