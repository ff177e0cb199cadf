"""A record is handed back only for the same sources, plug-ins, data and model; a difference is named."""

import json
import re

import pytest
from record_samples import grown, record

from experiments.config import identity
from experiments.config.compose import compose
from experiments.config.identity import Run, numerics
from experiments.data import MissingData, sets
from experiments.runs import same
from experiments.runs.launch import launch, share
from experiments.runs.sweeps import status
from experiments.store import provenance
from experiments.store.records import RecordError, Store
from experiments.tasks.language import base

FILES = {"ngn/gate.py": "1", "conf/config.yaml": "2"}
PLUGIN = {"plug-in mine/tasks/a.py": "3"}


def files(monkeypatch, suite=FILES, own=()):
    """Make these the digests of the present sources and plug-ins."""
    monkeypatch.setattr(provenance, "training_digests", lambda: dict(suite))
    monkeypatch.setattr(provenance, "plugin_digests", lambda: dict(own))
    monkeypatch.setattr(same, "code", lambda: provenance.Code(None, False, "git"))


def config(place, **overrides):
    keys = {"train.steps": 12, "gate.K": 4, "engine": "torch", "progress": "never", "results": str(place)}
    return compose({}, {**keys, **{key.replace("__", "."): value for key, value in overrides.items()}})


def fault(asked, made, place, allow_dirty=True):
    found = same.fault_of(made, asked, place, allow_dirty)
    return None if found is None else found.text


def test_other_sources_and_plugins_are_named_and_refused(tmp_path, monkeypatch):
    files(monkeypatch, FILES, PLUGIN)
    asked = config(tmp_path)
    (made,) = launch([asked])
    assert "sources" in json.loads(made.path.read_text())["code"]
    edited = FILES | {"ngn/gate.py": "9"}
    for suite, own, named in (
        (edited, PLUGIN, "sources (ngn/gate.py)"),
        (FILES | {"ngn/later.py": "6"}, PLUGIN, "sources (ngn/later.py)"),
        (FILES, dict.fromkeys(PLUGIN, "4"), "plug-ins (plug-in mine/tasks/a.py)"),
        (FILES, {}, "plug-ins (plug-in mine/tasks/a.py)"),
    ):
        files(monkeypatch, suite, own)
        with pytest.raises(RecordError, match=re.escape(f"by other {named}; add force=true")) as refused:
            launch([asked])
        assert str(made.path) in str(refused.value)
        assert status.View(tmp_path).state(Run.of(asked)).state == "stale"
    files(monkeypatch, FILES, PLUGIN | {"plug-in mine/methods/b.py": "5"})
    (present,) = launch([asked])
    assert present.status == "present", "a plug-in that comes later changes no record"
    assert f"{made.path}" in present.message
    assert "force=true" in present.message
    assert status.View(tmp_path).state(Run.of(asked)).state == "done"
    files(monkeypatch, edited, PLUGIN)
    assert launch([asked.model_copy(update={"force": True})])[0].status == "complete"
    assert launch([asked])[0].status == "present"


def test_without_kept_digests_the_commit_names_the_files(monkeypatch, tmp_path):
    files(monkeypatch)
    asked = config(tmp_path)
    code = {"commit": "abc", "clean": True, "source": "git", "sources": "0" * 64, "numerics": numerics(asked)}
    monkeypatch.setattr(same, "changed_since", {"abc": [f"ngn/{n}.py" for n in range(5)]}.get)
    named = "was trained by other sources (ngn/0.py, ngn/1.py, ngn/2.py and 2 more)"
    assert fault(asked, record(asked, {}, code=code), tmp_path) == named
    dirty = record(asked, {}, code={**code, "clean": False})
    assert fault(asked, dirty, tmp_path) == "was trained by other sources"
    uncommitted = "was made by uncommitted code or with plug-ins; commit the code"
    assert fault(asked, dirty, None, allow_dirty=False) == uncommitted


def test_a_record_without_digests_counts_by_its_numerics(tmp_path):
    asked = config(tmp_path)
    old = record(asked, {"grown": grown([2.0], 1e-3, 1e-3)})
    assert fault(asked, old, tmp_path) is None
    old["code"]["numerics"] = {"task": 0, "method": 1}
    assert "numerics version" in fault(asked, old, tmp_path)


def test_trials_are_trained_anew(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(identity, "SCRATCH", tmp_path)
    files(monkeypatch)
    asked = config(tmp_path).model_copy(update={"results": None, "profile": "smoke"})
    (made,) = launch([asked])
    assert made.path.is_relative_to(tmp_path / "results")
    files(monkeypatch, FILES | {"ngn/new.py": "9"})
    (again,) = launch([asked])
    assert again.status == "complete"
    assert "was trained by other sources (ngn/new.py); training it anew" in caplog.text
    assert launch([asked])[0].status == "present"


def images(monkeypatch, digest):
    """Make this the digest of the data on this machine."""

    def verify(name, root):
        if isinstance(digest, Exception):
            raise digest
        return sets.DataInfo(name, digest, "")

    same._data_digest.cache_clear()
    monkeypatch.setattr(sets, "verify", verify)


def test_other_data_are_named(tmp_path, monkeypatch):
    asked = compose({"task": "mnist", "gate": "mlp"}, {"results": str(tmp_path)})
    Store(tmp_path).write(record(asked, {"grown": grown([2.0], 90.0, 90.0, "accuracy")}))
    images(monkeypatch, "0" * 64)
    assert launch([asked])[0].status == "present"
    images(monkeypatch, MissingData("nothing to compare with"))
    assert launch([asked])[0].status == "present"
    images(monkeypatch, "1" * 64)
    with pytest.raises(RecordError, match=r"on other data \(mnist in .* has sha256 1111111111"):
        launch([asked])
    images(monkeypatch, sets.DataError("a damaged file"))
    (error,) = share([Run.of(asked)]).values()
    assert str(error) == "a damaged file"


def test_other_weights_are_named(tmp_path, monkeypatch):
    model = tmp_path / "model"
    asked = compose({"task": "gsm8k", "gate": "lora", "model": "local"}, {"model.path": str(model), "gate.layers": 2})
    info = {"name": "local", "sha256": "0" * 64, "provenance": ""}
    made = record(asked, {"grown": grown([2.0], 90.0, 90.0, "exact_match")}, base=info)
    monkeypatch.setattr(same, "_data_digest", lambda parts, root: None)
    assert fault(asked, made, tmp_path) is None, "the model is not on this machine"
    same._model_digest.cache_clear()
    model.mkdir()
    (model / "config.json").write_text("{}")
    assert fault(asked, made, tmp_path) == "was trained on other weights of model=local"
    made["base"]["sha256"] = base.digest_of(asked.model, tmp_path)
    assert fault(asked, made, tmp_path) is None


def test_only_what_trains_is_compared():
    files = ("experiments/runs/same.py", "experiments/report/pages.py", "experiments/runs/sweeps/plan.py", "run.py")
    assert [*map(provenance.trains, files)] == [True, False, False, False]
