"""Files that say how their model differs from the plain one, which loads them without a trace."""

import copy
import json
import os
import pickle
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from sizable import Adding, Layers, chain
from torch import nn
from traceable import MobileNet

import ngn
from experiments.core.paths import ROOT
from ngn.tensor_files import read_checked, write_checked

transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
TINY = {"vocab_size": 32, "hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}
IDS = torch.randint(0, 32, (3, 11), generator=torch.Generator().manual_seed(0))
X = torch.linspace(-1, 1, 96).sin().view(2, 6, 8)
PIXELS = torch.linspace(-9, 9, 2 * 3 * 256).sin().view(2, 3, 16, 16)


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, num_key_value_heads=3))


def vit():
    sizes = {name: TINY[name] for name in TINY if name != "vocab_size"}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**sizes, image_size=16, patch_size=8))


def bert():
    return transformers.BertForMaskedLM(transformers.BertConfig(**TINY))


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 4, 32, batch_first=True), 2)


def adapted():
    return peft.get_peft_model(llama(), peft.LoraConfig(r=6, target_modules=["q_proj"], init_lora_weights=False))


DEPTH = {"model.layers": ngn.Depth(t0=1.0), "model.layers.*.mlp": ngn.Width(16, t0=4.0)}
KINDS = {
    "mobile": (MobileNet, PIXELS, None),
    "vit": (vit, PIXELS, None),
    "llama": (llama, IDS, None),
    "bert": (bert, IDS, None),
    "encoder": (encoder, X, None),
    "layers": (llama, IDS, DEPTH),
    "ranks": (llama, IDS, {"**.q_proj": ngn.Rank(4, t0=1.6), "**.mlp": ngn.Width(16, t0=4.0)}),
    "peft": (adapted, IDS, None),
}


def small_of(kind):
    make, x, sizes = KINDS[kind]
    torch.manual_seed(0)
    model = make().eval()
    half = {} if sizes else {"capacity": lambda name, K: ngn.Retained(K, K // 2 + (len(name) % 2 and K > 3))}
    return ngn.learn_sizes(model, sizes, example=x, **half).deploy(unsettled="allow")


@torch.no_grad()
def outputs(model, x):
    """In eval mode, then in train mode."""
    each = []
    for training in (False, True):
        torch.manual_seed(0)
        made = model.train(training)(x)
        each.append(getattr(made, "logits", made))
    return each


def load_all(folder):
    """Load all files into plain models of another seed, without a forward pass."""
    for kind, (make, x, _) in KINDS.items():
        torch.manual_seed(1)
        plain, call = make(), nn.Module.__call__
        nn.Module.__call__ = None
        try:
            small = ngn.load(plain, f"{folder}/{kind}")
        finally:
            nn.Module.__call__ = call
        wanted = torch.load(f"{folder}/{kind}.pt")
        assert all(map(torch.equal, outputs(small, x), wanted)), kind
    print("equal")


@pytest.mark.slow(seconds=60)
def test_a_process_that_never_traced_has_the_same_model(tmp_path):
    for kind, (_, x, _) in KINDS.items():
        small = small_of(kind)
        ngn.save(small, tmp_path / kind)
        torch.save(outputs(small, x), tmp_path / f"{kind}.pt")
    code = f"import sys, test_plain_models as test; test.load_all({str(tmp_path)!r})"
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "ngn", ROOT / "tests" / "support")))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr
