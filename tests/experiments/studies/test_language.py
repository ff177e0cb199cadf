"""Tables and figures of learned ranks and widths, from made-up records with missing runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import record_samples as samples

from experiments.analysis.collect import Reader
from experiments.analysis.reduce import reduce_cell
from experiments.analysis.statistics import wilson_interval
from experiments.report.drawing import style
from experiments.store.records import Store
from experiments.studies import FIGURES, study
from experiments.studies.peft import SMALL, TASKS, learned
from experiments.studies.peft_small import LORA, LORA_COST


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Write two of five tasks, one of them without its SoRA run."""
    made = Store(tmp_path / "results")
    for task in ("gsm8k", "wikisql_easy"):
        samples.adapt(made, learned(task, "lora", choices=SMALL))
    for path in made.root.glob("gsm8k/*-sora-*"):
        path.unlink()
    return made


def test_scores_stand_at_what_was_kept_and_what_is_not_run_is_named(store: Store) -> None:
    data = FIGURES["lora_scores"].data(Reader(store))
    by_series = {point.series: point for point in data.of("wikisql_easy")}
    assert list(by_series) == ["NGN", "fixed", "SoRA", "AdaLoRA", "singular values", "EVA", "uniform"]
    assert {point.x for point in by_series.values()} == {20}
    low, high = wilson_interval(0.6, 200, 0.05)
    assert (by_series["NGN"].low, by_series["NGN"].high) == pytest.approx((100 * low, 100 * high))
    assert "SoRA" not in {point.series for point in data.of("gsm8k")}
    assert any(note == "not run: SoRA (GSM8K)" for note in data.notes)
    figure = style.draw(FIGURES["lora_scores"], data)
    bars = {bar.get_label(): bar for axes in figure.axes[:1] for bar in axes.containers}
    assert list(bars) == list(by_series)
    ((bottom, top),) = bars["NGN"][2][0].get_segments()
    assert (bottom[1], top[1]) == pytest.approx((100 * low, 100 * high))
    assert len({float(bar[0].get_xdata()[0]) for bar in bars.values()}) == 7, "none covers another"
    assert len({bar[0].get_marker() for bar in bars.values()}) == 7
    (base,) = (line for line in data.lines if line.panel == "gsm8k")
    assert list(base.y) == [3.5, 3.5]
    assert {run for point in data.points for run in point.runs} <= set(data.runs)


def test_a_row_is_about_a_rival_a_phase_or_the_model_itself(store: Store) -> None:
    scores, costs = LORA, LORA_COST
    reader = Reader(store)

    def text(table: object, row: str, column: str) -> str:
        of = scores if table is scores else costs
        return reduce_cell(reader, of, of.row(row), column).text

    assert text(scores, "wikisql_easy-ngn", "score") == "60.0 (53.1 to 66.5)"
    assert text(scores, "wikisql_easy-fixed", "score").startswith("58.0 (")
    assert text(scores, "wikisql_easy-sora", "score").startswith("50.0 (")
    assert text(scores, "wikisql_easy-base", "score").startswith("3.5 (")
    assert text(scores, "wikisql_easy-svd", "size") == "20/20"
    assert text(scores, "wikisql_easy-base", "soft") == "--"
    assert text(costs, "wikisql_easy-ngn", "forgetting") == "1.100"
    assert text(costs, "wikisql_easy-fixed", "forgetting") == "1.050"
    assert text(scores, "gsm8k-sora", "score") == "--"
    lacking = reduce_cell(reader, scores, scores.row("gsm8k-sora"), "score").problems
    assert [problem.kind for problem in lacking] == ["missing"]


def test_rivals_follow_what_was_learned_and_base_scores_come_first(store: Store) -> None:
    named = [run.id for run in study("lora_smollm2").runs()]
    assert [name.split("-")[2] for name in named] == ["base"] * 5 + ["ngn"] * 7
    assert {name.split("-")[0] for name in named} == set(TASKS.values())
    followed = [(run.id, run.config) for run in study("lora_smollm2").runs(store) if run.id not in named]
    assert len(followed) == 10  # five rivals of two learned models
    for _, config in followed:
        assert config.method.target == 20  # type: ignore[attr-defined]
        assert store.get(config.method.like) is not None  # type: ignore[attr-defined]


def test_a_rival_that_adapts_other_weights_does_not_count(store: Store) -> None:
    path = next(store.root.glob("wikisql_easy/*-svd-*.json"))
    record = json.loads(path.read_text())
    base = {"name": "x", "sha256": "1" * 64, "provenance": "elsewhere"}
    path.write_text(json.dumps(samples.sealed({**record, "base": base})))
    cell = reduce_cell(Reader(store), LORA, LORA.row("wikisql_easy-svd"), "score")
    assert cell.text == "--"
    assert [problem.kind for problem in cell.problems] == ["data"]
