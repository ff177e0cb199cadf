"""Small plans of runs."""

from experiments.config.compose import compose
from experiments.config.identity import runs_of
from experiments.core.needs import NOTHING
from experiments.runs.sweeps import plan as plans


def frozen(tmp_path, tasks, seeds=1, needs=NOTHING, **changes):
    """A plan with a stack of these seeds in each task, which take no time if not changed."""
    keys = {"gate.K": 2, "train.steps": 2, "progress": "never", **changes}
    each = [{"gate.width": 4 + n, "seed.value": seed} for n in range(tasks) for seed in range(seeds)]
    runs, results = runs_of(compose({"profile": "smoke"}, {**keys, **own}) for own in each), tmp_path / "results"
    return plans.read_plan(plans.freeze(plans.folder_of("smoke", results), "smoke", results, runs, 10, needs))
