"""Small plans of runs that take no time."""

from experiments.config.compose import compose
from experiments.config.run_files import runs_of
from experiments.runs.sweeps import plan as plans


def frozen(tmp_path, tasks, **changes):
    keys = {"gate.K": 2, "train.steps": 2, "progress": "never", **changes}
    configs = [compose({"profile": "smoke"}, {**keys, "gate.width": 4 + n}) for n in range(tasks)]
    results = tmp_path / "results"
    return plans.read_plan(plans.freeze(plans.folder_of("tiny", results), "tiny", results, runs_of(configs), 10))
