"""Learned ranks, of LoRA or of ngn: the adapter of the deployed model is written, and read by peft as it is."""

import itertools
import re
from dataclasses import replace

import pytest
import torch
from sizable import Forward
from torch import nn

import ngn
from ngn.learner.shrinking import shrink

transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [5, 3, 5, 8, 9, 7, 9, 3]])
PAIR = ["q_proj", "v_proj"]
pytestmark = pytest.mark.filterwarnings("ignore")  # those of peft


def llama(**given):
    sizes = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False, "pad_token_id": 0}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads, **given))


def gpt2():
    """Its maps are transformers' Conv1D."""
    sizes = {"vocab_size": 11, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 16, "bos_token_id": 1}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, eos_token_id=2, use_cache=False))


def experts():
    sizes = {"vocab_size": 11, "hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "use_cache": False}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **heads, pad_token_id=0))


class Alike(nn.Module):
    """Three maps, and the name of each ends as that of another does."""

    def __init__(self):
        super().__init__()
        self.map, self.sub = nn.Linear(24, 24), nn.ModuleDict({"map": nn.Linear(24, 24)})
        self.a_sub = nn.ModuleDict({"sub": nn.ModuleDict({"map": nn.Linear(24, 24)})})
        self.embed = nn.Embedding(11, 24)

    def forward(self, input_ids):
        return self.a_sub["sub"]["map"](self.sub["map"](self.map(self.embed(input_ids)).tanh()).tanh())


def images():
    parts = {"embed": nn.Embedding(11, 24), "conv": nn.Conv2d(24, 12, (3, 1), padding=(1, 0))}
    return Forward(lambda own, input_ids: own.conv(own.embed(input_ids).mT[..., None]).flatten(1), **parts)


SETTINGS = {
    "pair": (llama, {"target_modules": PAIR}),
    "all": (llama, {"target_modules": "all-linear"}),
    "square root": (llama, {"target_modules": PAIR, "use_rslora": True, "lora_alpha": 5}),
    "dora": (llama, {"target_modules": ["q_proj", "down_proj"], "use_dora": True}),
    "gpt2": (gpt2, {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True, "lora_bias": True}),
    "tied": (lambda: llama(tie_word_embeddings=True), {"target_modules": ["embed_tokens", "q_proj"]}),
    "saved": (llama, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}),
    "patterns": (llama, {"target_modules": PAIR, "rank_pattern": {"q_proj": 4}, "alpha_pattern": {"v_proj": 5}}),
    "parameters": (experts, {"target_modules": [], "target_parameters": ["gate_up_proj", "down_proj"]}),
    "odd": (llama, {"target_modules": PAIR, "init_lora_weights": "orthogonal"}),
    "alike": (Alike, {"target_modules": ["map", "embed"]}),
    "images": (images, {"target_modules": ["conv"]}),
    "expression": (llama, {"target_modules": r".*[.]self_attn[.](q|v)_proj", "use_dora": True, "use_rslora": True}),
}


def made(base):
    torch.manual_seed(0)
    return base()


def adapted(base, *more, **config):
    """A peft model whose adapters are not what they start as."""
    model = peft.get_peft_model(made(base), peft.LoraConfig(**{"r": 6, "lora_alpha": 16} | config))
    for name, other in more:
        model.add_adapter(name, other)
    for name, p in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(p, 0.5 if "magnitude" in name else 0.0, 0.3)
    return model


def learned(model, ending=r"lora_\w+([.]\w+)?"):
    """A learner of the sizes whose names have an ``ending``; one to three components are left of each."""
    found = ngn.find_sizes(model, {"input_ids": IDS})
    found = replace(found, groups=tuple(group for group in found.groups if re.search(f"[.]{ending}$", group.name)))
    t0 = itertools.cycle((0.2, 1.2, 2.2))
    return ngn.learn_sizes(model, found, capacity=lambda _, K: ngn.CountGate(K, t0=next(t0)))


