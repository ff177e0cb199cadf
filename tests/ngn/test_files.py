"""Files of ``ngn.save``: complete or absent, checked when loaded, and careful with what is there already."""

import errno
import os
import random
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from sizable import Adding, Layers
from torch import nn

import ngn
from experiments.core.paths import ROOT
from experiments.core.reading import contents_digest, storage_fault
from ngn import files
from ngn.cut.truncation import deploy
from ngn.cuts import Cut
from ngn.tensor_files import write_checked


def net(**kind):
    return nn.Sequential(nn.Linear(3, 5, **kind), nn.BatchNorm1d(5, **kind))


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "small.safetensors"
    ngn.save(net(), path)
    return path


def test_every_flipped_bit_is_noticed(saved):
    content = saved.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(content)), 150):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        saved.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"small\.safetensors"):
            ngn.load(net(), saved)


@pytest.mark.parametrize("length", [0, 7, 8, 100, -1])
def test_a_cut_file_is_named(saved, length):
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(ValueError, match=r"small\.safetensors is no file of safetensors, or is damaged"):
        ngn.load(net(), saved)


def test_a_file_without_a_digest_is_loaded_and_another_precision_kept(tmp_path):
    """Version 0.1 wrote no digests."""
    model = net()
    safetensors.torch.save_file(model.state_dict(), tmp_path / "old")
    assert torch.equal(ngn.load(net(), tmp_path / "old")[0].weight, model[0].weight)
    ngn.save(net(dtype=torch.bfloat16), tmp_path / "half")
    assert ngn.load(net(), tmp_path / "half")[0].weight.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [torch.int32, torch.bool, torch.complex64])
def test_other_types_are_refused_by_name(saved, kind):
    tensors = safetensors.torch.load_file(saved)
    safetensors.torch.save_file(tensors | {"0.weight": tensors["0.weight"].to(kind)}, saved)
    with pytest.raises(ValueError, match=rf"0\.weight has the type {kind} in .*small.safetensors, but torch.float32"):
        ngn.load(net(), saved)


def test_a_tensor_without_dimensions_is_refused_by_name(saved):
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))  # never only zeros, whatever is drawn
    ngn.learn_sizes(model, {"": ngn.Width()}, example=torch.ones(1, 3), lambda0=1e-3)
    tensors = safetensors.torch.load_file(saved)
    safetensors.torch.save_file(tensors | {"0.weight": torch.tensor(1.0)}, saved)
    with pytest.raises(ValueError, match=r"belongs to another model: 0\.weight has 0 dimensions, not 2"):
        ngn.load(model, saved)


def test_links_stay_and_what_they_lead_to_is_written(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "there")
    for _ in range(2):
        ngn.save(net(), tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert not (tmp_path / "there").is_symlink()
        ngn.load(net(), tmp_path / "link")


def test_neither_devices_nor_folders_nor_circles_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("pipe", "folder", "circle"):
        with pytest.raises(OSError, match=name):
            ngn.save(net(), tmp_path / name)
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match=name):
            files.write_atomically(tmp_path / name, b"", replace=True)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["circle", "folder", "pipe"]


@pytest.mark.parametrize("name", ["x" * 255, "ü" * 127])
def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path, name):
    ngn.save(net(), tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    if (pid := os.fork()) == 0:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        files.write_atomically(tmp_path / "small", b"half")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    other = left.with_name(left.name.replace(str(pid), str(os.getpid())))
    other.touch()  # of a living process
    ngn.save(net(), tmp_path / "small")
    assert {p.name for p in tmp_path.iterdir()} == {"small", other.name}


def test_equal_models_give_equal_files(tmp_path):
    """Safetensors writes metadata in another order each time."""
    said = {name: name for name in "abcdef"}
    for name, tensors in {"one": net().state_dict(), "other": dict([*net().state_dict().items()][::-1])}.items():
        write_checked(tmp_path / name, {key: torch.zeros_like(value) for key, value in tensors.items()}, said)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


WRITTEN = """
import sys, torch, ngn
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(3, 5))
model[2].weight = model[0].weight
model[1].requires_grad_(False)
ngn.save(model, sys.argv[1], frozen=False)
"""


@pytest.mark.slow
def test_equal_models_give_equal_files_in_other_processes(tmp_path):
    for seed in "12":
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", WRITTEN, tmp_path / seed], check=True, env=environment)
    assert len({(tmp_path / seed).read_bytes() for seed in "12"}) == 1
    assert len({contents_digest(tmp_path / seed) for seed in "12"}) == 1


class Embedded(nn.Module):
    """A language model whose head is its embedding, as two modules or with the weight under two names."""

    def __init__(self, tied=True):
        super().__init__()
        self.e, self.f, self.g, self.h = nn.Embedding(40, 24), nn.Linear(24, 64), nn.Linear(64, 24), nn.Linear(24, 40)
        if tied:
            self.h.weight = self.e.weight

    def forward(self, x):
        x = self.e(x.argmax(-1))
        return self.h(x + self.g(self.f(x).relu()))


class Square(nn.Module):
    """Both dimensions of one weight of two layers have one size; the biases of two layers are one, as are buffers."""

    def __init__(self):
        super().__init__()
        self.i, self.a, self.b, self.o = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 3)
        self.b.weight, self.b.bias = self.a.weight, self.a.bias
        self.n, self.m = nn.BatchNorm1d(32), nn.BatchNorm1d(32)
        self.m.running_mean, self.m.running_var = self.n.running_mean, self.n.running_var

    def forward(self, x):
        h = self.n(self.i(x)).relu()
        return self.o(self.b(self.m(self.a(h)).relu()).relu())


