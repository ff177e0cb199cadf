"""Building, caching and calling the kernels' libraries."""

import hashlib
import logging
import os
import select
import subprocess
import threading

import pytest
import torch
from kernel_cases import BANK, LOSS, needs_kernel, plan
from waiting import leave_partial

from experiments.models.kernels.build import BuildError, _run, build_kernel, load_library
from experiments.models.kernels.libraries import FOLDER, library, struct_type
from experiments.models.kernels.supported import unsupported


def fake_compiler(folder, body):
    script = folder / "fake-c++"
    script.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo fake 1.0; exit 0; fi\n{body}\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("why", ["missing", "failing", "useless"])
def test_without_a_working_compiler_the_plain_trainer_is_used(why, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if why == "missing":
        monkeypatch.setenv("CXX", "no-such-compiler")
    else:
        last = 'for last; do :; done\necho nonsense > "$last"'
        body = "echo 'it is broken' >&2; exit 3" if why == "failing" else last
        monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, body)))
    library.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                reason = unsupported(BANK.learner(1), BANK.batches(), LOSS, plan(5))
                assert reason == "the kernel cannot be built here"
        (record,) = caplog.records
        wanted = {"missing": "found no C++ compiler", "failing": "it is broken", "useless": "bank1d"}[why]
        assert wanted in record.getMessage()
        assert not list((tmp_path / "ngn" / "lib").glob("*.so")) or why == "useless"
    finally:
        library.cache_clear()


def test_a_timed_out_compiler_leaves_no_process(tmp_path, monkeypatch):
    """A compiler driver starts the compiler as a child process, which would run on alone."""
    fifo = tmp_path / "held open by the child"
    os.mkfifo(fifo)
    held = []

    def out_of_time(process, timeout):
        held.append(fifo.open("rb", buffering=0))  # waits until the child has opened it
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", out_of_time)
    with pytest.raises(BuildError, match="did not finish within"):
        _run([str(fake_compiler(tmp_path, f'sleep 1000 > "{fifo}" &\nwait'))])
    with held[0] as end:
        ended, _, _ = select.select([end], [], [], 60)
        assert ended, "the child still runs"
        assert end.read() == b""


def test_many_builders_compile_once(tmp_path, monkeypatch):
    log = tmp_path / "calls"
    body = f'echo call >> "{log}"\nfor last; do :; done\necho library > "$last"'
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, body)))
    source = tmp_path / "some.cpp"
    source.write_text("int x;")
    (cache := tmp_path / "ngn" / "lib").mkdir(parents=True)
    leave_partial(cache / "some.so")
    built = []
    together = [threading.Thread(target=lambda: built.append(build_kernel(source))) for _ in range(6)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert log.read_text().splitlines() == ["call"]
    assert len(built) == 6
    assert not list(tmp_path.rglob("*.part"))
    assert set(built) == {build_kernel(source)}
    assert built[0].read_text() == "library\n"
    source.write_text("int y;")
    changed = build_kernel(source)
    (tmp_path / "some.h").write_text("int z;")
    assert len({built[0], changed, build_kernel(source)}) == 3
    assert log.read_text().splitlines() == ["call"] * 3


@needs_kernel
@pytest.mark.parametrize("damage", ["cut", "zeroed", "empty", "without its digest", "with another digest"])
def test_a_damaged_library_is_compiled_again(damage, tmp_path, monkeypatch):
    """Loading half a library would end the process with SIGBUS."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "some.cpp"
    source.write_text('extern "C" int answer() { return 42; }')
    path = build_kernel(source)
    whole, digest = path.read_bytes(), path.with_suffix(".sha256")
    if "digest" in damage:
        digest.unlink() if damage.startswith("without") else digest.write_text("0" * 64)
    else:
        path.write_bytes({"cut": whole[: len(whole) // 2], "zeroed": bytes(len(whole)), "empty": b""}[damage])
    loaded = load_library(source)
    assert loaded.answer() == 42
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest.read_text()


def test_a_struct_follows_its_declaration():
    made = struct_type("int64_t n, count; double rate; const float *x, *y; int64_t *touched", 48)
    assert [(name, kind.__name__) for name, kind in made._fields_] == [
        ("n", "c_long"), ("count", "c_long"), ("rate", "c_double"),
        ("x", "c_void_p"), ("y", "c_void_p"), ("touched", "c_void_p"),
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="has 52 bytes, but its declaration 48"):
        struct_type("int64_t n, count; double rate; const float *x, *y; int64_t *touched", 52)
    with pytest.raises(RuntimeError, match="unknown type: float rate"):
        struct_type("int64_t n; float rate", 16)


@needs_kernel
@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.cpp")])
def test_values_must_match_the_fields_of_the_struct(name):
    """A missing field would be a null pointer."""
    compiled = library(name)
    with pytest.raises(RuntimeError, match=r"differ in \[.*'objective', .*'surplus'"):
        compiled.call("ngn_bank1d_advance", {"replicas": 1, "surplus": torch.zeros(3)})
