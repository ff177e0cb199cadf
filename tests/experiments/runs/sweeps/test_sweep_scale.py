"""The reads of plan and status grow with the study, not with the folder; benchmarks/bench_sweeps.py has the times."""

import pytest
from record_samples import grown, record

from experiments.analysis.selection import Selection
from experiments.runs.sweeps import plan as plans
from experiments.runs.sweeps import status
from experiments.store.records import Store
from experiments.studies.model import Study


@pytest.fixture
def counted(monkeypatch):
    """Count how often records are read and the folder is listed."""
    counts = {"read": 0, "listed": 0}
    read, paths = status.read_record, Store.paths

    def counting_read(path):
        counts["read"] += 1
        return read(path)

    def counting_paths(store):
        counts["listed"] += 1
        return paths(store)

    monkeypatch.setattr(status, "read_record", counting_read)
    monkeypatch.setattr(Store, "paths", counting_paths)
    return counts


@pytest.mark.parametrize("size", [50, 200])
def test_status_reads_each_record_once_and_lists_the_folder_once(tmp_path, counted, size):
    selection = Selection.of({"task": "regression1d", "gate": "mlp"}, seeds=range(size))
    study = Study("many", "many", lambda: [selection])
    runs = list(study.runs())
    store = Store(tmp_path)
    for run in runs[: size // 2]:
        text = record(run.config, {"grown": grown([2.0], 1e-3, 1e-3)})
        store.write(text)
        (store.path(run.id).parent / f"regression1d-other-{run.id[-10:]}.json").write_text("{}")
    view = status.View(tmp_path)
    told = status.progress(study.runs(), view, status.Speeds([]))
    assert told.counts == {"done": size // 2, "missing": size - size // 2}
    assert counted == {"read": size // 2, "listed": 1}
    missing = list(status.runs_to_train(study.runs(), view))
    assert len(missing) == size - size // 2
    assert counted == {"read": size // 2, "listed": 1}, "a plan opens no record"
    path = plans.freeze(tmp_path / "sweeps", "many", tmp_path, missing, 10)
    first = next(iter(plans.runs_of_tasks(path)))
    assert len(first[1]) == 10
    assert len(plans.read_plan(path).tasks) == -(-len(missing) // 10)
