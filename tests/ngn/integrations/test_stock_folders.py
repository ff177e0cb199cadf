"""Folders that stock classes of transformers and peft open, and what the others do."""

import json
import subprocess
import sys

import pytest
import torch

import ngn
from ngn.methods.fixed import Retained

transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
from ngn.integrations.transformers import SizesCallback, load, save  # noqa: E402 - it needs the package

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # one of peft
TINY = {"vocab_size": 32, "hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}
SHORT = {"vocab_size": 32, "n_embd": 24, "n_layer": 3, "n_head": 6, "n_positions": 16, "bos_token_id": 1}
IMAGES = {"hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}
IDS = torch.randint(0, 32, (3, 11), generator=torch.Generator().manual_seed(0))
PIXELS = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def llama(**more):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, num_key_value_heads=3, **more))


KINDS = {
    "llama": (llama, {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 16}),
    "tied": (lambda: llama(tie_word_embeddings=True), {"num_key_value_heads": 2, "intermediate_size": 16}),
    "vit": (
        lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**IMAGES, image_size=16, patch_size=8)),
        {"num_attention_heads": 2, "head_dim": 4, "intermediate_size": 16},
    ),
    "bert": (lambda: transformers.BertForMaskedLM(transformers.BertConfig(**TINY)), {"intermediate_size": 16}),
    "gpt2": (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**SHORT, eos_token_id=2)), {"n_inner": 32}),
    "neox": (lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**TINY)), {"intermediate_size": 16}),
}
"""A model; what its configuration says if all layers keep a third of their units, and of key-value heads two of three.
The last three have no setting for fewer heads of the same size."""


def deployed(kind, keep, **frozen):
    """A model with random weights, each size cut to what ``keep`` says of its name and length."""
    torch.manual_seed(0)
    model = KINDS[kind][0]().eval() if isinstance(kind, str) else kind
    for p in model.parameters():  # biases and norms that are not what they start as
        torch.nn.init.normal_(p, 0.0, 0.3)
    example = {"pixel_values": PIXELS} if kind == "vit" else None
    learner = ngn.learn_sizes(model, example=example, capacity=lambda *size: Retained(size[1], keep(*size)))
    return learner.deploy(unsettled="allow")


def evenly(name, K):
    return K // 3 if K > 3 else 2


def unevenly(name, K):
    return K // (2 + (".1." in name)) if K > 3 else 3 - (".1." in name)


def units(name, K):
    return K // 3 if K > 6 else K


@torch.no_grad()
def answers(model):
    return model(PIXELS if model.main_input_name == "pixel_values" else IDS).logits


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_even_layers_make_a_stock_folder(kind, tmp_path):
    small = deployed(kind, evenly if kind in ("llama", "tied", "vit") else units)
    save(small, tmp_path)
    said = config_of(tmp_path)
    assert {name: said[name] for name in KINDS[kind][1]} == KINDS[kind][1]
    assert said["model_type"] == small.config.model_type
    for again in (type(small).from_pretrained(tmp_path), load(tmp_path)):
        assert type(again) is type(small)
        torch.testing.assert_close(answers(again.eval()), answers(small), rtol=0, atol=1e-5)
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in small.parameters())


def test_a_narrow_residual_stream_makes_a_stock_folder(tmp_path):
    torch.manual_seed(0)
    settings = transformers.LlamaConfig(**TINY | {"num_hidden_layers": 1}, num_key_value_heads=3)
    front = ngn.Front(parameters="40%", residual=True, round_to=6)  # this class wants a multiple of its six heads
    learner = ngn.learn_sizes(transformers.LlamaForCausalLM(settings), budget=front)
    save(small := learner.deploy("60%", unsettled="allow"), tmp_path)
    assert config_of(tmp_path)["hidden_size"] == small.lm_head.in_features < settings.hidden_size
    assert torch.equal(answers(type(small).from_pretrained(tmp_path).eval()), answers(small))