def ranks_of(model):
    return {path: part.r for path, part in model.named_modules() if isinstance(getattr(part, "r", None), dict)}


@torch.no_grad()
def answers(model):
    found = model.eval()(input_ids=IDS)
    return getattr(found, "logits", found)


def read(folder, base):
    return peft.PeftModel.from_pretrained(made(base), folder)


@pytest.mark.parametrize("setting", SETTINGS)
def test_stock_peft_reads_the_deployed_adapter(setting, tmp_path):
    base, config = SETTINGS[setting]
    model = adapted(base, **config)
    usual = ranks_of(model)
    learner = learned(model)
    small = learner.deploy(example={"input_ids": IDS})
    ngn.to_peft(small, tmp_path, example={"input_ids": IDS})  # which calls save_pretrained, and reads it back
    back = read(tmp_path, base)
    assert ranks_of(back) == ranks_of(small) != usual == ranks_of(model)
    torch.testing.assert_close(answers(back), answers(small), rtol=0, atol=1e-5)
    if setting not in ("tied", "parameters"):  # peft merges into the tied head, too
        torch.testing.assert_close(answers(back.merge_and_unload()), answers(small), rtol=1e-4, atol=1e-4)


def test_only_the_adapter_that_was_learned_gets_other_ranks(tmp_path):
    """And a model that was cut in place names them already."""
    model = adapted(llama, ("two", peft.LoraConfig(r=5, target_modules=PAIR)), target_modules=PAIR)
    model.set_adapter("two")
    learner = learned(model, "lora_A.two")
    small = learner.deploy()
    ngn.to_peft(small, tmp_path, example={"input_ids": IDS})
    for name in ("default", "two"):
        small.set_adapter(name)
        back = read(tmp_path / (name if name != "default" else ""), llama)
        torch.testing.assert_close(answers(back), answers(small), rtol=0, atol=1e-5)
    assert small.peft_config["default"].rank_pattern == {}
    shrink(model, learner.axes, [int(axis.capacity.count()) for axis in learner.axes])
    assert ranks_of(model) == ranks_of(small)
    assert model.peft_config["two"].rank_pattern == small.peft_config["two"].rank_pattern != {}


@pytest.mark.parametrize(
    ("sizes", "config", "why"),
    [
        (["mlp"], {}, "other sizes"),
        ([], {"init_lora_weights": "pissa"}, "pissa"),
        ([], {"init_lora_weights": "mica"}, "MiCA"),
        ([], {"target_modules": ["embed_tokens"], "ensure_weight_tying": True}, "ties adapters"),
    ],
)
def test_an_adapter_that_peft_would_read_otherwise_is_not_written(sizes, config, why, tmp_path):
    model = adapted(lambda: llama(tie_word_embeddings=True), **{"target_modules": PAIR} | config)
    with pytest.raises(ValueError, match=why):
        learned(model, *sizes).deploy().save_pretrained(tmp_path)


def test_a_merged_adapter_cannot_be_cut():
    learner = learned(adapted(llama, target_modules=PAIR))
    learner.model.merge_adapter()
    with pytest.raises(ValueError, match="unmerge_adapter"):
        learner.deploy()


def with_terms(base, sizes, trained=(), **settings):
    """A learner of terms beside frozen maps, whose values are not what they start as."""
    learner = ngn.learn_sizes(model := made(base), sizes, frozen=True, **settings)
    for path in trained:
        model.get_submodule(path).requires_grad_(True)
    for p in model.parameters():
        if p.requires_grad and p.dim() > 1:
            nn.init.normal_(p, 0.0, 0.3)
    return learner


TERMS = {
    "llama": (llama, {"**.q_proj": ngn.Rank(4, t0=2.2), "**.v_proj": ngn.Rank(4)}, []),
    "head": (llama, {"**.mlp.*_proj": ngn.Rank(3, t0=1.2)}, ["model.norm", "lm_head"]),
    "alike": (Alike, {"map": ngn.Rank(3, t0=1.2), "sub.map": ngn.Rank(3, t0=2.2)}, ["embed"]),
    "power": (Alike, {"**.map": ngn.Rank(4, t0=2.2, r=0.5)}, []),  # the weights of the order are folded into B
}


