"""Heads, slices and layers of transformers' models: the start is the original, the deployed model is the hard one."""

import pytest
import torch

import ngn
from ngn.sizes.trial import difference

transformers, accelerate = pytest.importorskip("transformers"), pytest.importorskip("accelerate")
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])
TINY = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6}


def llama():
    """Three groups of two queries."""
    config = transformers.LlamaConfig(**TINY, num_key_value_heads=3, attention_bias=True)
    return transformers.LlamaForCausalLM(config), "model.layers.*.mlp", "model.layers.*.self_attn", "model.layers", 3


def neox():
    model = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**TINY))
    return model, "gpt_neox.layers.*.mlp", "gpt_neox.layers.*.attention", "gpt_neox.layers", 6


def bert():
    model = transformers.BertModel(transformers.BertConfig(**TINY))
    return model, "encoder.layer.*", "encoder.layer.*.attention", "encoder.layer", 6


def gpt2():
    """Its maps are transformers' Conv1D."""
    sizes = {"vocab_size": 11, "n_embd": 24, "n_inner": 48, "n_layer": 4, "n_head": 6, "n_positions": 16}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))
    return model, "transformer.h.*.mlp", "transformer.h.*.attn", "transformer.h", 6


def bigcode():
    """Named as GPT-2 is, but a query, a key and a value for each head in turn."""
    sizes = {"vocab_size": 11, "n_embd": 24, "n_inner": 48, "n_layer": 4, "n_head": 6, "n_positions": 16}
    config = transformers.GPTBigCodeConfig(**sizes, multi_query=False, bos_token_id=1, eos_token_id=2)
    model = transformers.GPTBigCodeForCausalLM(config)
    return model, "transformer.h.*.mlp", "transformer.h.*.attn", "transformer.h", 6


FAMILIES = {"llama": llama, "neox": neox, "bert": bert, "gpt2": gpt2, "bigcode": bigcode}


@pytest.fixture(params=FAMILIES)
def family(request):
    torch.manual_seed(0)
    model, mlp, attention, layers, heads = FAMILIES[request.param]()
    for p in model.parameters():  # biases and norms that are not what they start as
        torch.nn.init.normal_(p, 0.0, 0.3)
    return model.eval(), mlp, attention, layers, heads


def out(model, ids=IDS):
    with torch.no_grad():
        return model(ids)[0]


def distance(a, b):
    return float((a - b).abs().max() / b.abs().max())


def test_the_start_is_the_original_with_its_weights(family):
    model, mlp, attention, layers, heads = family
    before, weights = out(model), dict(model.named_parameters())
    learner = ngn.learn_sizes(model, {mlp: ngn.Width(16), attention: ngn.Heads(), layers: ngn.Depth()})
    after = dict(model.named_parameters())
    assert all(after[name] is weight for name, weight in weights.items())
    assert distance(out(model), before) < 1e-6
    assert sorted(learner.count().tolist()) == sorted([4] + [heads] * 4 + [16] * 4)
    assert distance(out(learner.deploy()), before) < 1e-6


