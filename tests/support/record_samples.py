"""Made-up records for tests of tables, verdicts and figures. No training, no torch."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from experiments.analysis.collect import Reader
from experiments.analysis.reduce import THIRDS
from experiments.analysis.selection import fixed_of_learned_count
from experiments.config.identity import numerics, run_id, scientific
from experiments.config.schema import is_integer
from experiments.store.records import Store, digest_of
from experiments.studies import FIGURES, macros
from experiments.studies.one_d import BASELINE

SIZE = {"parameters": {"candidate": 100, "deployed": 10}, "steps": 5, "seconds": 1.0}


def grown(t, soft, truncated, score="mse"):
    """Make a complete phase with boundaries ``t``."""
    return {
        "status": "complete",
        "t": list(t),
        "count": [int(value + 0.5) + 1 for value in t],
        "integer": [is_integer(value) for value in t],
        "soft": {score: soft},
        "truncated": {score: truncated},
        **SIZE,
    }


def fixed(count, truncated, score="mse"):
    """Make a complete phase of a plain model."""
    return {"status": "complete", "count": [count], "truncated": {score: truncated}, **SIZE}


def diverged(step=3):
    """Make a phase that ended in a non-finite loss."""
    return {"status": "diverged", "diverged_at": step, "count": [], **SIZE}


def from_high(t, outcome, accuracy=70.0):
    """Make a phase that started at high capacity."""
    back = {"outcome": outcome, "returned": outcome == "yes", "moved": outcome != "no"}
    return {**grown([t], accuracy, accuracy, "accuracy"), "prunes_back": back}


def untimed(phases):
    """Return the phases of a record without times and peak memory, which differ between repetitions."""
    clocks = ("seconds", "run_steps_per_second", "peak_memory_mib", "milliseconds")

    def without(value):
        return {k: without(v) for k, v in value.items() if k not in clocks} if isinstance(value, Mapping) else value

    return {name: without(phase) for name, phase in phases.items()}


def record(config, phases, clean=True, **changes):
    """Make a valid record of a run; ``changes`` replace whole blocks."""
    status = "complete" if all(phase["status"] == "complete" for phase in phases.values()) else "diverged"
    code = {"commit": "0" * 40, "clean": clean, "source": "git"}
    return {
        "schema": 1,
        "run_id": run_id(config),
        "status": status,
        "config": scientific(config),
        "phases": dict(phases),
        "time": {"started": "2026-01-01T00:00:00+00:00", "seconds": 1.0},
        "execution": {"device": "cpu", "engine": "torch", "replicas": 1, "threads": 1},
        "hardware": {},
        "packages": {},
        "data": {"name": config.task.name, "sha256": "0" * 64, "provenance": "generated: by the tests"},
        "code": {**code, "numerics": numerics(config)},
        **changes,
    }


def sealed(content):
    """Return a changed record with the digest of its new content, as if it had been written so."""
    return {**content, "sha256": digest_of(content)}


def answers(counts, gate, score, perplexity, questions=200):
    """Make a complete phase of an adapted language model, scored in its truncated form."""
    scores = {"exact_match": score, "nats": 0.5, "perplexity": perplexity}
    n = {"exact_match": questions, "nats": 4000, "perplexity": 8000}
    phase = {"status": "complete", "count": list(counts), "truncated": scores, "n": n, **SIZE}
    kept = {"kept": {third: [sum(counts), 1000] for third in THIRDS}} if gate.component == "prune" else {}
    return {**phase, **kept, "sizes": gate.sizes(counts), "peak_memory_mib": 1000.0}


def adapt(store, selection, seed=0, score=60.0, soft=1.0, third=1, rival=50.0, questions=200):
    """Write records of a learned rank, width or pruned size, its base model and its rivals; return the learned one.

    Args:
        score: score of the truncated model; the base model has 3.5, rivals have ``rival``.
        soft: how much higher the soft model scores.
        third: third of the layers, from 0, that keeps one component per group. Other layers keep none. Groups that
            cannot be empty keep one more.
    """
    config = selection.config(seed)
    gate = config.gate
    counts = [int(3 * group // gate.groups == third) + (gate.delta > 0) for group in range(gate.groups)]
    t = [count + 0.004 * (group % 4) for group, count in enumerate(counts)]
    own = answers(counts, gate, score, 22.0, questions)
    grown_phase = {**own, "t": t, "integer": [is_integer(value) for value in t]}
    grown_phase["soft"] = {**own["truncated"], "exact_match": score + soft}
    made = record(config, {"grown": grown_phase, "fixed": answers(counts, gate, score - 2, 21.0)})
    store.write(made, replace=True)
    for name, find in selection.companions:
        beside = find(selection, seed, made)
        (of,) = beside.seeds
        if name == "mixed":
            adapt(store, beside, of, score, soft, third, rival)
            continue
        phase = "grown" if name in ("sora", "adalora", "svd", "eva") else "fixed"
        kept = [0] * gate.groups if name == "base" else counts
        other = answers(kept, gate, 3.5 if name == "base" else rival, 20.0 if name == "base" else 21.0)
        put(store, beside, of, {phase: other})
    return made


def put(store, selection, seed, phases, **changes):
    """Write the record of one seed, replacing an older one; return its run id."""
    curves = changes.pop("curves", None)
    made = record(selection.config(seed), phases, **changes)
    store.write(made, curves, replace=True)
    return str(made["run_id"])


def put_grown(store, selection, seed, t, truncated, **changes):
    """Write the record of a seed that learned ``t``."""
    return put(store, selection, seed, {"grown": grown([t], truncated / 2, truncated)}, **changes)


def baseline_id(seed):
    return run_id(BASELINE.config(seed))


def baseline(folder):
    """Write three seeds of the baseline, one without curves."""
    made = Store(folder)
    for seed in range(3):
        phase = {**grown([6.0], 1e-5, 1e-5), "norms": [1.0, 0.5, 0.25]}
        put(made, BASELINE, seed, {"grown": phase}, curves=curves() if seed < 2 else None)
    return made


def figure(name, store, overrides=None):
    """Return what a figure shows of the records of a store, and of no others."""
    found = FIGURES[name].data(Reader(store), overrides)
    stored = {path.stem for path in store.root.rglob("*.json")}
    assert {run for point in found.points for run in point.runs} | {c.run for c in found.curves} <= stored
    assert stored & set(found.runs) or found.empty
    return found


def curves(points=20):
    """Make the curves of a short training."""
    step = np.arange(points)
    return {
        "grown.step": step,
        "grown.loss": np.geomspace(1.0, 1e-4, points),
        "grown.task": np.geomspace(0.9, 1e-5, points),
        "grown.t": np.linspace(0.0, 6.0, points)[:, None],
    }


def values(seed):
    """Return (t, mse) of a seed of the made-up 1D study."""
    return float(4 + seed % 5), (1 + seed) * 1e-5


def fill(store):
    """Write a complete record for every run of every row, and for their fixed models."""
    for selection in {row.runs for table in macros() for row in table.rows}:
        for seed in selection.seeds:
            task = dict(selection.choices)["task"]
            if task == "regression1d":
                t, mse = values(seed)
                phases = {"grown": {**grown([t], mse, 2 * mse), "norms": [1.0, 0.5, 0.25], "r": [0.8]}}
                made = record(selection.config(seed), phases)
                store.write(made)
                if selection.companions:
                    alone = fixed_of_learned_count(selection, seed, made)
                    put(store, alone, seed, {"fixed": fixed(int(t) + 1, 3 * mse)})
            elif task == "manifold":
                dimension = selection.config(seed).task.D
                phase = {**grown([dimension - 0.97], 1e-6, 2e-6, "nmse"), "rank": dimension}
                put(store, selection, seed, {"grown": phase})
            elif task == "twist":
                t = [0.01] * (selection.config(seed).gate.groups - 1) + [6.01]
                own = {**grown(t, 1e-4, 2e-4), "depth": 1}
                alone = {**fixed(1, 3e-4), "count": own["count"], "depth": 1}
                put(store, selection, seed, {"grown": own, "fixed": alone})
            elif dict(selection.choices).get("model"):
                adapt(store, dataclasses.replace(selection, about=""), seed)
            else:
                outcome = ("yes", "partial", "no")[seed % 3]
                score = "bits_per_character" if task == "tinystories" else "accuracy"
                phases = {
                    "grown": grown([4.0], 70 + seed, 71 + seed, score),
                    "fixed": fixed(5, 72.0 + seed, score),
                    "from_high": from_high(5.0 + seed % 2, outcome),
                }
                put(store, selection, seed, phases)
