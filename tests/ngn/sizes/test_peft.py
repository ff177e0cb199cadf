"""The ranks of a peft model: the adapter of the deployed model is written, and read by peft as it is."""

import itertools
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import ngn
from ngn.shrinking import shrink

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


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.conv = nn.Embedding(11, 24), nn.Conv2d(24, 12, (3, 1), padding=(1, 0))

    def forward(self, input_ids):
        return self.conv(self.embed(input_ids).mT[..., None]).flatten(1)


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
    "images": (Images, {"target_modules": ["conv"]}),
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
    assert ngn.to_peft(small, tmp_path, example={"input_ids": IDS}).keys() == ranks_of(small).keys()
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