def test_what_is_deployed_is_the_hard_model_of_stock_modules(family):
    model, mlp, attention, _, heads = family
    kinds = {type(module) for module in model.modules()}
    sizes = {mlp: ngn.Width(16, t0=4.1), attention: ngn.Heads(t0=0.8)}
    learner = ngn.learn_sizes(model, sizes, frozen=True, r=0.9)
    small = learner.deploy(example=IDS, unsettled="allow")
    assert {type(module) for module in small.modules()} == kinds
    assert not any(module._forward_pre_hooks for module in small.modules())
    assert sorted(learner.count().tolist()) == [2] * 4 + [5] * 4
    assert distance(out(small), out(learner)) > 1e-3  # the soft model is another
    widths = {tuple(sorted(p.shape)) for p in small.parameters()}
    assert (15, 24) in widths  # 5 of 16 slices of 48 units
    assert tuple(sorted((24, 24 // heads * 2))) in widths
    out(learner.model).sum()
    learner.penalty().backward()
    assert {name for name, p in learner.named_parameters() if p.requires_grad and p.grad is None} == set()


@pytest.mark.parametrize("make", [llama, neox])
def test_it_writes_with_a_cache_as_without(make):
    model, mlp, attention, layers, _ = make()
    sizes = {mlp: ngn.Width(16, t0=4.0), attention: ngn.Heads(t0=1.0), layers: ngn.Depth(t0=2.0)}
    small = ngn.learn_sizes(model.eval(), sizes).deploy(example=IDS)
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    assert torch.equal(small.generate(IDS, **settings), small.generate(IDS, use_cache=False, **settings))


def test_a_stack_of_fewer_layers_is_a_stock_model(tmp_path):
    model, _, _, layers, _ = llama()
    stack = [*model.model.layers]
    small = ngn.learn_sizes(model.eval(), {layers: ngn.Depth(t0=1.0)}).deploy(example=IDS)
    assert [layer.self_attn.layer_idx for layer in small.model.layers] == [0, 1]
    assert torch.equal(small.model.layers[1].mlp.up_proj.weight, stack[3].mlp.up_proj.weight)
    small.save_pretrained(tmp_path)
    assert distance(out(transformers.LlamaForCausalLM.from_pretrained(tmp_path)), out(small)) == 0


def test_what_a_configuration_lists_for_every_layer_is_of_those_that_stay(tmp_path):
    """Layers that look back four tokens among some that see all."""
    sliding = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 3}
    model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TINY, num_key_value_heads=3, **sliding)).eval()
    small = ngn.learn_sizes(model, {"model.layers": ngn.Depth(t0=1.0)}).deploy(example=IDS)
    assert small.config.layer_types == ["full_attention", "sliding_attention"]
    assert len(model.config.layer_types) == 4
    small.save_pretrained(tmp_path)
    assert distance(out(transformers.Qwen2ForCausalLM.from_pretrained(tmp_path)), out(small)) == 0


def test_files_need_a_model_built_as_the_trained_one(family, tmp_path):
    model, mlp, attention, layers, _ = family
    sizes = {mlp: ngn.Width(16, t0=4.0), attention: ngn.Heads(t0=1.0), layers: ngn.Depth(t0=2.0)}
    small = ngn.learn_sizes(model, sizes).deploy()
    ngn.save(small, tmp_path / "small")
    with accelerate.init_empty_weights():
        fresh = type(model)(model.config)
    ngn.learn_sizes(fresh, sizes)
    loaded = ngn.load(fresh, tmp_path / "small")
    assert distance(out(loaded), out(small)) == 0
    with torch.device("meta"):
        bare = type(model)(model.config)
    ngn.learn_sizes(bare, sizes)
    if "gpt2" in type(model).__module__:  # it has no buffers that no file holds
        assert distance(out(ngn.load(bare, tmp_path / "small")), out(small)) == 0
        return
    with pytest.raises(ValueError, match="init_empty_weights"):
        ngn.load(bare, tmp_path / "small")


def test_a_program_of_a_model_with_a_cache_is_refused_before_it_is_made(tmp_path):
    model, mlp, *_ = llama()
    small = ngn.learn_sizes(model, {mlp: ngn.Width(8, t0=3.0)}).deploy(unsettled="allow")
    with pytest.raises(ValueError, match=r"cache of keys and values: set model\.config\.use_cache = False"):
        ngn.export(small, tmp_path / "small.pt2", example={"input_ids": IDS})
    small.config.use_cache = False
    ngn.export(small, tmp_path / "small.pt2", example={"input_ids": IDS})
    program = torch.export.load(tmp_path / "small.pt2").module()
    torch.testing.assert_close(program(input_ids=IDS).logits, small(IDS).logits)


@pytest.mark.parametrize("head_dim", [4, 6])
def test_numbers_of_every_head_are_cut_with_the_heads(head_dim):
    """gpt-oss has a sink for every query head, and as published as many entries in a head as heads."""
    config = transformers.GptOssConfig(
        **(TINY | {"head_dim": head_dim, "num_hidden_layers": 2}),
        num_key_value_heads=3,
        num_local_experts=2,
        num_experts_per_tok=1,
    )
    model = transformers.GptOssForCausalLM(config).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.sinks.normal_()
    learner = ngn.learn_sizes(model, {"model.layers.*.self_attn": ngn.Heads(t0=1.0)}, example={"input_ids": IDS})
    small = learner.deploy(example={"input_ids": IDS}, unsettled="allow")
    assert [layer.self_attn.sinks.shape[0] for layer in small.model.layers] == [4, 4]


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_depth_of_one_stack_of_two_is_in_the_configuration(side, tmp_path):
    sizes = {"d_model": 24, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_layers": 4, "decoder_layers": 3}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    model = transformers.BartModel(
        transformers.BartConfig(vocab_size=11, max_position_embeddings=16, **sizes, **heads)
    ).eval()
    small = ngn.learn_sizes(model, {f"{side}.layers": ngn.Depth(t0=1.0)}, example=IDS).deploy(unsettled="allow")
    wanted = {"encoder": 4, "decoder": 3} | {side: 2}
    assert (small.config.encoder_layers, small.config.decoder_layers) == (wanted["encoder"], wanted["decoder"])
    small.save_pretrained(tmp_path)
    again = transformers.BartModel.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(again(IDS).last_hidden_state, small(IDS).last_hidden_state)


