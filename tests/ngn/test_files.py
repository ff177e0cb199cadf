"""Files of ``ngn.save``: complete or absent, checked when loaded, and careful with what is there already."""

import errno
import os
import random
import signal
import stat
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import ngn
from ngn import files


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


def test_a_file_without_a_digest_is_loaded(tmp_path):
    """Version 0.1 wrote such files."""
    model = net()
    safetensors.torch.save_file(model.state_dict(), tmp_path / "old")
    assert torch.equal(ngn.load(net(), tmp_path / "old")[0].weight, model[0].weight)


@pytest.mark.parametrize("kind", [torch.int32, torch.bool, torch.complex64])
def test_other_types_are_refused_by_name(saved, kind):
    tensors = safetensors.torch.load_file(saved)
    safetensors.torch.save_file(tensors | {"0.weight": tensors["0.weight"].to(kind)}, saved)
    with pytest.raises(ValueError, match=rf"0\.weight has the type {kind} in .*small.safetensors, but torch.float32"):
        ngn.load(net(), saved)


def test_another_precision_is_kept(tmp_path):
    ngn.save(net(dtype=torch.bfloat16), tmp_path / "half")
    assert ngn.load(net(), tmp_path / "half")[0].weight.dtype == torch.bfloat16


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


def test_what_cannot_be_removed_does_not_hide_what_cannot_be_written(tmp_path, monkeypatch):
    """On a read-only disk both fail, and the first names the file that was asked for."""

    def refused(path, *_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "write_bytes", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(OSError, match="Read-only") as fault:
        files.write_atomically(tmp_path / "record.json", b"")
    assert files.storage_fault(fault.value) == (
        f"{tmp_path}/record.json: cannot be written (Read-only file system); name a folder that can be written"
    )
