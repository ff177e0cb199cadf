"""Structured pruning of small Llama and GPT-NeoX models: scores, orders, pruned weights, and mixed batches."""

import copy
import functools

import pytest
import torch
from torch import nn

import ngn
from experiments.config.compose import compose
from experiments.tasks import make_task
from experiments.tasks.language import pruning
from experiments.tasks.language.base import PretrainedModel, tiny_base
from experiments.tasks.language.components import PruneComponent
from experiments.tasks.language.packing import pack, token_losses, use_by_sequence
from experiments.tasks.language.perplexity import documents
from ngn.methods.fixed import FixedCount
from ngn.schedules import shape_at

CPU = torch.device("cpu")


@functools.cache
def base_of(family):
    tiny = tiny_base(CPU)
    if family == "llama":
        return tiny
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    shape = GPTNeoXConfig(
        vocab_size=len(tiny.tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=48, max_position_embeddings=1024,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GPTNeoXForCausalLM(shape).eval().requires_grad_(False)
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)  # biases are zero at the start
    use_by_sequence(model)
    return PretrainedModel(model, tiny.tokenizer, tiny.info, tiny.end)


def made(family="llama", target="both", **settings):
    def whole(key):
        return key if "." in key else f"gate.{key}" if key in PruneComponent.model_fields else f"task.{key}"

    own = {whole(key): value for key, value in settings.items()}
    usual = {"gate.target": target, "gate.backbone": "updated", "task.max_new_tokens": 12, "task.perplexity_tokens": 64}
    config = compose({"task": "wikisql_easy", "gate": "prune", "profile": "smoke"}, usual | own | {"progress": "never"})
    task = make_task(config, CPU)
    task.base = base_of(family)
    return task, config


def built(task, config, counts=None):
    """The trained model, with all gates practically open, or with gates of these counts."""

    if counts is None:
        return task.model(config.gate, 0, started(config, [31] * config.gate.groups))
    return task.model(config.gate, 0, lambda group: FixedCount(counts[group], r=1.0))


def started(config, counts):
    """Gates with boundaries at ``counts``."""
    return lambda group: ngn.CountGate(config.gate.K_of(group), t0=max(counts[group] - 1.0, 0.1), r=1.0)


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.arange(1, 25).reshape(2, 12)).logits


@pytest.mark.parametrize("family", ["llama", "neox"])
@pytest.mark.parametrize("rank_by", ["index", "wanda", "random"])
def test_the_full_model_is_the_original_in_any_order(family, rank_by):
    task, config = made(family, rank_by=rank_by)
    model = built(task, config)
    assert torch.allclose(logits(model), logits(task.base.model), atol=1e-6)
    assert len(ngn.Learner(model).count()) == config.gate.groups == 4
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == len(list(task.base.model.parameters())) + 4
    assert not {id(p) for p in trained} & {id(p) for p in task.base.model.parameters()}