def test_depth_where_the_configuration_computes_its_lists():
    config = transformers.MambaConfig(vocab_size=11, hidden_size=24, num_hidden_layers=4, state_size=4)
    model = transformers.MambaForCausalLM(config).eval()
    learner = ngn.learn_sizes(model, {"backbone.layers": ngn.Depth(t0=1.0)}, example=IDS)
    small = learner.deploy(example=IDS, unsettled="allow")
    assert (len(small.backbone.layers), small.config.num_hidden_layers) == (2, 2)


def test_inputs_of_its_own_that_do_not_fit_ask_for_an_example():
    model = transformers.BertModel(transformers.BertConfig(**TINY | {"vocab_size": 3}))
    with pytest.raises(ValueError, match=r"the model fails on the example: .* It is the model's dummy_inputs: pass ex"):
        ngn.learn_sizes(model, {"encoder.layer.*": ngn.Width(16)})
    assert len(ngn.learn_sizes(model, {"encoder.layer.*": ngn.Width(16)}, example=IDS % 3).axes) == 4


def causal(kind, **more):
    sizes = TINY | {"num_hidden_layers": 2, "num_key_value_heads": 3, "bos_token_id": 0, "eos_token_id": 1}
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, f"{kind}Config")(**sizes, **more))
    return model.eval(), *[None] * 4


FOUND = {
    "llama": (llama, {"self_attn": (3, "heads"), "mlp": (48, "units")}),
    "neox": (neox, {"attention.query_key_value": (6, "heads"), "mlp.dense_h_to_4h": (48, "units")}),
    "gpt2": (gpt2, {"attn.c_attn": (6, "heads"), "mlp.c_fc": (48, "units")}),
    "bert": (
        lambda: causal("Bert", is_decoder=True),
        {"attention.self": (6, "heads"), "intermediate.dense": (48, "units")},
    ),
    "phi3": (lambda: causal("Phi3", pad_token_id=0), {"mlp.gate_up_proj": (48, "units")}),
    "mixtral": (  # a grouped product takes blocks of four numbers
        lambda: causal("Mixtral", num_local_experts=4),
        {"self_attn": (3, "heads"), "mlp.experts": (12, "units")},
    ),
}


@pytest.mark.parametrize("kind", FOUND)
def test_the_sizes_of_each_layer_are_found_without_names(kind):
    make, wanted = FOUND[kind]
    learner = ngn.learn_sizes(make()[0].eval(), example=IDS)
    found = {group.name: (group.length, group.unit) for group in learner.found}
    layers = len(found) // len(wanted)
    for name, size in wanted.items():
        assert [value for path, value in found.items() if path.endswith(name)] == [size] * layers
    random = torch.Generator().manual_seed(2)
    for _ in range(2):
        counts = {axis: int(torch.randint(1, axis.K + 1, (), generator=random)) for axis in learner.axes}
        assert difference(learner.model, learner.axes, IDS, counts.__getitem__) is None


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
    model, x = transformers.EfficientNetModel(config).eval(), torch.randn(2, 3, 32, 32)
    sizes = {"encoder.blocks.*.expansion.expand_conv": ngn.Channels(8, t0=1.3)}
    learner = ngn.learn_sizes(model, sizes, example=x)
    small = learner.deploy(example=x, unsettled="allow")
    for name in learner.names:
        block = small.get_submodule(name.rpartition(".expansion")[0])
        assert block.squeeze_excite.reduce.in_channels == block.projection.project_conv.in_channels < 32