@pytest.mark.parametrize("kind", KINDS)
def test_uneven_layers_are_opened_by_load_and_refused_by_stock_classes(kind, tmp_path):
    small = deployed(kind, unevenly)
    save(small, tmp_path)
    again = load(tmp_path)
    assert type(again) is type(small)
    assert {name: p.shape for name, p in again.named_parameters()} == {n: p.shape for n, p in small.named_parameters()}
    torch.testing.assert_close(answers(again), answers(small), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match=r"open this folder with ngn.integrations.transformers.load"):
        transformers.AutoModel.from_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        type(small).from_pretrained(tmp_path)
    save(again, tmp_path / "twice")  # its configuration is that of the small model again
    assert config_of(tmp_path / "twice") == config_of(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_folder_is_a_stock_one(kind, tmp_path):
    small = deployed(kind, unevenly)
    save(small, tmp_path, padded=True)
    again = type(small).from_pretrained(tmp_path)
    torch.testing.assert_close(answers(again.eval()), answers(small), rtol=0, atol=1e-5)
    size = "n_inner" if kind == "gpt2" else "intermediate_size"
    assert config_of(tmp_path)[size] == (48 if kind == "gpt2" else 24)  # that of the largest layer


def test_what_cannot_be_written_right_is_not_written(tmp_path):
    small = deployed("llama", evenly)
    save(small, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    small.config.rope_parameters["rope_theta"] = 3.0  # other rotations than those of its modules
    with pytest.raises(ValueError, match="nothing was written"):
        save(small, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    ranks = ngn.learn_sizes(llama(), {"**.q_proj": ngn.Rank(2, t0=1.2)}, frozen=True)
    with pytest.raises(TypeError, match="not a learner"):
        save(ranks, tmp_path)
    with pytest.raises(ValueError, match=r"with ngn\.to_peft"):
        save(ranks.deploy(unsettled="allow"), tmp_path)
    with pytest.raises(TypeError, match=r"use ngn.save"):
        save(torch.nn.Linear(2, 2), tmp_path)


def trained(model, folder, sizes, shrink, **settings):
    """A learner trained through its commit in transformers' Trainer."""
    arguments = transformers.TrainingArguments(
        folder, max_steps=12, learning_rate=1e-2, report_to=[], disable_tqdm=True, use_cpu=True,
        dataloader_pin_memory=False, save_strategy="steps", save_steps=100,
    )  # fmt: skip
    learner = ngn.learn_sizes(model, sizes, commit=0.5, **settings)
    data = [{"input_ids": row, "labels": row} for row in IDS]
    callbacks = [SizesCallback(learner, lr=0.3, shrink=shrink)]
    transformers.Trainer(learner.model, arguments, train_dataset=data, callbacks=callbacks).train()
    return learner


@pytest.mark.parametrize("shrink", [True, False])
def test_the_trainer_leaves_the_small_model(shrink, tmp_path):
    learner = trained(llama(), tmp_path, {"**.mlp": ngn.Width(t0=20.0)}, shrink, lambda0=0.3)
    assert bool(learner.masked) is not shrink
    small = learner.deploy()
    torch.testing.assert_close(answers(load(tmp_path / "small")), answers(small), rtol=0, atol=1e-5)


OUTSIDE = """
import sys
sys.modules["ngn"] = None  # importing it fails
import torch, transformers, peft
ids = torch.load(sys.argv[1])
for folder, base, expected in zip(*[iter(sys.argv[2:])] * 3):
    model = transformers.AutoModelForCausalLM.from_pretrained(base or folder)
    model = peft.PeftModel.from_pretrained(model, folder) if base else model
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(ids).logits, torch.load(expected), rtol=0, atol=1e-5)
    print("equal")
"""


@pytest.mark.slow(seconds=25)
@pytest.mark.filterwarnings("ignore:Adapter 'default'. 24 LoRA:")  # of the Trainer's checkpoints, which hold boundaries
def test_stock_classes_open_folders_where_ngn_cannot_be_imported(tmp_path):
    """Models and adapters trained through their commit, masked and cut; a batch of another shape than in training."""
    torch.manual_seed(0)
    base, one = tmp_path / "base", peft.LoraConfig(r=6, target_modules=["q_proj"], use_rslora=True)
    llama().double().save_pretrained(base)
    places = []

    def note(small, place, beside=""):
        torch.save(small.eval()(IDS[:2]).logits.detach(), tmp_path / f"{len(places)}.pt")
        places.extend([str(place), str(beside), str(tmp_path / f"{len(places)}.pt")])

    def fresh():
        return transformers.LlamaForCausalLM.from_pretrained(base)

    even = {"budget": ngn.Budget(parameters="70%", significance=float("inf"))}
    small = trained(fresh(), tmp_path / "even", {"**.mlp": ngn.Width(12)}, True, **even).deploy()
    save(small, tmp_path / "model", padded=True)
    note(small, tmp_path / "model")
    terms = {"**.*_proj": ngn.Rank(4, t0=2.0)}
    note(small := trained(fresh(), tmp_path / "terms", terms, False, frozen=True).deploy(), tmp_path / "adapter", base)
    assert ngn.to_peft(small, tmp_path / "adapter")
    model = peft.get_peft_model(fresh(), one)
    ranks = ngn.find_sizes(model, model.dummy_inputs).only("**.lora_A.*")
    learner = trained(model, tmp_path / "lora", ranks, True, budget=ngn.Budget(parameters="60%"))
    note(learner.deploy(), tmp_path / "lora" / "small", base)
    torch.save(IDS[:2], tmp_path / "ids.pt")
    line = [sys.executable, "-c", OUTSIDE, str(tmp_path / "ids.pt"), *places]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["equal"] * 3, done.stdout + done.stderr