@pytest.mark.parametrize("family", ["llama", "neox"])
@pytest.mark.parametrize("counts", [[1, 3, 2, 2], [2, 1, 1, 4]])
def test_what_is_deployed_is_the_hard_prefix_and_says_what_is_left(family, counts):
    task, config = made(family, backbone="frozen")
    model = task.model(config.gate, 0, started(config, counts))
    learner = ngn.Learner(model)
    assert learner.count().tolist() == counts
    assert {p for p in learner.parameters() if p.requires_grad} == set(learner.controller_parameters())
    deployed = learner.deploy(example={"input_ids": torch.arange(12)[None]}, share_frozen=True)
    assert torch.equal(logits(deployed), logits(built(task, config, counts)))
    kept = task.describe(deployed)["kept"]
    attention, ffn = (3072, 4608) if family == "llama" else (4096, 3072)
    expected = [attention * counts[at] // 2 + ffn * counts[at + 1] // 4 for at in (0, 2)]
    assert kept == {"early": [expected[0], attention + ffn], "middle": [expected[1], attention + ffn], "late": [0, 0]}


def test_a_trained_backbone_is_the_model_after_a_plain_loop_and_then_frozen():
    task, config = made(backbone="trained", **{"train.epochs": None, "train.steps": 4})
    model = task.model(config.gate, 0, started(config, [31] * config.gate.groups))

    plain = copy.deepcopy(task.base.model).requires_grad_(True).train()
    rate = float(config.train.lr)
    optimizer, batches = torch.optim.Adam(plain.parameters(), lr=rate), task.batches(config.train, 0)
    for step in range(4):
        for group in optimizer.param_groups:
            group["lr"] = rate * shape_at(config.train.lr_shape, step / 4)
        optimizer.zero_grad()
        token_losses(plain, batches.at(step)[0]).mean().backward()
        assert config.train.clip is None or not nn.utils.clip_grad_norm_(plain.parameters(), config.train.clip).isnan()
        optimizer.step()
    assert not torch.allclose(logits(model), logits(task.base.model), atol=1e-4)
    torch.testing.assert_close(logits(model), logits(plain.eval()), atol=1e-5, rtol=1e-4)
    learner = ngn.Learner(model)
    assert {p for p in learner.parameters() if p.requires_grad} == set(learner.controller_parameters())
    again = task.model(config.gate, 0, started(config, [31] * config.gate.groups))
    assert {id(p) for p in task.trained[0].model.parameters()} <= {id(p) for p in again.parameters()}


@pytest.mark.parametrize("family", ["llama", "neox"])
def test_wandas_scores_are_those_of_single_weights_in_double_precision(family):
    base = base_of(family)
    parts = pruning.prunable_parts(base, ["heads", "ffn"])
    batches = [pack([([1, 2, 3], [4, 5]), ([7], [8, 9])], CPU), pack([([11, 12], [13])], CPU)]
    found = pruning.wanda_scores(base.model, [part.map for part in parts], batches)

    inputs = {part.map: [] for part in parts}
    for part in parts:
        linear = base.model.get_submodule(part.map)
        linear.register_forward_pre_hook(lambda _, args, name=part.map: inputs[name].append(args[0].double()))
    with torch.no_grad():
        for batch in batches:
            token_losses(base.model, batch)
    for part in parts:
        linear = base.model.get_submodule(part.map)
        linear._forward_pre_hooks.clear()
        x, w = torch.cat([each[0] for each in inputs[part.map]]), linear.weight.double()
        assert x.shape[0] == 11  # every token of every sequence
        single = torch.tensor(
            [[abs(float(w[i, j])) * float(x[:, j].norm()) for j in range(w.shape[1])] for i in range(w.shape[0])]
        )
        torch.testing.assert_close(found[part.map], single.double().mean(0), rtol=1e-6, atol=0.0)


def kept_neurons(task, model, layer):
    """Find the base model's neurons in a layer of ``model`` by their columns of the map that reads them."""
    name = task.base.maps(["down"])[layer]
    before, after = (m.get_submodule(name).get_parameter("weight") for m in (task.base.model, model))
    same = (before[:, :, None] == after[:, None, :]).all(0)
    assert same.sum(0).eq(1).all()
    return same.float().argmax(0).tolist()


@pytest.mark.parametrize("family", ["llama", "neox"])
def test_rivals_keep_as_many_single_neurons_by_score_or_by_draw(family):
    task, config = made(family, "ffn", rank_by="wanda")
    batches = task.batches(config.train, 0)
    maps = [part.map for part in pruning.prunable_parts(task.base, ["ffn"])]
    scores = pruning.wanda_scores(task.base.model, maps, (batches.at(step)[0] for step in range(16)))
    model = built(task, config, [1, 3])
    for layer, count in enumerate([12, 36]):
        best = scores[maps[layer]].argsort(descending=True)[:count].tolist()
        assert kept_neurons(task, model, layer) == best
    draws = []
    for draw in (0, 0, 1):
        task, config = made(family, "ffn", rank_by="random", draw=draw)
        draws.append([kept_neurons(task, built(task, config, [1, 3]), layer) for layer in (0, 1)])
        assert [len(each) for each in draws[-1]] == [12, 36]
    assert draws[0] == draws[1] != draws[2]


def test_mixed_batches_have_one_window_of_text_that_forgetting_is_not_measured_on():
    task, config = made(replay=8)
    plain, _ = made()
    batches = task.batches(config.train, 3)
    text = task.base.tokenizer(documents_of(task)[0], add_special_tokens=False)["input_ids"]
    ours = [[*prompt, *target] for prompt, target in task.replay]
    assert ours[0] == text[64:73]  # behind those that perplexity is of
    assert {len(each) for each in ours} == {9}
    for step in (0, 5):
        mixed, without = batches.at(step)[0], plain.batches(config.train, 3).at(step)[0]
        assert torch.equal(mixed.ids[:, :-9], without.ids)
        assert mixed.ids[0, -9:].tolist() in ours
        assert len(mixed.targets) == len(without.targets) + 8
    assert not torch.equal(batches.at(0)[0].ids[:, -9:], batches.at(1)[0].ids[:, -9:])
    assert "mixed with text of synthetic-general" in task.info.provenance
    assert "mixed" not in plain.info.provenance


def documents_of(task):
    from experiments.data import synthetic

    return documents(synthetic.corpora()["general"])
