"""Files that say how their model differs from the plain one, which loads them without a trace."""

import copy
import json
import pickle

import pytest
import torch
from safetensors import safe_open
from sizable import Adding, Layers, chain
from torch import nn

import ngn
from ngn.components.low_rank import merge
from ngn.tensor_files import read_checked, write_checked

transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # one of peft
TINY = {"vocab_size": 32, "hidden_size": 24, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}
IDS = torch.randint(0, 32, (3, 11), generator=torch.Generator().manual_seed(0))
X = torch.linspace(-1, 1, 96).sin().view(2, 6, 8)


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY, num_key_value_heads=3))


def adapted():
    return peft.get_peft_model(llama(), peft.LoraConfig(r=6, target_modules=["q_proj"], init_lora_weights=False))


@torch.no_grad()
def outputs(model, x):
    """In eval mode, then in train mode."""
    each = []
    for training in (False, True):
        torch.manual_seed(0)
        made = model.train(training)(x)
        each.append(getattr(made, "logits", made))
    return each


class Tied(nn.Module):
    """A head that is its embedding, parametrised maps, and layers."""

    def __init__(self, width=32):
        super().__init__()
        self.e, self.h = nn.Embedding(40, 24), nn.Linear(24, 40)
        self.h.weight = self.e.weight
        self.up, self.down = (
            nn.utils.parametrizations.spectral_norm(nn.Linear(*n)) for n in ((24, width), (width, 24))
        )
        self.stack = Layers(*(Adding(24, 24) for _ in range(4)))

    def forward(self, x):
        return self.h(self.stack(self.down(self.up(self.e(x)).relu())))


def cut(make, x, sizes=None, **gate):
    torch.manual_seed(0)
    return ngn.learn_sizes(make(), sizes, example=x, **gate).deploy(unsettled="allow")


def same(small, plain, x, path, **saved):
    ngn.save(small, path, **saved)
    loaded = ngn.load(plain, path)
    assert all(map(torch.equal, outputs(loaded, x), outputs(small, x)))
    assert [type(part) for part in loaded.modules()] == [type(part) for part in small.modules()]
    return loaded


def test_adapters_of_peft_are_loaded_into_a_plain_model(tmp_path):
    same(cut(adapted, IDS, t0=1.2), adapted(), IDS, tmp_path / "small")


def test_what_was_noted_survives_copies_pickles_files_and_a_second_training(tmp_path):
    x, path, depth = IDS, tmp_path / "small", {"stack.layers": ngn.Depth(t0=1.2)}
    once = same(cut(Tied, x, t0=9.2), Tied(), x, path)
    assert once.h.weight is once.e.weight
    again = pickle.loads(pickle.dumps(copy.deepcopy(once)))
    twice = same(cut(lambda: again, x, depth), Tied(), x, path)
    assert len(twice.stack.layers) == 2
    same(cut(lambda: twice, x, t0=3.2), Tied(), x, path)


def test_ranks_beside_what_a_file_leaves_out(tmp_path):
    torch.manual_seed(0)
    base = chain(8, 16, 8)
    ranks = {"0": ngn.Rank(4, t0=2.0), "2": ngn.Rank(4, t0=2.0)}
    small = cut(lambda: copy.deepcopy(base), X, ranks, frozen=True)
    nn.init.normal_(small[0].up), nn.init.normal_(small[2].up)
    loaded = same(small, base, X, tmp_path / "part", frozen=False)
    assert loaded[0].base.weight is base[0].weight
    assert not any("base" in name for name in read_checked(tmp_path / "part")[0])
    same(merge(small), chain(8, 16, 8), X, tmp_path / "merged")
    frozen = cut(lambda: copy.deepcopy(base).requires_grad_(False), X, {"": ngn.Width(4, t0=2.0)})
    ngn.save(frozen, tmp_path / "part", frozen=False)
    with pytest.raises(ValueError, match=r"leaves out frozen tensors that were cut: .*Save with frozen=True"):
        ngn.load(base, tmp_path / "part")


@pytest.mark.parametrize(
    ("plain", "fault"),
    [
        (lambda: Tied(48), r"down\.in_features was 32 before the cut, but is 48 in the model"),
        (llama, r"its sizes are damaged, or not those of a LlamaForCausalLM"),
        (lambda: nn.ModuleDict({"stack": Layers(Adding(24, 24))}), r"keeps \[.*\] of 4 layers, but is a ModuleList"),
    ],
)
def test_a_file_of_another_model_is_refused(plain, fault, tmp_path):
    ngn.save(cut(Tied, IDS, {"stack.layers": ngn.Depth(t0=1.2), "": ngn.Width(8, t0=4.0)}), tmp_path / "small")
    with pytest.raises(ValueError, match=rf"small is damaged or belongs to another model: .*{fault}"):
        ngn.load(plain(), tmp_path / "small")


