"""Studies name the runs that the tables and figures need."""

import itertools

import pytest
from record_samples import fill

from experiments.studies import STUDIES, study
from experiments.tables.one_d import FOUR
from ngn.identity import run_id
from ngn.records import Store


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("schedules", 60),
        ("baseline", 50),
        ("lambda_sweep", 500),
        ("fixed_frontier", 750),
        ("init_sweep", 2550),
        ("vision", 40),
    ],
)
def test_a_study_has_its_runs_each_once(name, runs):
    found = list(study(name).runs())
    assert len(found) == len({run for run, _ in found}) == runs
    assert all(run_id(config) == run for run, config in found[:: max(1, runs // 20)])


def test_configurations_are_those_of_the_selections():
    """They are composed once a selection; that must not change them."""
    for selection in STUDIES["schedules"].make():
        names = [run_id(selection.config(seed)) for seed in selection.seeds]
        assert set(names) <= {name for name, _ in study("schedules").runs()}


def test_the_lambda_sweep_is_log_spaced_with_the_snapping_at_the_price():
    prices = [config.schedule.lambda0 for _, config in study("lambda_sweep").runs()]
    assert (prices[0], prices[-1]) == (1e-6, 1e-2)
    ratios = [b / a for a, b in itertools.pairwise(prices)]
    assert max(ratios) / min(ratios) < 1.0001
    assert all(
        c.schedule.alpha_max == c.schedule.lambda0 and c.seed.value == 0 for _, c in study("lambda_sweep").runs()
    )


def test_the_three_panels_of_the_initial_boundaries():
    configs = [config for _, config in study("init_sweep").runs()]
    panels = {(c.gate.r, c.schedule.alpha_shape.kind) for c in configs}
    assert panels == {(0.5, "delayed_linear"), (1.0, "delayed_linear"), (0.5, "constant")}
    assert {round(c.gate.t0, 3) for c in configs} == {0.0, *map(float, range(1, 17))}


def test_what_the_tables_name_is_what_their_study_runs(tmp_path):
    named = {run for run, _ in study("tables").runs()}
    assert {run_id(row.runs.config(s)) for row in FOUR.rows if row.runs for s in row.runs.seeds} <= named
    store = Store(tmp_path)
    fill(store)
    followed = {run for run, _ in study("tables").runs(store)}
    assert named < followed
    assert all("fixed" in run for run in followed - named)


def test_a_misspelt_study_is_named():
    with pytest.raises(KeyError, match="Did you mean 'lambda_sweep'"):
        study("lamda_sweep")
