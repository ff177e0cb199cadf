"""Tables and figures of learned ranks and widths, from made-up records with missing runs."""

import json

import pytest
import record_samples as samples

from experiments.analysis.collect import Reader
from experiments.analysis.reduce import reduce_cell
from experiments.store.records import Store
from experiments.studies import study
from experiments.studies.peft import SMALL, TASKS, learned
from experiments.studies.peft_small import LORA


@pytest.fixture
def store(tmp_path):
    """Write two of five tasks, one of them without its SoRA run."""
    made = Store(tmp_path / "results")
    for task in ("gsm8k", "wikisql_easy"):
        samples.adapt(made, learned(task, "lora", choices=SMALL))
    for path in made.root.glob("gsm8k/*-sora-*"):
        path.unlink()
    return made


def test_rivals_follow_what_was_learned_and_base_scores_come_first(store):
    named = [run.id for run in study("lora_smollm2").runs()]
    assert [name.split("-")[2] for name in named] == ["base"] * 5 + ["ngn"] * 7
    assert {name.split("-")[0] for name in named} == set(TASKS.values())
    followed = [(run.id, run.config) for run in study("lora_smollm2").runs(store) if run.id not in named]
    assert len(followed) == 10  # five rivals of two learned models
    assert len({run.id for run in study("lora_smollm2").runs(store, foreseen=True)}) == 12 + 5 * 5
    for _, config in followed:
        assert config.method.target == 20
        assert store.get(config.method.like) is not None


def test_a_rival_that_adapts_other_weights_does_not_count(store):
    path = next(store.root.glob("wikisql_easy/*-svd-*.json"))
    record = json.loads(path.read_text())
    base = {"name": "x", "sha256": "1" * 64, "provenance": "elsewhere"}
    path.write_text(json.dumps(samples.sealed({**record, "base": base})))
    cell = reduce_cell(Reader(store), LORA, LORA.row("wikisql_easy-svd"), "score")
    assert cell.text == "--"
    assert [problem.kind for problem in cell.problems] == ["data"]
