"""Heads, units and layers of transformers' models: found, cut exactly, and told to their configurations."""

import pytest
import torch
from sizable import cut_exactly

import ngn

transformers, accelerate = pytest.importorskip("transformers"), pytest.importorskip("accelerate")
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])
TINY = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 6}
SHORT = {"vocab_size": 11, "n_embd": 24, "n_inner": 48, "n_layer": 2, "n_head": 6, "n_positions": 16}
ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
EVEN = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout_prob"), 0.0)
EVEN["attention_probs_dropout_prob"] = 0.0


def causal(kind, **given):
    config = getattr(transformers, f"{kind}Config")(**ENDS | EVEN | given)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for p in model.parameters():  # biases and norms that are not what they start as
        torch.nn.init.normal_(p, 0.0, 0.3)
    return model.eval()


def stack(kind, **given):
    return causal(kind, **TINY | {"num_hidden_layers": 2, "num_key_value_heads": 3} | given)


def llama(layers=4):
    """Three groups of two queries."""
    return stack("Llama", num_hidden_layers=layers, attention_bias=True)


def neox(layers=4):
    return stack("GPTNeoX", num_hidden_layers=layers)


UNITS = {"mlp.c_fc": "48 units"}
FAMILIES = {
    "llama": (lambda: llama(2), "model.layers", {"self_attn": "3 heads", "mlp": "48 units"}),
    "neox": (
        lambda: neox(2), "gpt_neox.layers", {"attention.query_key_value": "6 heads", "mlp.dense_h_to_4h": "48 units"},
    ),
    # grouped queries in one map
    "falcon": (
        lambda: stack("Falcon", new_decoder_architecture=True, num_kv_heads=3), "transformer.h",
        {"self_attention.query_key_value": "3 heads", "mlp.dense_h_to_4h": "96 units"},
    ),
    # its maps are transformers' Conv1D
    "gpt2": (lambda: causal("GPT2", **SHORT), "transformer.h", {"attn.c_attn": "6 heads"} | UNITS),
    # named as GPT-2 is, but a query, a key and a value for each head in turn
    "bigcode": (
        lambda: causal("GPTBigCode", multi_query=False, **SHORT), "transformer.h", {"attn.c_attn": "6 heads"} | UNITS,
    ),
    # one key for all heads
    "multi-query": (
        lambda: causal("GPTBigCode", multi_query=True, **SHORT), "transformer.h", {"attn.c_attn": "6 heads"} | UNITS,
    ),
    "bert": (
        lambda: stack("Bert", is_decoder=True), "bert.encoder.layer",
        {"attention.self": "6 heads", "intermediate.dense": "48 units"},
    ),
    "phi3": (lambda: stack("Phi3"), "model.layers", {"mlp.gate_up_proj": "48 units"}),
    # a grouped product takes blocks of four numbers
    "mixtral": (
        lambda: stack("Mixtral", num_local_experts=4), "model.layers",
        {"self_attn": "3 heads", "mlp.experts": "12 units"},
    ),
    # a sink for every query head, and as published as many entries in a head as heads
    "gpt-oss": (
        lambda: stack("GptOss", head_dim=6, num_local_experts=2, num_experts_per_tok=1), "model.layers",
        {"self_attn": "3 heads", "mlp.experts": "12 units"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_sizes_of_each_layer_are_found_and_cut_exactly(kind, tmp_path):
    make, layers, parts = FAMILIES[kind]
    wanted = {f"{layers}.{number}.{part}": size for number in range(2) for part, size in parts.items()}
    cut_exactly(make, IDS, tmp_path, wanted)


def out(model, ids=IDS):
    with torch.no_grad():
        return model(ids)[0]


@pytest.mark.parametrize(
    ("make", "layers", "attention"), [(llama, "model.layers", "self_attn"), (neox, "gpt_neox.layers", "attention")]
)
def test_it_writes_with_a_cache_as_without(make, layers, attention):
    parts = {f"{layers}.*.mlp": ngn.Width(16, t0=4.0), f"{layers}.*.{attention}": ngn.Heads(t0=1.0)}
    model, sizes = make(), parts | {layers: ngn.Depth(t0=2.0)}
    small = ngn.learn_sizes(model, sizes).deploy(example=IDS)
    assert {*map(type, small.modules())} == {*map(type, make().modules())}
    settings = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    assert torch.equal(small.generate(IDS, **settings), small.generate(IDS, use_cache=False, **settings))


def qwen():
    """Layers that look back four tokens among some that see all."""
    sliding = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 3}
    return stack("Qwen2", num_hidden_layers=4, **sliding)


def bart():
    sizes = {"d_model": 24, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "encoder_layers": 4, "decoder_layers": 3}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    return transformers.BartModel(transformers.BartConfig(vocab_size=11, max_position_embeddings=16, **sizes, **heads))


@pytest.mark.parametrize(
    ("make", "layers", "said"),
    [
        (qwen, "model.layers", {"layer_types": ["full_attention", "sliding_attention"]}),
        (bart, "encoder.layers", {"encoder_layers": 2, "decoder_layers": 3}),
        (bart, "decoder.layers", {"encoder_layers": 4, "decoder_layers": 2}),
        # its configuration computes its lists
        (
            lambda: causal("Mamba", **TINY, state_size=4),
            "backbone.layers", {"num_hidden_layers": 2},
        ),
    ],
)  # fmt: skip
def test_depth_is_in_the_configuration(make, layers, said, tmp_path):
    model = make().eval()
    before = {name: getattr(model.config, name) for name in said}
    small = ngn.learn_sizes(model, {layers: ngn.Depth(t0=1.0)}, example=IDS).deploy(example=IDS, unsettled="allow")
    assert {name: getattr(small.config, name) for name in said} == said
    assert {name: getattr(model.config, name) for name in said} == before
    small.save_pretrained(tmp_path)
    assert torch.equal(out(type(small).from_pretrained(tmp_path).eval()), out(small))


def test_files_need_a_model_with_its_buffers(tmp_path):
    model, sizes = llama(), {"model.layers.*.mlp": ngn.Width(16, t0=4.0)}
    small = ngn.learn_sizes(model, sizes).deploy()
    ngn.save(small, tmp_path / "small")
    with accelerate.init_empty_weights():
        fresh = type(model)(model.config)
    ngn.learn_sizes(fresh, sizes)
    assert torch.equal(out(ngn.load(fresh, tmp_path / "small")), out(small))
    with torch.device("meta"):
        bare = type(model)(model.config)
    with pytest.raises(ValueError, match="init_empty_weights"):
        ngn.load(bare, tmp_path / "small")


@pytest.mark.slow
def test_a_program_of_a_model_with_a_cache_is_refused_before_it_is_made(tmp_path):
    small = ngn.learn_sizes(llama(), {"model.layers.*.mlp": ngn.Width(8, t0=3.0)}).deploy(unsettled="allow")
    with pytest.raises(ValueError, match=r"cache of keys and values: set model\.config\.use_cache = False"):
        ngn.export(small, tmp_path / "small.pt2", example={"input_ids": IDS})
    small.config.use_cache = False
    ngn.export(small, tmp_path / "small.pt2", example={"input_ids": IDS})
    program = torch.export.load(tmp_path / "small.pt2").module()
    torch.testing.assert_close(program(input_ids=IDS).logits, small(IDS).logits, rtol=1e-4, atol=1e-4)


def test_inputs_of_its_own_that_do_not_fit_ask_for_an_example():
    model = transformers.BertModel(transformers.BertConfig(**TINY | {"vocab_size": 3}))
    with pytest.raises(ValueError, match=r"the model fails on the example: .* It is the model's dummy_inputs: pass ex"):
        ngn.learn_sizes(model, {"encoder.layer.*": ngn.Width(16)})
    assert len(ngn.learn_sizes(model, {"encoder.layer.*": ngn.Width(16)}, example=IDS % 3).axes) == 4
