"""Search settings with Optuna (`pip install -e '.[search]'`) over the suite's runs of Cora.

    python scripts/fetch_data.py cora
    python examples/search.py scratch/search 20

The search chooses settings by the validation split, never by test scores. Every trial is a run with a record, so an
interrupted search resumes with its finished trials.
"""

import argparse
import sys
from pathlib import Path

try:
    import optuna
except ModuleNotFoundError:
    sys.exit("examples/search.py needs the package optuna: pip install -e '.[search]'")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.config.compose import compose
from experiments.data.errors import DataError
from experiments.runs.launch import launch
from experiments.store.records import read_record


def accuracy(trial: optuna.Trial, results: str, profile: str = "full") -> float:
    """Return the validation accuracy of the truncated model, minus half a point per retained component."""
    price = trial.suggest_float("schedule.lambda0", 1e-5, 1e-2, log=True)
    settings = {"task.split": "validation", "phases": ["grown"], "schedule.lambda0": price, "results": results}
    (run,) = launch([compose({"task": "cora", "profile": profile}, settings)])
    grown = read_record(run.path)["phases"]["grown"]
    if grown["status"] != "complete":
        raise optuna.TrialPruned("diverged")
    return grown["truncated"]["accuracy"] - 0.5 * sum(grown["count"])


def search(results: str, trials: int, profile: str = "full") -> optuna.Study:
    """Run the search up to ``trials`` runs and return the study; it continues an interrupted search."""
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(lambda trial: accuracy(trial, results, profile), n_trials=trials)
    return study


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="folder of the records")
    parser.add_argument("trials", type=int, help="runs of this call")
    arguments = parser.parse_args()
    try:
        print(search(arguments.results, arguments.trials).best_params)
    except DataError as missing:
        sys.exit(str(missing))
