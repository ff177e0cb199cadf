"""The memory of a run by arithmetic: the table of docs/language.md, and sums that can be checked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.config.compose import compose
from experiments.config.footprint import footprint, largest
from experiments.core.config import Config
from experiments.core.paths import ROOT

SAVING = {"train.optimizer": "adamw8bit", "model.gradient_checkpointing": True}
ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("`gate=lora`", "lora", {}),
    ("`gate=adapter`", "adapter", {}),
    ("`gate=prune gate.backbone=frozen`", "prune", {"gate.backbone": "frozen"}),
    ("`gate=prune`, saving", "prune", SAVING),
    ("`gate=prune`, Adam in float32", "prune", {}),
]
CARDS = (24, 40, 80)


def config_of(gate: str, keys: dict[str, Any], task: str = "wikisql_easy", model: str = "llama3_8b") -> Config:
    return compose({"task": task, "gate": gate, "model": model}, keys)


@pytest.mark.parametrize(("label", "gate", "keys"), ROWS)
def test_the_table_of_llama3_8b_holds_these_sums(label: str, gate: str, keys: dict[str, Any]) -> None:
    phases = footprint(config_of(gate, keys), on_card=True)
    assert phases is not None
    sums = [f"{sum(phases[name].values()) / 1e9:.1f}" for name in ("load", "train", "update", "score", "generate")]
    fits = ["yes" if largest(phases)[1] <= 1e9 * card - 2e9 else "no" for card in CARDS]
    line = f"| {' | '.join([label, *sums, *fits])} |"
    assert line in (ROOT / "docs" / "language.md").read_text().splitlines(), line


def test_the_state_of_a_trained_model_is_counted_by_type() -> None:
    P = 8_030_261_248
    usual, saving = (footprint(config_of("prune", keys), on_card=True) for keys in ({}, SAVING))
    assert usual is not None
    assert saving is not None
    assert usual["update"] == {"trained weights": 4 * P, "gradients": 4 * P, "moments": 8 * P}
    state = [saving["update"][name] for name in ("trained weights", "gradients", "moments")]
    assert state == [2 * P, 2 * P, P * (2 + 8 / 256)]
    assert saving["update"]["moments in float32"] == 2 * 4 * 128_256 * 4_096  # of the embedding, or of the head
    on_host = footprint(config_of("prune", {}), on_card=False)
    assert on_host is not None
    assert on_host["train"]["frozen original"] == 2 * P
    assert "frozen original" not in usual["train"]


def test_gradients_are_there_with_all_activations_only_between_micro_batches() -> None:
    P, V, d = 8_030_261_248, 128_256, 4_096
    one, four = (footprint(config_of("prune", SAVING | {"train.accumulate": n}), on_card=True) for n in (1, 4))
    assert one is not None
    assert four is not None
    assert one["train"]["gradients"] == pytest.approx(2 * V * d)
    assert four["train"]["gradients"] == 2 * P
    assert one["update"] == four["update"]


def test_the_state_of_ranks_is_that_of_their_four_numbers_each() -> None:
    phases = footprint(config_of("lora", {}), on_card=True)
    assert phases is not None
    assert phases["train"]["trained state"] == 16 * 6_815_744


def test_nothing_is_said_of_a_model_of_unknown_sizes() -> None:
    local = compose({"task": "wikisql_easy", "gate": "lora", "model": "local"}, {"model.path": "x", "gate.layers": 2})
    assert footprint(local, on_card=True) is None


def test_a_micro_batch_has_its_questions_however_many_make_a_step() -> None:
    one, four = (footprint(config_of("lora", {"train.accumulate": n}), on_card=True) for n in (1, 4))
    assert one is not None
    assert one == four
