"""Studies: the runs behind a table or a figure, by name. ``python scripts/sweep.py plan NAME`` says what is missing.

Where a table's rows or a reduction name their runs already, the study takes them from there, so that the two cannot
drift apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.analysis.reductions import calibration, init_sweep, plateaus
from experiments.analysis.selection import Selection, base_of, configurations
from experiments.config.compose import nearest
from experiments.config.schema import Config
from experiments.paths import RESULTS
from experiments.store.records import RecordError, Store
from experiments.tables import MACROS
from experiments.tables.extensions import BUDGETS, COMMITTED, ORDERED, TIED
from experiments.tables.model import Table
from experiments.tables.one_d import BASELINE, CONTINUED, DECAY, FORMER, FOUR, INFERRED, SEVEN
from experiments.tables.own import DEPTH, SENSITIVITY, STORIES, SUSPECTS
from experiments.tables.peft import PEFT, TASKS, learned
from experiments.tables.pruned import LADDER_RUNS, MIXED, TASK_ONLY, VARIANTS, alone
from experiments.tables.pruning import LLAMA_PRUNED, PRUNING, PYTHIA, ladder
from experiments.tables.vae import FIFTEEN

FIFTY = range(50)


@dataclass(frozen=True)
class Study:
    """The runs behind a table or a figure.

    Attributes:
        name, title: what it is called on the command line, and what it is.
        make: its selections; called when they are needed, since thousands take a moment.
        results: where its records belong.
    """

    name: str
    title: str
    make: Callable[[], list[Selection]]
    results: Path = RESULTS

    def runs(self, store: Store | None = None) -> Iterator[tuple[str, Config]]:
        """(run id, configuration) of every run, each once.

        Runs that are found through the record of another (the fixed model of a learned size) follow once ``store``
        has that record.
        """
        seen: set[str] = set()

        def visit(selection: Selection) -> Iterator[tuple[str, Config]]:
            for seed, config, name in configurations(selection):
                if name not in seen:
                    seen.add(name)
                    yield name, config
                try:
                    record = store.get(name) if store is not None and selection.companions else None
                except RecordError:  # of its companions nothing is known before it is run again
                    continue
                if record is None or record["status"] != "complete":
                    continue
                for _, find in selection.companions:
                    yield from visit(find(selection, seed, record))

        for selection in self.make():
            yield from visit(selection)


def _baseline() -> list[Selection]:
    return [BASELINE.with_seeds(FIFTY)]


def _fixed_frontier() -> list[Selection]:
    choices = {"task": "regression1d", "gate": "mlp", "method": "fixed", "schedule": "paper"}
    fixed = [Selection.of(choices, {"method.count": count}, FIFTY) for count in range(1, 13)]
    # the grown points of the figure: the baseline, and two other prices
    grown = [
        BASELINE.with_seeds(FIFTY).with_overrides(change)
        for change in ({}, *({"schedule.lambda0": price, "schedule.alpha_max": price} for price in (1e-5, 1e-3)))
    ]
    return fixed + grown


def _init_sweep() -> list[Selection]:
    # ten seeds of every start before the other forty, so that an unfinished sweep is the ten-seed figure
    return init_sweep.sweep_selections(range(10)) + init_sweep.sweep_selections(range(10, 50))


def _decay() -> list[Selection]:
    # from the usual start this row's boundary does not rise; docs/log.md has what is known
    return [*_of(DECAY), DECAY.runs["normalized"].with_overrides({"gate.t0": 1.0})]


def _of(*tables: Table) -> list[Selection]:
    """The runs that tables name."""
    return [runs for table in tables for runs in table.runs.values()]


def _vision() -> list[Selection]:
    tasks = (("mnist", "mlp"), ("mnist", "conv"), ("cifar10", "conv"), ("cora", "gcn"))
    return [Selection.of({"task": task, "gate": gate}) for task, gate in tasks]


def _vision_frontier() -> list[Selection]:
    # past 16 features the weights 0.5^k leave nothing to see
    tasks = (("mnist", "mlp", 16), ("mnist", "conv", 8), ("cifar10", "conv", 16), ("cora", "gcn", 8))
    return [
        Selection.of({"task": task, "gate": gate, "method": "fixed"}, {"method.count": count}, range(3))
        for task, gate, most in tasks
        for count in range(1, most + 1)
    ]


def _former() -> list[Selection]:
    names = ("baseline", "schedules", "lambda_sweep", "continue_learning", "fixed_frontier", "decay", "sensitivity")
    runs = [*(selection for name in names for selection in study(name).make()), *init_sweep.sweep_selections(range(10))]
    # the other learners have boundary rates of their own, each with its source
    draw = {"task.draw": FORMER["task.draw"]}
    others = [selection.with_overrides(draw) for key, selection in SEVEN.runs.items() if key != "ngn"]
    return [*(replace(each, overrides=()).with_overrides(FORMER | dict(each.overrides)) for each in runs), *others]


def inferred(selection: Selection) -> Selection:
    """The runs of ``selection`` with alpha rising from the first step, where their schedule has a delayed alpha.

    Rows with a constant alpha or none have no start of alpha to change: of them only rate and draw differ. What the
    selection itself overrides stays.
    """
    delayed = dict(selection.choices)["schedule"] not in ("alpha_const", "no_alpha")
    changed = INFERRED if delayed else FORMER
    return replace(selection, overrides=()).with_overrides(changed | dict(selection.overrides))


def _inferred() -> list[Selection]:
    # in order of worth: seeds and draws that chose nothing, table 4, figures 2, 3, 6 and 7, learned decay, figure 5
    draws = [BASELINE.with_overrides({"task.draw": draw}) for draw in (1, 2, 3, 4)]
    grown = [runs for runs in study("fixed_frontier").make() if dict(runs.choices)["method"] == "ngn"]
    names = ("schedules", "lambda_sweep")
    learned = [runs for runs in study("decay").make() if dict(runs.overrides).get("method.boundary", True)]
    rest = [*(runs for name in names for runs in study(name).make()), *grown, CONTINUED, *learned]
    starts = [panel.start(t).with_seeds(range(10)) for panel in init_sweep.PANELS for t in init_sweep.STARTS]
    return [inferred(runs) for runs in (*study("baseline").make(), *draws, *rest, *starts)]


def _stories() -> list[Selection]:
    # seed 0 of every row before the others of any
    return [runs.with_seeds([0]) for runs in _of(STORIES)] + _of(STORIES)


def _stories_frontier() -> list[Selection]:
    return [
        Selection.of({"task": "tinystories", "gate": gate, "method": "fixed"}, {"method.count": (count, count)}, [0])
        for gate, most in (("heads", 8), ("slices", 16))
        for count in range(1, most + 1)
    ]


def _manifold() -> list[Selection]:
    return _of(FIFTEEN)


def _depth_seeds() -> list[Selection]:
    return [runs.with_seeds(range(39)) for runs in DEPTH.runs.values()]


def _cora_random() -> list[Selection]:
    drawn = {"task.nodes": "random"}
    counts = range(1, 9)
    fixed = [
        Selection.of({"task": "cora", "gate": "gcn", "method": "fixed"}, {**drawn, "method.count": count}, range(3))
        for count in counts
    ]
    return [Selection.of({"task": "cora", "gate": "gcn"}, drawn), *fixed]


def _adapted(gate: str, model: str, budget: str) -> list[Selection]:
    """Base scores, then the learned models, each followed by its rivals; at last two more seeds of the first task."""
    runs = [learned(task, gate, choices={"model": model, "budget": budget}) for task in TASKS.values()]
    more = replace(runs[0].with_seeds((1, 2)), companions=())
    return [*(base_of(selection, 0, {}) for selection in runs), *runs, more]


def _adaptation(gate: str, model: str, budget: str, title: str) -> Study:
    return Study(f"{gate}_{model.partition('_')[0]}", f"table 11: {title}", lambda: _adapted(gate, model, budget))


def _pruned() -> list[Selection]:
    """The base model, the runs of table 14 with their variants, then the ladder of table 13."""
    first = [base_of(TASK_ONLY, 0, {}), alone(TASK_ONLY), alone(MIXED)]
    return [*first, *(alone(runs) for _, runs in VARIANTS.values()), TASK_ONLY, MIXED, *LADDER_RUNS.values()]


def _pruned_pythia() -> list[Selection]:
    runs = [*ladder(PYTHIA).values()]
    return [base_of(runs[0], 0, {}), *runs]


def _smoke() -> list[Selection]:
    choices = {"task": "regression1d", "gate": "mlp", "profile": "smoke"}
    prices = [float(f"{math.exp(n / 2) * 1e-5:.3g}") for n in range(4)]
    return [Selection.of(choices, {"schedule.lambda0": price, "gate.K": 4}, FIFTY) for price in prices]


ONE_D = (
    "baseline",
    "schedules",
    "decay",
    "learners",
    "fixed_frontier",
    "lambda_sweep",
    "continue_learning",
    "sensitivity",
    "init_sweep",
)
"""The studies of the 1D regression, in the order in which they are run."""


def _one_d() -> list[Selection]:
    return [selection for name in ONE_D for selection in study(name).make()]


STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study("schedules", "table 4: six schedules, ten seeds", lambda: _of(FOUR)),
        Study("baseline", "figure 1 and the capacity learners: the 1D baseline, fifty seeds", _baseline),
        Study("lambda_sweep", "figure 2: 500 prices from 1e-6 to 1e-2, seed 0", lambda: list(plateaus.SWEEP)),
        Study("fixed_frontier", "figure 3: fixed counts 1 to 12 and grown runs, fifty seeds", _fixed_frontier),
        Study("init_sweep", "figure 5: t_init 0 to 16, fifty seeds, three panels", _init_sweep),
        Study("init_sweep_ten", "the first ten seeds of figure 5", lambda: init_sweep.sweep_selections(range(10))),
        Study("continue_learning", "figure 6: ten seeds, each continued at three prices", lambda: [CONTINUED]),
        Study("learners", "figure 7: four capacity learners, fifty seeds, and fixed models", lambda: _of(SEVEN)),
        Study("decay", "learned decay and normalisation, ten seeds, and fixed models", _decay),
        Study("sensitivity", "the 1D baseline with one open setting changed, ten seeds", lambda: _of(SENSITIVITY)),
        Study(
            "calibration",
            "table 4's schedules at four boundary rates and four draws of the inputs",
            calibration.selections,
        ),
        Study("former", "figures 1 to 7, tables 4 and 7, under the setting in use before the calibration", _former),
        Study("inferred", "figures 1 to 6, table 4 and learned decay with alpha rising from the first step", _inferred),
        Study("one_d", "every study of the 1D regression, in order", _one_d),
        Study("vision", "table 8: MNIST, CIFAR-10 and Cora, ten seeds", _vision),
        Study("vision_frontier", "accuracy against count: fixed models of every count, three seeds", _vision_frontier),
        Study("tinystories", "heads, slices, both, and Mamba states on TinyStories", _stories),
        Study("tinystories_frontier", "fixed models of 1 to 8 heads and 1 to 16 slices, seed 0", _stories_frontier),
        Study("manifold", "table 15: intrinsic dimensions 1, 2, 4, 6 and 8, ten seeds", _manifold),
        Study(
            "depth", "tables 9 and 10: depth by layers (four settings) and by a chain, ten seeds", lambda: _of(DEPTH)
        ),
        Study("depth_seeds", "tables 9 and 10 with 39 seeds: enough for ranks to decide a single run", _depth_seeds),
        Study("cora_random", "Cora with a random split for each seed: ten seeds, and fixed models", _cora_random),
        Study("commit", "rows of the paper with boundaries rounded at 90 % of training", lambda: _of(COMMITTED)),
        Study("tied_alpha", "the 1D study with a snapping strength that follows the price", lambda: _of(TIED)),
        Study("budget", "sizes under budgets of 3 to 12 components, and fixed models", lambda: _of(BUDGETS)),
        Study(
            "orders", "orders of components under one budget: 1D regression and MNIST, ten seeds", lambda: _of(ORDERED)
        ),
        Study("suspects", "what may explain a disagreement: one setting changed", lambda: _of(SUSPECTS)),
        Study(
            "tables",
            "every run that a table names today, and the fixed models that belong to them; not of Llama-3-8B or Pythia",
            lambda: _of(*(table for table in MACROS if table not in (*PEFT, *PRUNING))),
        ),
        _adaptation("lora", "smollm2_135m", "cpu", "LoRA rank on SmolLM2-135M, beside five rivals"),
        _adaptation("adapter", "smollm2_135m", "cpu", "adapter width on SmolLM2-135M"),
        _adaptation("lora", "llama3_8b", "paper", "LoRA rank on Llama-3-8B, which needs a GPU of 40 GB"),
        _adaptation("adapter", "llama3_8b", "paper", "adapter width on Llama-3-8B, which needs a GPU of 40 GB"),
        Study("pruning_smollm2", "tables 13 and 14: pruning of SmolLM2-135M, beside five rivals", _pruned),
        Study("pruning_pythia", "table 13: pruning of Pythia-410M, which needs a GPU", _pruned_pythia),
        Study("pruning_llama3", "table 14: pruning of Llama-3-8B, which needs a GPU of 160 GB", lambda: [LLAMA_PRUNED]),
        Study("smoke", "200 runs of less than a second on tiny data, for trying out a cluster", _smoke),
    )
}


def study(name: str) -> Study:
    """The study of that name.

    Raises:
        KeyError: if there is none; the message lists the names and gives the nearest.
    """
    if name not in STUDIES:
        raise KeyError(f"no study '{name}'.{nearest(name, list(STUDIES))} The studies are: {', '.join(STUDIES)}")
    return STUDIES[name]
