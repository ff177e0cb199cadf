"""Building, caching and calling the kernels' libraries; which trainings a kernel supports, and why not others."""

import hashlib
import logging
import os
import select
import subprocess
import threading

import pytest
import torch
from kernel_cases import BANK, LOSS, bank, chain, fixed_bank, needs_kernel, plan, stack_of
from waiting import leave_partial

from experiments.methods.gates.decay import DecayGate
from experiments.methods.gates.ste import StraightThrough
from experiments.models.kernels import libraries
from experiments.models.kernels.libraries import FOLDER, BuildError, build_kernel, library, load_library, struct_type
from experiments.models.kernels.supported import unsupported
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel, StackedLinear
from experiments.tasks.base import MiniBatches
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE
from ngn.train.batches import FullBatches, Split


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
        libraries._run([str(fake_compiler(tmp_path, f'sleep 1000 > "{fifo}" &\nwait'))])
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


class OwnSum(OrderedSum):
    """A subclass that no kernel supports."""


class OwnLearner(Learner):
    """A subclass that no kernel supports."""


def blocks(hidden):
    return MLPBank([1, *hidden, 1], 4, 0)


def model(hidden, head=None):
    return Learner(ParallelModel(OrderedSum(blocks(hidden), CountGate(4)), head))


def frozen():
    learner = bank(1)
    learner.axes[0].bank.get_parameter("b1").requires_grad_(False)
    return learner


def absolute(output, target):
    return (output - target).abs().mean((-2, -1))


SPLIT = BANK.batches().split
NORMALISED = ParallelModel(OrderedSum(blocks([8, 8]), DecayGate(4, normalise=True, learn_r=False)))
CASES = [
    ({"learner": model([8, 8], StackedLinear(1, 1, 0))}, "one ordered sum and no head"),
    ({"learner": model([8, 16])}, "MLP blocks of the sizes"),
    ({"learner": model([65, 65])}, "width 65"),
    ({"learner": Learner(ParallelModel(OwnSum(blocks([8, 8]), CountGate(4))))}, "OwnSum"),
    ({"learner": OwnLearner(bank(1).model)}, "OwnLearner"),
    ({"learner": Learner(ParallelModel(OrderedSum(blocks([8, 8]), StraightThrough(4))))}, "StraightThrough"),
    ({"learner": Learner(NORMALISED)}, "DecayGate"),
    ({"learner": frozen()}, "trainable parameters"),
    ({"learner": bank(1).double()}, "body in float32"),
    ({"learner": fixed_bank(1, K=0)}, "no blocks"),
    ({"learner": chain(1, width=65)}, "at most 64 units"),
    ({"learner": stack_of(1, [CountGate(3), CountGate(3, delta=-0.5)])}, "same schedules for all groups"),
    ({"batches": MiniBatches(SPLIT, 64, 0, lambda x: x)}, "full batches"),
    ({"batches": FullBatches(Split(SPLIT.inputs.double(), SPLIT.targets.double()))}, "inputs and targets"),
    ({"loss": Supervised(absolute)}, "mean squared error"),
    ({"plan": plan(5, accumulate=2)}, "micro-batches"),
    ({"plan": plan(5, optimizer="adamw")}, "only train.optimizer=adam"),
    ({"plan": plan(5, warmup=0.1)}, "without train.warmup"),
    ({"plan": plan(5, autocast="bf16")}, "autocast"),
    ({"plan": plan(5, lr_boundary_shape=COSINE)}, "learning rate of the boundary"),
]


@pytest.mark.parametrize(("changed", "reason"), CASES)
def test_unsupported_trainings_are_refused(changed, reason):
    given = {"learner": bank(1), "batches": BANK.batches(), "loss": LOSS, "plan": plan(5)} | changed
    said = unsupported(**given)
    assert reason in said
    with pytest.raises(ValueError, match="no compiled kernel can do this training"):
        KernelTrainer(*given.values(), progress="never").fit()
