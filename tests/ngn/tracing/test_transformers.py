"""Heads, widths and experts of language models, found without their names."""

import pytest
import torch

import ngn
from ngn.sizes.trial import difference

transformers = pytest.importorskip("transformers")
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])
TINY = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6}
QUERIES = {**TINY, "num_key_value_heads": 3}
BOS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}


def gpt2():
    shape = {"vocab_size": 11, "n_embd": 24, "n_layer": 2, "n_head": 6, "n_positions": 16}
    return transformers.GPT2Config(**shape, **BOS), {"attn.c_attn": (6, "heads"), "mlp.c_fc": (96, "units")}


FAMILIES = {
    "llama": lambda: (
        transformers.LlamaConfig(**QUERIES, **BOS),
        {"self_attn": (3, "heads"), "mlp": (48, "units")},
    ),
    "neox": lambda: (
        transformers.GPTNeoXConfig(**TINY, **BOS),
        {"attention.query_key_value": (6, "heads"), "mlp.dense_h_to_4h": (48, "units")},
    ),
    "gpt2": gpt2,
    "phi3": lambda: (transformers.Phi3Config(**QUERIES, **BOS), {"mlp.gate_up_proj": (48, "units")}),
    "mixtral": lambda: (  # a grouped product takes blocks of four numbers
        transformers.MixtralConfig(**QUERIES, num_local_experts=4, **BOS),
        {"self_attn": (3, "heads"), "mlp.experts": (12, "units")},
    ),
    "bert": lambda: (
        transformers.BertConfig(**TINY, is_decoder=True, **BOS),
        {"attention.self": (6, "heads"), "intermediate.dense": (48, "units")},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_sizes_of_each_layer(family):
    config, wanted = FAMILIES[family]()
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    learner = ngn.learn_sizes(model, example=IDS)
    found = {group.name: (group.length, group.unit) for group in learner.found}
    assert len(found) == 2 * len(wanted)
    for name, size in wanted.items():
        assert [value for path, value in found.items() if path.endswith(name)] == [size, size]
    random = torch.Generator().manual_seed(2)
    for _ in range(2):
        counts = {axis: int(torch.randint(1, axis.K + 1, (), generator=random)) for axis in learner.axes}
        assert difference(learner.model, learner.axes, IDS, counts.__getitem__) is None


def test_a_model_brings_its_input():
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**QUERIES, **BOS))
    assert len(ngn.learn_sizes(model).axes) == 4


def test_channels_behind_which_there_are_squeeze_and_excitation_blocks():
    """Blocks of transformers without any nn.Sequential; one pattern matches all convolutions."""
    config = transformers.EfficientNetConfig(
        image_size=32,
        width_coefficient=0.5,
        depth_coefficient=0.5,
        hidden_dim=640,
        in_channels=[32, 16],
        out_channels=[16, 24],
        kernel_sizes=[3, 3],
        strides=[1, 2],
        num_block_repeats=[1, 2],
        expand_ratios=[4, 4],
        depthwise_padding=[],
    )
    model = transformers.EfficientNetModel(config).eval()
    x = torch.randn(2, 3, 32, 32)
    sizes = {"encoder.blocks.*.expansion.expand_conv": ngn.Channels(8, t0=1.3)}
    learner = ngn.learn_sizes(model, sizes, example=x)
    small = learner.deploy(example=x, unsettled="allow")
    for name in learner.names:
        block = small.get_submodule(name.rpartition(".expansion")[0])
        assert block.squeeze_excite.reduce.in_channels == block.projection.project_conv.in_channels < 32
