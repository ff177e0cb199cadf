"""Runs that adapt a language model, on a tiny one: records, runs that use other records, and what is refused."""

from functools import partial

import pytest
import record_samples as samples
from whole_runs import smoke, trained

from experiments.cli import machine
from experiments.cli.expand import expand
from experiments.cli.rewrite import rewrite
from experiments.config import rival_target
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.core.blocks import ConfigError
from experiments.runs import models
from experiments.store.records import Store

pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[language]'")


def adapted(tmp_path, **keys):
    return smoke(tmp_path, "wikisql_easy", **{"gate": "lora", "train.steps": 6, **keys})


@pytest.mark.parametrize("gate", ["lora", "adapter"])
def test_a_record_holds_retained_parts_per_layer_and_answer_counts(tmp_path, gate):
    (record,) = trained(adapted(tmp_path, gate=gate))
    grown, fixed = record["phases"]["grown"], record["phases"]["fixed"]
    groups = {"lora": 4, "adapter": 2}[gate]
    assert len(grown["t"]) == len(grown["count"]) == len(grown["integer"]) == groups
    assert grown["count"] == fixed["count"]
    sizes = grown["sizes"]
    assert sizes["total"] == sum(grown["count"]) == sizes["early"] + sizes["middle"] + sizes["late"]
    assert set(grown) >= {"soft", "truncated", "seconds", "peak_memory_mib"}
    assert "gates_kept" not in grown
    first = next(iter(grown["truncated"]))
    assert 0 <= grown["truncated"][first] <= 100
    assert grown["n"][first] == 8
    assert set(grown["truncated"]) == set(grown["n"])
    assert record["base"]["sha256"] != record["data"]["sha256"]
    assert record["data"]["name"] == "wikisql_easy"
    assert record["config"]["gate"]["layers"] == 2


def test_a_rival_takes_its_total_from_the_named_record(tmp_path):
    config = adapted(tmp_path)
    store = Store(tmp_path / "results")
    counts = [2, 0, 1, 0]
    learned = samples.record(config, {"grown": {**samples.grown([0.0] * 4, 1.0, 1.0), "count": counts}})
    store.write(learned)
    rival = adapted(tmp_path, method="uniform", method__like=learned["run_id"])
    assert rival.method.sizes(rival.gate) == [0, 1, 1, 1]
    half = adapted(tmp_path, method="uniform", method__target=2)
    assert half.method.sizes(half.gate) == [0, 0, 1, 1]  # one layer each of q and v, not two of v
    assert run_id(rival) == run_id(adapted(tmp_path, method="uniform", method__target=3))
    rival_target.check_target(rival)
    (record,) = trained(rival)
    assert record["config"]["method"] == {"name": "uniform", "target": 3, "like": learned["run_id"]}
    assert record["phases"]["fixed"]["sizes"]["total"] == 3

    command = [f"results={tmp_path / 'results'}", "task=wikisql_easy", "profile=smoke", "train.steps=6"]
    for words, message in (
        ([f"method.like={learned['run_id']}", "method.target=4"], "retains 3 components, not method.target=4"),
        (["method.like=absent-s0", "method.target=4"], "there is no such record"),
        ([f"method.like={learned['run_id']}", "gate=adapter"], "that run has gate=lora, but this one has gate=adapter"),
    ):
        (job,) = expand(rewrite([*command, "method=uniform", *words]))
        with pytest.raises(ConfigError, match=message):
            machine.check([job.run], command)


def test_weights_larger_than_memory_are_refused_before_training():
    eight_bit = {"train.optimizer": "adamw8bit"}
    for gate, overrides, card, host, said in (
        ("prune", {}, 85, 1000, "training needs at least 128.5 GB, but the GPU has 83.0 GB; use train."),
        ("prune", {}, 1000, 8, "loading needs at least 16.1 GB, but this machine has 8.0 GB"),
        ("prune", eight_bit, 42, 1000, "the GPU has 40.0 GB; use gate.backbone=frozen"),
        ("lora", {}, 17, 1000, "training needs at least 16.1 GB, but the GPU has 15.0 GB"),
        ("prune", eight_bit, 85, 1000, None),
        ("lora", {}, 19, 1000, None),
    ):
        config = compose({"task": "gsm8k", "gate": gate, "model": "llama3_8b"}, overrides)
        found = machine.faults_of(partial(machine._pretrained, config, config.model, [card * 10**9], host * 10**9))
        assert said in found[0] if said else not found


@pytest.mark.parametrize("backbone", ["frozen", "updated"])
def test_a_pruned_model_is_recorded_saved_and_matched_by_a_fixed_model(tmp_path, backbone):
    keys = {"gate__target": "both", "gate__backbone": backbone, "train__lr_boundary": 0.3}
    (record,) = trained(adapted(tmp_path, gate="prune", save="deployed", task__replay=8, **keys))
    assert {name: kind["K"] for name, kind in record["config"]["gate"]["kinds"].items()} == {"heads": 2, "ffn": 4}
    grown = record["phases"]["grown"]
    heads, ffn = grown["count"][::2], grown["count"][1::2]
    assert min(ffn) < 4
    left = [3072 * h // 2 + 4608 * n // 4 for h, n in zip(heads, ffn, strict=True)]
    assert grown["kept"] == {"early": [left[0], 7680], "middle": [left[1], 7680], "late": [0, 0]}
    assert grown["parameters"]["candidate"] - grown["parameters"]["deployed"] == 2 * 7680 - sum(left) + 4
    assert "mixed with text" in record["data"]["provenance"]

    _, task, model = models.load_run(tmp_path / "results" / "wikisql_easy" / f"{record['run_id']}.json")
    assert float(task.evaluate(model)["nats"]) == pytest.approx(grown["truncated"]["nats"], rel=1e-6)

    (rival,) = trained(
        adapted(tmp_path, gate="prune", method="fixed", method__count=grown["count"], gate__rank_by="random", **keys)
    )
    fixed = rival["phases"]["fixed"]
    assert (fixed["count"], fixed["kept"]) == (grown["count"], grown["kept"])
    assert (fixed["steps"] == 0) == (backbone == "frozen")  # then nothing is left to train


def test_the_size_of_a_block_is_part_of_a_fixed_runs_identity(tmp_path):
    blocks = [adapted(tmp_path, gate="prune", method="fixed", method__count=[1, 1], gate__K=K) for K in (4, 3)]
    assert len({run_id(config) for config in blocks}) == 2
    assert adapted(tmp_path, gate="prune", gate__round_to=16).gate.K_of(0) == 3  # 48 neurons in three blocks of 16
    for keys, message in (
        ({"method": "base"}, "gate=prune cannot express"),
        ({"gate__draw": 1}, "nothing is drawn"),
        ({"gate__round_to": 5}, "must be a multiple of gate.round_to"),
        ({"gate__round_to": 48}, "must be a multiple of gate.round_to"),
        ({"method": "uniform", "method__target": 4, "gate__target": "both"}, "cannot share one total"),
    ):
        with pytest.raises(ConfigError, match=message):
            adapted(tmp_path, gate="prune", **keys)
