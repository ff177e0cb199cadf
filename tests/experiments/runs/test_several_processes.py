"""Several processes of torchrun train one run: results as in one process, killed and resumed by any number of them."""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import programs
import pytest
import two_processes
from waiting import until

from experiments.blocks import ConfigError
from experiments.cli import machine
from experiments.cli.expand import expand
from experiments.cli.rewrite import rewrite
from experiments.config.compose import compose
from experiments.paths import ROOT

pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[language]'")

CASES = [
    ("llama", "prune", "float32", None),
    ("neox", "prune", "float32", None),
    ("llama", "lora", "bfloat16", None),
    ("llama", "lora", "float32", [0, 2, 1, 0]),
]
"""Family, gate, dtype, and the ranks of a fixed model; two maps of it have no term."""
SHARED = ["task=wikisql_easy", "profile=smoke", "phases=[grown]", "train.batch=4", "train.accumulate=2"]


def environment(rank: int, port: int = 0) -> dict[str, str]:
    """What torchrun tells each of two processes."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    return {name: str(n) for name, n in numbers.items()} | {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"}


def trained(folder: Path, family: str, gate: str, dtype: str, ranks: list[int] | None) -> dict[str, Any]:
    """What a phase of a small model gives, in this process or with the others of its group."""
    import torch

    import experiments.tasks.language.task as language
    from experiments.language.base import PretrainedModel, tiny_base
    from experiments.language.packing import use_by_sequence
    from experiments.runs.phases import PhaseSetup, train_phase
    from experiments.runs.run_files import Run
    from experiments.runs.stack import Stack
    from experiments.tasks import make_task

    cpu = torch.device("cpu")
    tiny = tiny_base(cpu)
    model = copy.deepcopy(tiny.model)
    if family == "neox":
        from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

        torch.manual_seed(0)
        shape = GPTNeoXConfig(
            vocab_size=len(tiny.tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=48, max_position_embeddings=1024,
        )  # fmt: skip
        model = GPTNeoXForCausalLM(shape)
    model.to(getattr(torch, dtype)).requires_grad_(False).eval()
    use_by_sequence(model)
    base = PretrainedModel(model, tiny.tokenizer, tiny.info, tiny.end)
    keys: dict[str, Any] = {"gate.target": "both", "gate.backbone": "updated"} if gate == "prune" else {}
    keys |= {"train.steps": 8, "train.batch": 4, "train.accumulate": 2, "train.clip": 0.5, "progress": "never"}
    config = compose({"task": "wikisql_easy", "gate": gate, "profile": "smoke"}, keys)
    phase_name = "grown" if ranks is None else "fixed"
    saved = folder / f"{family}-{gate}-{phase_name}.safetensors"
    setup = PhaseSetup(phase_name, saved.with_suffix(""), count=ranks, keep=[saved])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language, "tiny_base", lambda device: base)
        phase = train_phase(Stack((Run.of(config),)), make_task(config, cpu), cpu, setup)
    result = phase.results[0].json()
    return {
        "t": torch.tensor(result.get("t") or [], dtype=torch.float64),
        "scores": torch.tensor([result["truncated"][name] for name in ("nats", "perplexity")], dtype=torch.float64),
        "loss": torch.from_numpy(phase.curves[0]["loss"]),
        "sizes": [result["count"], result["parameters"]["deployed"]],
    }


def shared(rank: int, folder: Path) -> list[dict[str, Any]]:
    os.environ |= environment(rank)
    return [trained(folder, *case) for case in CASES]


@pytest.mark.slow(seconds=30)
def test_two_processes_end_as_one_does(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    (several := tmp_path / "several").mkdir()
    both = two_processes.results(tmp_path, shared, several)
    for number, case in enumerate(CASES):
        expected = trained(tmp_path / "alone", *case)
        for result in (part[number] for part in both):
            assert result["sizes"] == expected["sizes"]
            exact = case[2] == "float32"
            for name in ("t", "loss", "scores"):
                torch.testing.assert_close(
                    result[name], expected[name], rtol=1e-5 if exact else 2e-3, atol=1e-7 if exact else 1e-4
                )
        file_name = f"{case[0]}-{case[1]}-{'grown' if case[3] is None else 'fixed'}.safetensors"
        first, second = (load_file(tmp_path / d / file_name) for d in ("several", "alone"))
        assert first.keys() == second.keys()
        for name, value in second.items():
            torch.testing.assert_close(first[name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_what_processes_cannot_share_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(0).items():
        monkeypatch.setenv(name, value)

    def refused(*words: str) -> str:
        with pytest.raises(ConfigError) as said:
            machine.check(expand(rewrite([*words])), words)
        return str(said.value)

    machine.check(expand(rewrite(SHARED)), SHARED)
    assert "one run at a time, but this command has 3 jobs" in refused(*SHARED, "seed=0..2")
    assert "task=mnist trains in one process" in refused("task=mnist", "profile=smoke")
    assert "method=sora trains in one process" in refused(*SHARED, "method=sora", "method.target=2")
    assert "wanda scores the whole model" in refused(*SHARED, "gate=prune", "gate.rank_by=wanda")
    said = refused("task=wikisql_easy", "profile=smoke", "train.batch=8")
    assert "train.accumulate=1 micro-batches cannot be shared by 2 processes" in said
    assert "train.batch=4 train.accumulate=2 has as many questions in a step" in said


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@pytest.mark.slow(seconds=60)
def test_killed_and_resumed_by_other_numbers_of_processes(tmp_path: Path) -> None:
    """Two are asked to stop by a signal to one of them; one goes on and is killed; torchrun ends it with two."""
    line = [*SHARED, "gate=prune", "train.steps=24", "checkpoint_seconds=1e-9", "progress=never"]
    env = {**os.environ, "NGN_OUTPUT": str(tmp_path / "output"), "OMP_NUM_THREADS": "1"}
    log = tmp_path / "log"

    def start(*more: str, **others: str) -> programs.Program:
        words = [*line, f"results={tmp_path / 'results'}", *more]
        return programs.start(ROOT / "run.py", *words, cwd=ROOT, env=env | others, out=log, err=log)

    def saved() -> int:
        names = (path.stem for path in (tmp_path / "output" / "checkpoints").glob("*/grown/step-*.json"))
        return max((int(name.removeprefix("step-")) for name in names), default=0)

    port = free_port()
    both = [start(**environment(rank, port)) for rank in (0, 1)]
    until(lambda: saved() > 2 or both[0].poll() is not None, "a checkpoint of two processes")
    both[1].send_signal(signal.SIGTERM)
    assert [program.wait() for program in both] == [128 + signal.SIGTERM] * 2, log.read_text()
    assert "all progress is saved" in log.read_text()
    stopped = saved()
    alone = start()
    until(lambda: saved() > stopped + 2 or alone.poll() is not None, "a checkpoint of one process")
    alone.send_signal(signal.SIGKILL)
    assert alone.wait() == -signal.SIGKILL, log.read_text()
    words = ["--standalone", "--nproc-per-node", "2", "run.py", *line, f"results={tmp_path / 'results'}"]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("grown t = ") == 1, "the first process reports"
    (path,) = (tmp_path / "results").rglob("*.json")
    record = json.loads(path.read_text())
    assert (record["execution"]["processes"], record["execution"]["resumed"]) == (2, 2)

    whole = programs.run(ROOT / "run.py", *line[:-2], f"results={tmp_path / 'whole'}", cwd=ROOT, env=env)
    assert whole.returncode == 0, whole.stderr
    (other,) = (tmp_path / "whole").rglob("*.json")
    expected, found = (each["phases"]["grown"] for each in (json.loads(other.read_text()), record))
    assert found["count"] == expected["count"]
    assert found["t"] == pytest.approx(expected["t"], rel=1e-5)
    assert found["truncated"] == pytest.approx(expected["truncated"], rel=1e-3)
