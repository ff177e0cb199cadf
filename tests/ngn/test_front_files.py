"""A front in one file: each member is cut from it as from the learner, and nothing in it is run."""

import functools
import json
import os
import subprocess
import sys

import pytest
import torch
from fronts import MODELS, trained
from sizable import called

import ngn
from ngn.files import FileError
from ngn.tensor_files import read_checked, write_checked

LOAD = """
import sys, torch, ngn
from fronts import MODELS, called
make, x = MODELS["ResNet"]
small = ngn.load(make(), sys.argv[1], budget="60%")
torch.save([small.state_dict(), called(small, x)], sys.argv[2])
"""


@pytest.mark.parametrize("name", ["ResNet", "attention", "gqa", "tied", "gqa, narrowed", "Swin, narrowed"])
def test_one_file_holds_all_members(name, tmp_path):
    name, _, residual = name.partition(", ")
    learner, x = trained(name, residual=bool(residual))
    assert any(group.normalised for group in learner.found) == bool(residual)
    file, make = tmp_path / "family", MODELS[name][0]
    ngn.save(learner, file)
    for budget in ("60%", "77%", "100%", learner.points()[1][3]):
        small, loaded = learner.deploy(budget), ngn.load(make(), file, budget=budget)
        assert str(loaded) == str(small)
        same(loaded.state_dict(), small.state_dict())
        assert all(map(torch.equal, called(loaded, x), called(small, x)))
        ngn.save(loaded, tmp_path / "small")
        assert str(ngn.load(make(), tmp_path / "small")) == str(loaded)
    assert str(ngn.load(make(), file)) == str(make())
    with pytest.raises(ValueError, match="outside of the front"):
        ngn.load(make(), file, budget="10%")
    with pytest.raises(ValueError, match="no front"):
        ngn.load(make(), tmp_path / "small", budget="60%")
    if name == "ResNet":  # in a process that has never traced it
        folders = os.pathsep.join([*sys.path])
        command = [sys.executable, "-c", LOAD, file, tmp_path / "loaded"]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": folders})
        state, outputs = torch.load(tmp_path / "loaded")
        small = learner.deploy("60%")
        same(state, small.state_dict())
        assert all(map(torch.equal, outputs, called(small, x)))


def same(state, other):
    assert state.keys() == other.keys()
    assert all(torch.equal(value, other[key]) for key, value in state.items())


WRONG = {
    "another module": lambda said: said["axes"][0]["cuts"][0].__setitem__(0, "nowhere"),
    "a method": lambda said: said["axes"][0]["cuts"][0].__setitem__(1, "forward"),
    "more than there is": lambda said: said["axes"][0].update(K=10**12),
    "a width of zero": lambda said: said["axes"][0]["cuts"][0].__setitem__(3, 0),
    "a private number": lambda said: said["axes"][0].update(counts=[["", "training"]]),
    "a tensor as a number": lambda said: said["axes"][0].update(counts=[["0", "weight"]]),
    "no size": lambda said: said["axes"][1].update(size=7),
    "no axis": lambda said: said["axes"].pop().clear() or said["axes"].append({}),
    "other members": lambda said: said.update(members=[5, 3]),
    "other norms": lambda said: said.update(norms=["2"]),
    "other attention": lambda said: said.update(attention=["0"]),
    "no costs": lambda said: said.clear(),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_file_that_says_something_else_is_refused(what, tmp_path):
    ngn.save(family()[0], tmp_path / "family")
    tensors, said = read_checked(tmp_path / "family")
    front = json.loads(said["front"])
    WRONG[what](front)
    write_checked(tmp_path / "family", tensors, said | {"front": json.dumps(front)})
    with pytest.raises(FileError, match="is damaged"):
        ngn.load(MODELS["mlp"][0](), tmp_path / "family", budget="60%")


@functools.cache
def family():
    return trained("mlp")