@pytest.mark.parametrize("terms", TERMS)
def test_terms_of_ngn_are_an_adapter(terms, tmp_path):
    base, sizes, trained = TERMS[terms]
    learner = with_terms(base, sizes, trained)
    small = learner.deploy(example={"input_ids": IDS})
    flags = [p.requires_grad for p in small.parameters()]
    ranks = ngn.to_peft(small, tmp_path, base="the/base", example={"input_ids": IDS})
    assert list(ranks.values()) == [n for n in learner.count().tolist() if n]
    assert [p.requires_grad for p in small.parameters()] == flags
    back = read(tmp_path, base)
    assert {path.removeprefix("base_model.model."): r["default"] for path, r in ranks_of(back).items()} == ranks
    torch.testing.assert_close(answers(back), answers(small), rtol=0, atol=1e-5)
    assert back.peft_config["default"].base_model_name_or_path == "the/base"
    assert back.peft_config["default"].modules_to_save == (trained or None)


def test_norms_that_count_batches_are_part_of_the_adapter(tmp_path):
    def base():
        return nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))

    learner = with_terms(base, {"0": ngn.Rank(2, t0=1.2)})
    x = torch.randn(16, 6)
    learner.model.train()(x * 3 + 1)
    small = learner.deploy(example=x)
    ngn.to_peft(small, tmp_path, example=x)
    torch.testing.assert_close(read(tmp_path, base).eval()(x), small(x), rtol=0, atol=1e-6)


def test_what_an_adapter_cannot_hold_is_not_written(tmp_path):
    def refused(why, learner):
        with pytest.raises(ValueError, match=why):
            ngn.to_peft(learner.deploy(unsettled="allow"), tmp_path)

    ranks = {"**.q_proj": ngn.Rank(2, t0=1.2)}
    refused("other sizes were learned, too: .*mlp", with_terms(llama, ranks | {"**.mlp": ngn.Width(8, t0=3.0)}))
    refused("Call ngn.learn_sizes with frozen=True", ngn.learn_sizes(llama(), ranks))
    refused("every rank is zero", with_terms(llama, {"**.q_proj": ngn.Rank(2)}))
    with pytest.raises(TypeError, match="not a learner"):
        ngn.to_peft(with_terms(llama, ranks), tmp_path)
    learner = learned(adapted(llama, target_modules=PAIR))
    with pytest.raises(ValueError, match="sizes are still learned, and others would read the folder without masks"):
        learner.model.save_pretrained(tmp_path)
    damaged = learner.deploy()
    damaged.base_model.model.model.layers[0].self_attn.q_proj.scaling["default"] = 3.0  # its configuration says another
    with pytest.raises(ValueError, match="other ranks or scales"):
        ngn.to_peft(damaged, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_a_budget_of_lora_counts_what_is_trained():
    budget = ngn.Budget(parameters="60%")
    terms = with_terms(llama, {"**.q_proj": ngn.Rank(4)}, budget=budget)
    assert (terms.reach.smallest, terms.reach.largest) == (0, 2 * 4 * (24 + 24))
    model = adapted(llama, target_modules=PAIR)
    ranks = ngn.find_sizes(model, {"input_ids": IDS}).without("**.base_layer").only("**.lora_A.*")
    learner = ngn.learn_sizes(model, ranks, budget=budget)
    trained = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name and "size" not in name)
    assert learner.reach.largest == trained
    assert learner.cost.exact is not None
    plan = ngn.TrainPlan(steps=20, lr=1e-3)
    ngn.fit(learner, [IDS], None, lambda model, x: model(input_ids=x, labels=x).loss, plan, progress="never")
    small = learner.deploy()
    assert 0 < sum(p.numel() for name, p in small.named_parameters() if "lora_" in name) <= 0.6 * trained
