"""Exported folders are whole or absent, whatever happens while they are written."""

import re
import resource
import signal

import pytest
import torch
from faulty import child
from safetensors.torch import save_file

from experiments.tasks.language.base import byte_tokenizer
from experiments.tasks.language.folders import SUMS, ExportError, check_sums, new_folder


def fill(path, content="x"):
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


WRITERS = {
    "safetensors": lambda folder: save_file({"a": torch.zeros(9999)}, folder / "x.safetensors"),
    "tokenizers": lambda folder: byte_tokenizer().save_pretrained(folder),
    "python": lambda folder: (folder / "x").write_bytes(bytes(9999)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, writer):
    def starved():
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