HOSTILE = {
    "not JSON": "{",
    "unknown": '{"hooks": {"0": "os.system"}}',
    "a class": '{"ranks": {"1": 2}}',
    "no attention": '{"attention": ["0"]}',
    "a function": '{"attributes": {"0": {"forward": "exit"}}}',
    "hidden": '{"attributes": {"0": {"_modules": []}}}',
    "an attribute that is new": '{"attributes": {"0": {"run": 1}}}',
    "another type": '{"attributes": {"0": {"out_features": [4]}}}',
    "huge": '{"shapes": {"0.weight": [1000000000000, 8]}}',
    "other dimensions": '{"shapes": {"0.weight": [8]}}',
    "no tensor": '{"shapes": {"0.none": [8]}}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
def test_damaged_or_hostile_sizes_are_refused_in_words(said, tmp_path):
    model, path = chain(8, 16, 8), tmp_path / "small"
    ngn.save(model, path)
    write_checked(path, read_checked(path)[0], {"sizes": said})
    with pytest.raises(ValueError, match=r"small is damaged or belongs to another model"):
        ngn.load(model, path)


def test_a_file_says_what_differs_and_no_more(tmp_path):
    small = cut(lambda: chain(8, 16, 8), X, {"": ngn.Width(4, t0=2.0)})
    ngn.save(small, tmp_path / "small")
    with safe_open(tmp_path / "small", "pt") as file:
        said = json.loads(file.metadata()["sizes"])
    assert said["attributes"] == {"0": {"out_features": 12}, "2": {"in_features": 12}}
    assert said["whole"]["shapes"] == {"0.bias": [16], "0.weight": [16, 8], "2.weight": [8, 16]}
    ngn.save(chain(8, 16, 8), tmp_path / "plain")
    assert "sizes" not in read_checked(tmp_path / "plain")[1]


def test_a_frozen_map_with_weights_folded_in_is_saved_with_the_rest(tmp_path):
    def model():
        torch.manual_seed(0)
        made = chain(8, 16, 8)
        made[-1].requires_grad_(False)
        return made

    small = ngn.learn_sizes(model(), {"": ngn.Width(16, t0=5.0)}, r=0.9, example=X).deploy(unsettled="allow")
    ngn.save(small, tmp_path / "small.safetensors", frozen=False)
    fresh = ngn.learn_sizes(model(), {"": ngn.Width(16)}, r=0.9, example=X)
    assert torch.equal(ngn.load(fresh, tmp_path / "small.safetensors")(X), small(X))
    whole = ngn.learn_sizes(model(), {"": ngn.Width(16, t0=5.0)}, example=X).deploy(unsettled="allow")
    assert [p.requires_grad for p in whole.parameters()] == [True, True, False, False], (
        "without weights it stays frozen"
    )


def partly_frozen(frozen, order, seed=0):
    torch.manual_seed(seed)
    model = chain(8, 16, 8)
    model[frozen].requires_grad_(False)
    return ngn.learn_sizes(model, {"": ngn.Width(8, by_importance=order, t0=2.0)}, example=X)


@pytest.mark.parametrize("frozen", [0, 2])
def test_what_a_file_leaves_out_is_the_same_in_the_model_and_in_the_same_order(frozen, tmp_path):
    order, path = [3, 1, 6, 0, 2, 7, 5, 4], tmp_path / "small.safetensors"
    small = partly_frozen(frozen, order).deploy(unsettled="allow")
    ngn.save(small, path, frozen=False)
    again = partly_frozen(frozen, order)
    assert torch.equal(ngn.load(again, path)(X), small(X))
    assert ngn.load(again.bfloat16(), path)[0].out_features == small[0].out_features, "precision is no difference"
    for other in (partly_frozen(frozen, order[::-1]), partly_frozen(frozen, order, seed=1)):
        with pytest.raises(ValueError, match=r"the model are others: .* same pretrained .* same by_importance"):
            ngn.load(other, path)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (lambda: Layers(*(Adding(8, 8) for _ in range(6))), {"layers": ngn.Depth(t0=2.0)}),
        (lambda: chain(8, 16, 8), {"": ngn.Width(4, t0=2.0)}),
    ],
)
def test_a_size_of_which_a_file_holds_nothing_is_said(kind, sizes, tmp_path):
    learner = ngn.learn_sizes(kind(), sizes, example=X, frozen=True)
    small = learner.deploy(unsettled="allow")
    ngn.save(small, tmp_path / "part", frozen=False)
    with pytest.raises(ValueError, match=r"does not follow from the tensors of .*part: save with frozen=True"):
        ngn.load(learner, tmp_path / "part")
    ngn.save(small, tmp_path / "whole")
    assert torch.equal(ngn.load(learner, tmp_path / "whole")(X), small(X))
