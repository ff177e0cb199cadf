"""Pages: one of synthetic records (a complete row, an incomplete one, hostile texts, a damaged file), and our own."""

import functools

import record_samples as samples

from experiments.analysis.collect import Reader
from experiments.analysis.selection import Selection
from experiments.core.paths import RESULTS
from experiments.report.content import build_content
from experiments.report.pages import render
from experiments.store.records import Store
from experiments.studies import macro
from experiments.studies.one_d import BASELINE
from experiments.studies.vision import EIGHT

HOSTILE = '</script><img src=x onerror="window.hurt = 1">'
HOSTILE_SEED = 3


def _grown(seed):
    t, mse = samples.values(seed)
    return {"grown": {**samples.grown([t], mse, 2 * mse), "norms": [1.0, 0.5, 0.25]}}


def fill(store):
    """Write ten baseline seeds, three with curves and one with hostile texts; five of MNIST; bad records."""
    for seed in range(10):
        changes = {"curves": samples.curves(200)} if seed < 3 else {}
        if seed == HOSTILE_SEED:
            changes["data"] = {"name": "regression1d", "sha256": "0" * 64, "provenance": HOSTILE}
            changes |= {"packages": {HOSTILE: HOSTILE}, "hardware": {"cpu": HOSTILE}}
        samples.put(store, BASELINE, seed, _grown(seed), **changes)
    runs = EIGHT.row("mnist-mlp").runs
    assert runs is not None
    for seed in range(5):
        phases = {
            "grown": samples.grown([8.0 + seed % 2], 97.0 + seed / 10, 97.1, "accuracy"),
            "fixed": samples.fixed(9, 97.2, "accuracy"),
            "from_high": samples.from_high(8.0, "yes"),
        }
        samples.put(store, runs, seed, phases)
    row = macro("datafourbody").row("beta4").runs
    assert isinstance(row, Selection)
    samples.put(store, row, 0, _grown(0), clean=False)
    (store.root / "regression1d" / "<img src=x onerror='window.hurt = 2'>.json").write_text("{")


def make(folder):
    """The report of those records, and its page."""
    store = Store(folder / "results")
    fill(store)
    reader = Reader(store)
    report = build_content(reader)
    return report, reader, render(report, reader)


@functools.cache
def own_reader():
    """The committed records, read once in a process, as several files of tests look at them."""
    return Reader(Store(RESULTS))


@functools.cache
def own_report():
    return build_content(own_reader())
