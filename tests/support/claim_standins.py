"""Made-up records of SmolLM2-135M that agree or disagree with the claims on it. No training."""

import itertools
from functools import partial

import record_samples as samples

from experiments.analysis.selection import base_of, selected_runs
from experiments.store.records import Store
from experiments.studies.front import BESIDE
from experiments.studies.peft import ADAPTER, BASELINES, DIAGNOSTICS, LORA, SMALL, TASKS, learned
from experiments.studies.pruning import FOURTEEN, NUMBERS, TARGETS, THIRTEEN
from experiments.studies.pruning_small import LADDER_RUNS, MIXED, TASK_ONLY
from experiments.studies.rivals import FOLDER, WORKS, selection
from experiments.studies.standins import ASKED_RUNS, PRICED_RUNS, SNAPPED_RUNS, STRONG_RUNS, TRAINED_RUNS, UPDATED_RUNS

PEFT, PRUNING = (LORA, ADAPTER, DIAGNOSTICS, BASELINES), (THIRTEEN, FOURTEEN, *NUMBERS)


def adapt_all(store, every, **changes):
    for runs in every.values():
        for seed in runs.seeds:
            samples.adapt(store, runs, seed, **changes)


def adapted(store, **changes):
    """Write learned ranks and widths, and their rivals."""
    pairs = itertools.product(TASKS.values(), ("lora", "adapter"))
    adapt_all(store, {pair: learned(*pair, choices=SMALL) for pair in pairs}, **changes)


def beside_random(store, runs, score):
    """Write the random neurons of pruned runs that are there, with this score."""
    (run,) = selected_runs(runs)
    record = store.get(run.id)
    for name, find in runs.companions:
        if record is not None and name.startswith("random"):
            beside = find(runs, 0, record)
            gate, counts = beside.config(0).gate, record["phases"]["grown"]["count"]
            samples.put(store, beside, 0, {"fixed": samples.answers(counts, gate, score, 30.0)})


def pruned(store, sign=1, frozen=10.0, ngn=72.0):
    """Write pruned models: lower prices keep and score more for ``sign`` 1, a frozen one's perplexity is less by
    ``frozen``, and ``ngn`` is the score beside rivals."""
    for key, runs in LADDER_RUNS.items():
        _, backbone, _, power = key.split("-")
        gate, of = runs.config(0).gate, sign * int(power)
        forgotten = 25.0 - of - (frozen if backbone == "frozen" else 0.0)
        phase = samples.answers([2 + sign * (int(power) - 3)] * gate.groups, gate, 50.0 + of, forgotten)
        samples.put(store, runs, 0, {"grown": {**phase, "t": [1.0] * gate.groups, "integer": [True] * gate.groups}})
    samples.adapt(store, TASK_ONLY, score=ngn, rival=70.0)
    for runs in (TASK_ONLY, MIXED):
        beside_random(store, runs, 17.0)
    base = base_of(TASK_ONLY, 0, {})
    gate = base.config(0).gate
    samples.put(store, base, 0, {"fixed": samples.answers([0] * gate.groups, gate, 0.0, 20.0)})


def strong(store, ngn):
    """Write a pruned model with this score beside Wanda with 70 and random neurons with 17."""
    samples.adapt(store, UPDATED_RUNS["ffn-updated"])
    samples.adapt(store, STRONG_RUNS["four"], score=ngn, rival=70.0)
    beside_random(store, STRONG_RUNS["four"], 17.0)


def frozen(store, perplexity, score=50.0):
    """Write frozen models of this perplexity and updated ones of 30, all of this score."""
    for target in TARGETS:
        updated = (UPDATED_RUNS[f"{target}-updated"], LADDER_RUNS[f"{target}-updated-1e-2"])
        trained = [TRAINED_RUNS[f"{target}-trained-1e-{power}"] for power in (1, 2)]
        for runs, found in (*((each, 30.0) for each in updated), *((each, perplexity) for each in trained)):
            made = samples.adapt(store, runs, score=score)
            made["phases"]["grown"]["truncated"]["perplexity"] = found
            store.write(made, replace=True)


def snapped(store, t):
    """Write adapters whose soft scores are higher by 1; boundaries of the weaker snapping all end at ``t``."""
    adapt_all(store, SNAPPED_RUNS, questions=20_000)
    for task in TASKS.values():
        made = samples.adapt(store, learned(task, "adapter", choices=SMALL))
        made["phases"]["grown"]["t"] = [t] * len(made["phases"]["grown"]["t"])
        store.write(made, replace=True)


def front(name, store, lead, spread=0.0):
    """Write three seeds of a work: one training's scores are better by ``lead`` times what is small."""
    (of, together, separate), beside = BESIDE[name], Store(store.root / FOLDER.name)
    work = WORKS[of]
    for seed in (0, 2, 3):
        members, better = {}, work.better * work.small * (lead + spread * (seed - 1))
        for share in (*work.shares, 100):
            members[str(share)] = {"cost": 1.0, "count": [1], "scores": {work.score: share / 10 + better}}
            alone = selection(work, separate if share < 100 else "dense", share, [seed])
            samples.put(beside, alone, seed, {"grown": samples.fixed(1, share / 10, work.score)})
        one = selection(work, together, min(work.shares), [seed], **{"train.steps": work.together[together]})
        samples.put(beside, one, seed, {"grown": samples.fixed(1, 0.0, work.score) | {"members": members}})


OF_STAND_INS = {
    "peft_baselines_small": (PEFT, adapted, ({"score": 80.0}, {"score": 51.0}, {"score": 20.0})),
    "peft_middle_small": (PEFT, adapted, ({}, {"third": 2})),
    "lora_close_small": (PEFT, adapted, ({"questions": 20_000}, {}, {"soft": 40.0})),
    "adapter_close_small": (PEFT, adapted, ({"questions": 20_000}, {}, {"soft": -40.0})),
    "prune_monotone_small": (PRUNING, pruned, ({"ngn": 53.0}, {"sign": -1})),
    "prune_frozen_small": (PRUNING, pruned, ({}, {"frozen": -10.0})),
    "prune_random_small": (PRUNING, pruned, ({"ngn": 70.0}, {"ngn": 60.0}, {"ngn": 30.0})),
    "prune_random_strong": ((), strong, ({"ngn": 70.0}, {"ngn": 30.0})),
    "prune_frozen_trained": ((), frozen, ({"perplexity": 29}, {"perplexity": 3e3, "score": 9}, {"perplexity": 3e3})),
    "adapter_close_snapped": ((), snapped, ({"t": 0.5}, {"t": 1.0})),
    "peft_baselines_asked": ((), partial(adapt_all, every=ASKED_RUNS), ({"score": 80.0}, {"score": 20.0})),
    "peft_middle_prices": ((), partial(adapt_all, every=PRICED_RUNS), ({"third": 1}, {"third": 2})),
    **{name: ((), partial(front, name), ({"lead": -0.9}, {"lead": 0, "spread": 5}, {"lead": -1.1})) for name in BESIDE},
}
"""A claim → its tables, and what is in records that agree with it, that cannot tell (where there are three), and that
disagree."""
ON_THE_PAPERS_MODELS = {key.removesuffix("_small") for key, (tables, *_) in OF_STAND_INS.items() if tables}