class Named(nn.Module):
    """One layer, and one weight, under two names."""

    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(8, 48), nn.GELU(), nn.Linear(48, 8))
        self.b, self.w, self.o = self.a, nn.Parameter(torch.randn(32, 8)), nn.Linear(32, 3)
        self.register_parameter("v", self.w)

    def forward(self, x):
        x = self.b(x + self.a(x))
        return self.o(nn.functional.linear(x, self.w).relu() + nn.functional.linear(x, self.v).tanh())


def same_layers():
    """Layers with the same weights: a file has those of the first alone."""
    model = Layers(*(Adding(8, 8) for _ in range(4)))
    for layer in model.layers:
        layer.weight, layer.bias = model.layers[0].weight, model.layers[0].bias
    return model


def holders(model):
    held = [id(t) for m in model.modules() for t in (*m._parameters.values(), *m._buffers.values()) if t is not None]
    return sorted(map(held.count, set(held)))


@pytest.mark.parametrize("kind", [Embedded, Square, Named, same_layers])
def test_a_tensor_of_several_holders_counts_once(kind, tmp_path):
    x, sizes = torch.randn(6, 8), {"layers": ngn.Depth()} if kind is same_layers else None
    torch.manual_seed(0)
    model = kind()
    whole, tied = sum(p.numel() for p in model.parameters()), holders(model)
    learner = ngn.learn_sizes(model, sizes, example=x, **({"t0": 1.2} if kind is same_layers else {"t0": 9.2}))
    learner.set_progress(1.0)
    small, report = learner.deploy(unsettled="allow"), learner.report()
    left = sum(p.numel() for p in small.parameters())
    assert (report.parameters, report.deployed) == (whole, left)
    assert len(report.groups) > 1 or report.groups[0].removed == whole - left
    ngn.save(small, tmp_path / "small")
    torch.manual_seed(1)
    fresh = ngn.learn_sizes(kind(), sizes, example=x)
    loaded = ngn.load(fresh, tmp_path / "small")
    assert torch.equal(loaded(x), small(x))
    assert holders(loaded) == holders(small)
    assert kind is same_layers or holders(small) == tied


def test_a_model_that_is_not_tied_yet_is_tied_by_its_file(tmp_path):
    ngn.save(Embedded(), tmp_path / "tied")
    loaded = ngn.load(Embedded(tied=False), tmp_path / "tied")
    assert loaded.h.weight is loaded.e.weight
    ngn.save(Embedded(tied=False), tmp_path / "apart")
    with pytest.raises(ValueError, match=r"belongs to another model: only the file has h\.weight\. Build the model"):
        ngn.load(Embedded(), tmp_path / "apart")


def test_a_file_of_another_model_says_what_to_do(tmp_path):
    ngn.save(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), tmp_path / "small")  # or of version 0.1
    fresh = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    wanted = r"0\.weight has shape \(4, 3\) in .*small, but \(8, 3\) in the model\. Build .* ngn\.learn_sizes, as for"
    with pytest.raises(ValueError, match=wanted):
        ngn.load(fresh, tmp_path / "small")
    with pytest.raises(ValueError, match=r"only the model has 3\.bias, 3\.weight\. Build the model"):
        ngn.load(nn.Sequential(*fresh, nn.Linear(2, 2)), tmp_path / "small")


def test_dimensions_may_count_from_the_end(tmp_path):
    def made():
        model = nn.ModuleList([nn.Linear(8, 6), nn.Linear(8, 6)])
        model[1].weight = model[0].weight
        cuts = [Cut(model[0], "weight", 0), Cut(model[1], "weight", -2), Cut(model[0], "bias", -1)]
        return nn.ModuleList([*model, ngn.OrderedAxis(ngn.CountGate(6, t0=3.2), [*cuts, Cut(model[1], "bias", 0)])])

    ngn.save(deploy(made()), tmp_path / "small")
    assert [tuple(layer.weight.shape) for layer in ngn.load(made(), tmp_path / "small")[:2]] == [(4, 8)] * 2


def test_a_state_that_is_no_tensor_is_named(tmp_path):
    class Stateful(nn.Linear):
        def get_extra_state(self):
            return {"steps": 3}

    with pytest.raises(ValueError, match=r"tensors only, and 0\._extra_state is none"):
        ngn.save(nn.Sequential(Stateful(3, 3)), tmp_path / "small")


def test_what_cannot_be_removed_does_not_hide_what_cannot_be_written(tmp_path, monkeypatch):
    """On a read-only disk both fail, and the first names the file that was asked for."""

    def refused(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "write_bytes", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(OSError, match="Read-only") as fault:
        files.write_atomically(tmp_path / "record.json", b"")
    assert storage_fault(fault.value) == (
        f"{tmp_path}/record.json: cannot be written (Read-only file system); name a folder that can be written"
    )
