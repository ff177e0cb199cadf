"""Measure the memory of training steps of SmolLM2-135M's shapes on a CPU, beside the sums checked before a run.

    python benchmarks/bench_memory.py

The weights are random. A step has two questions of 160 tokens, half of which are predicted, as the sums take it
(``experiments/config/footprint.py``). Task, learners and trainer are the suite's. Each row is a process of its own.
Measured is the peak of its resident memory in two steps, less what it had after two steps of a tiny model.
``adamw8bit`` needs torchao and a C++ compiler.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from transformers import LlamaConfig, LlamaForCausalLM

from experiments.config.compose import compose
from experiments.config.footprint import ANSWER, TOKENS, footprint
from experiments.core.config import Config
from experiments.core.task import DataInfo
from experiments.core.training import Train
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks.language.base import PretrainedModel, tiny_base
from experiments.tasks.language.packing import pack, token_losses, use_by_sequence
from experiments.tasks.language.task import AdaptationTask
from ngn.train.batches import FullBatches
from ngn.train.optim import OptimizerKind, adam
from ngn.train.trainer import Trainer

BATCH, STEPS = 2, 2
SAVING = {"train.optimizer": "adamw8bit", "model.gradient_checkpointing": True}
RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(2**16)}
"""Environment in which glibc returns freed blocks above 64 KiB to the system at once, instead of keeping them."""
ROWS: dict[str, dict[str, Any]] = {
    "gate=lora": {"gate": "lora"},
    "gate=prune gate.backbone=frozen": {"gate": "prune", "gate.target": "both", "gate.backbone": "frozen"},
    "gate=prune, Adam in float32": {"gate": "prune", "gate.target": "both", "gate.backbone": "updated"},
    "gate=prune, saving": {"gate": "prune", "gate.target": "both", "gate.backbone": "updated", **SAVING},
}


class Questions(AdaptationTask):
    """The suite's task on two made-up questions, with the shapes and settings of ``config``."""

    def __init__(self, config: Config) -> None:
        model = config.model
        assert model is not None
        sizes: dict[str, Any] = {
            "vocab_size": model.vocab, "hidden_size": model.hidden, "intermediate_size": model.ffn,
            "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_dim, "tie_word_embeddings": True,
        }  # fmt: skip
        shape: Any = LlamaConfig(**sizes)
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(getattr(torch, model.dtype))
        weights: Any = LlamaForCausalLM(shape).requires_grad_(False).eval()
        torch.set_default_dtype(dtype)
        use_by_sequence(weights)
        tokenizer: Any = SimpleNamespace()
        self.base = PretrainedModel(weights, tokenizer, DataInfo("random", "", "made here"), (-1,))
        self.device = self.home = torch.device("cpu")
        self.plan, self.recomputes = config.train, model.gradient_checkpointing
        ids = torch.randint(model.vocab or 1, (BATCH, TOKENS)).tolist()
        asked = round(TOKENS * (1 - ANSWER))
        self.packed = pack([(row[:asked], row[asked:]) for row in ids], self.device)

    def samples(self, train: Train) -> int:
        """The number of samples; a training has more steps than are measured."""
        return 10_000


def resident(name: str) -> float:
    """Return ``VmRSS`` (now) or ``VmHWM`` (the peak) of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def warm_up(kind: OptimizerKind) -> None:
    """Take steps with a tiny model and the optimiser of a row, so that what these load and keep is not measured."""
    cpu = torch.device("cpu")
    model = copy.deepcopy(tiny_base(cpu).model).to(torch.bfloat16).requires_grad_(True)
    layer = torch.nn.Linear(256, 256, dtype=torch.bfloat16)
    optimizer = adam([*model.parameters(), *layer.parameters()], [], 1e-3, 1e-3, 0.0, kind=kind)
    for _ in range(2):
        loss = token_losses(model, pack([(list(range(40)), list(range(40)))], cpu)).mean()
        (loss + layer(torch.ones(1, 256, dtype=torch.bfloat16)).float().mean()).backward()
        optimizer.step()


def measure(row: str) -> tuple[float, float]:
    """Return the sum and the measured peak of a row, in bytes."""
    keys = dict(ROWS[row])
    choices = {"task": "wikisql_easy", "model": "smollm2_135m", "gate": keys.pop("gate")}
    config = compose(choices, keys | {"train.batch": BATCH, "model.dtype": "bfloat16"})
    phases = footprint(config, on_card=False)
    assert phases is not None
    warm_up(config.train.optimizer)
    before = resident("VmRSS")
    task, stack = Questions(config), Stack.of(config)
    learner = learner_of(stack, task)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    batches: Any = FullBatches(SimpleNamespace(inputs=task.packed, targets=None))  # type: ignore[arg-type]
    plan = replace(plan_of(stack, task.samples(config.train)), steps=STEPS)
    Trainer(learner, batches, task.loss, plan, weight=task.weight, progress="never").fit()
    return max(sum(phases[name].values()) for name in ("train", "update")), resident("VmHWM") - before


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or the two numbers of one row for the process that prints it."""
    words = sys.argv[1:] if arguments is None else arguments
    if words:
        print(*measure(words[0]))
        return 0
    print(
        "| training | sum, GB | measured, GB | measured / sum | freed blocks returned, GB | the same / sum |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for row in ROWS:
        cells = []
        for more in ({}, RETURNED):
            done = subprocess.run(
                [sys.executable, __file__, row], capture_output=True, text=True, env={**os.environ, **more}
            )
            if done.returncode:
                cells = [f"failed: {done.stderr.strip().splitlines()[-1]}"]
                break
            planned, peak = map(float, done.stdout.split()[-2:])
            cells = [*(cells or [f"{planned / 1e9:.2f}"]), f"{peak / 1e9:.2f}", f"{peak / planned:.2f}"]
        print(f"| {row} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
