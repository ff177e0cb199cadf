"""Exported folders are whole or absent, whatever happens while they are written."""

import os
import re
import resource
import signal
from pathlib import Path

import pytest
import torch
from faulty import child
from safetensors.torch import save_file

from experiments.tasks.language.base import byte_tokenizer
from experiments.tasks.language.folders import SUMS, ExportError, check_sums, new_folder


def fill(path: Path, content: str = "x") -> None:
    with new_folder(path) as folder:
        for name in ("a", "b/c"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)


def test_a_folder_has_its_name_once_all_is_there(tmp_path):
    with new_folder(tmp_path / "deep" / "out") as folder:
        (folder / "a").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["out"]
    assert sorted(path.name for path in (tmp_path / "deep" / "out").iterdir()) == [SUMS, "a"]
    check_sums(tmp_path / "deep" / "out")


def test_after_an_error_nothing_is_there(tmp_path):
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "out") as folder:
        (folder / "a").write_text(str(1 // 0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_what_is_there_stays(tmp_path, what):
    out = tmp_path / "out"
    if what == "file":
        out.write_text("mine")
    else:
        (tmp_path / "there").mkdir()
        (tmp_path / "there" / "mine").touch()
        out.symlink_to("there") if what == "link" else (tmp_path / "there").rename(out)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ExportError, match="out: exists and is not an empty folder"):
        fill(out)
    assert sorted(tmp_path.rglob("*")) == before


def test_of_four_at_once_one_writes_the_folder(tmp_path):
    def one(number: int) -> None:
        while not (tmp_path / "go").exists():
            os.sched_yield()
        with new_folder(tmp_path / "out") as folder:
            for name in "abc":
                (folder / name).write_text(str(number))

    children = []
    for number in range(4):
        if (pid := os.fork()) == 0:
            os._exit(child(lambda number=number: one(number), Path(os.devnull)))
        children.append(pid)
    (tmp_path / "go").touch()
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert sorted(ended) == [0, 1, 1, 1]
    assert {(tmp_path / "out" / name).read_text() for name in "abc"} == {str(ended.index(0))}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["go", "out"]


def test_a_killed_export_leaves_no_folder_and_the_next_removes_its_files(tmp_path):
    def dies() -> None:
        with new_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

    assert child(dies) == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    fill(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


WRITERS = {
    "safetensors": lambda folder: save_file({"a": torch.zeros(9999)}, folder / "x.safetensors"),
    "tokenizers": lambda folder: byte_tokenizer().save_pretrained(folder),
    "python": lambda folder: (folder / "x").write_bytes(bytes(9999)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, writer):
    def starved() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        try:
            with new_folder(tmp_path / "out") as folder:
                WRITERS[writer](folder)
        except OSError as fault:
            raise SystemExit(7 if str(fault.filename) == str(tmp_path / "out") else 8) from None

    assert child(starved) == 7
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("harm", ["flip", "cut", "missing", "folder"])
def test_a_changed_file_is_named(tmp_path, harm):
    out = tmp_path / "out"
    fill(out, "some content")
    file = out / "b" / "c"
    content = file.read_bytes()
    file.unlink()
    if harm == "folder":
        file.mkdir()
    elif harm != "missing":
        file.write_bytes(content[:3] if harm == "cut" else bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(ExportError, match=re.escape(str(file))):
        check_sums(out)
    for damaged in (b"\xff", b"junk\n", b"0  a\x00\n"):
        (out / SUMS).write_bytes(damaged)
        with pytest.raises(ExportError):
            check_sums(out)
