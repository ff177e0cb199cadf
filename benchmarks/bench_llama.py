"""Measure adaptation of Llama-3-8B's shapes on a GPU: training step, peak memory, and answer tokens per second.

    python benchmarks/bench_llama.py [--quick] [--device cpu]

The weights are random bfloat16, which cost the same as trained ones. A step has eight packed questions of 160 tokens,
half of which are predicted. Task, learners and trainer are the suite's, with the settings of gate=lora, adapter and
prune. Pruning covers heads and neurons with frozen weights, and with all weights trained, where
``train.optimizer=adamw8bit`` and ``model.gradient_checkpointing=true`` bring them onto a card of 80 GB. All components
are open.

The rival of a training step is peft LoRA of rank 16 on q and v, with the same optimiser and loss. The rival of the
answers is the plain model; answers are greedy, for 32 prompts at once. Deployed pruned models keep half of all heads
and neurons, adapted ones half of their components.

``--quick`` uses four layers of a thousandth of the size; ``--device cpu`` tries the script.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
from timing import OnStep, ends_of_steps
from transformers import LlamaConfig, LlamaForCausalLM

from experiments.config.compose import compose
from experiments.core.task import DataInfo
from experiments.core.training import Train
from experiments.models.trainer import StudyTrainer
from experiments.runs.host import peak_mib
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks.language.base import PretrainedModel
from experiments.tasks.language.generation import generate_greedy
from experiments.tasks.language.packing import pack, token_losses, use_by_sequence
from experiments.tasks.language.task import AdaptationTask
from ngn.learner import Learner
from ngn.methods.batch import place
from ngn.methods.ngn import CountGate
from ngn.train.batches import FullBatches, Split

TOKENS = 160
"""Tokens of a question with its answer, half of which are the answer."""
FULL = {"num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14_336, "vocab_size": 128_256}
SMALL = {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 448, "vocab_size": 4096}
GATES: dict[str, dict[str, Any]] = {
    "NGN-LoRA, K = 16": {"gate": "lora"},
    "NGN adapters, K = 16": {"gate": "adapter"},
    "NGN pruning, frozen weights": {"gate": "prune", "gate.target": "both", "gate.backbone": "frozen"},
    "NGN pruning, all weights": {
        "gate": "prune", "gate.target": "both", "gate.backbone": "updated", "train.optimizer": "adamw8bit",
        "model.gradient_checkpointing": True,
    },
}  # fmt: skip
TRAINED, ROWS, NEW, PROMPT = 8, 32, 64, 60
"""Questions per step; prompts answered at once; tokens per answer and per prompt."""


def llama(shape: dict[str, Any], device: torch.device) -> PretrainedModel:
    """Make the frozen model; no token ends an answer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **shape, num_attention_heads=32, num_key_value_heads=8, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500_000.0}, dtype="bfloat16",
    )  # fmt: skip
    with device:
        model: Any = LlamaForCausalLM(config)
    model.to(torch.bfloat16).requires_grad_(False).eval()
    use_by_sequence(model)
    tokenizer: Any = SimpleNamespace(decode=lambda *_, **__: "")
    return PretrainedModel(model, tokenizer, DataInfo("random", "", "made here"), (-1,))


class Questions(AdaptationTask):
    """The suite's task on synthetic questions."""

    def __init__(self, base: PretrainedModel, device: torch.device) -> None:
        self.base, self.device, self.home = base, device, device
        source, asked = torch.Generator().manual_seed(1), TOKENS // 2
        ids = torch.randint(base.model.config.vocab_size, (ROWS, TOKENS), generator=source).tolist()
        self.prompts = [row[:PROMPT] for row in ids]
        self.batch = pack([(row[:asked], row[asked:]) for row in ids[:TRAINED]], device)

    def samples(self, train: Train) -> int:
        """The number of samples; a training has more steps than are timed."""
        return 10_000


def learned(task: Questions, gate: dict[str, Any]) -> tuple[Learner, Callable[[int], float]]:
    """Return a learner with all components open, and a function that trains it and returns seconds per step."""
    choices = {"task": "wikisql_easy", "model": "llama3_8b", "gate": gate["gate"]}
    settings = {key: value for key, value in gate.items() if key != "gate"}
    shape = task.base.model.config
    config = compose(choices, settings | {"model.ffn": shape.intermediate_size, "gate.layers": shape.num_hidden_layers})
    assert config.model is not None
    stack, task.plan, task.recomputes = Stack.of(config), config.train, config.model.gradient_checkpointing
    learner = learner_of(stack, task)
    assert isinstance(learner, Learner)
    learner.to(task.device)
    set_boundaries(learner, 1.0)
    plan = plan_of(stack, task.samples(config.train))

    def train(on_step: OnStep) -> None:
        batches = FullBatches(Split(task.batch, torch.empty(0)))
        StudyTrainer(learner, batches, task.loss, plan, progress="never", on_step=on_step).fit()

    return learner, partial(seconds, train, task.device)


def seconds(train: Callable[[OnStep], None], device: torch.device, steps: int) -> float:
    """Return the median seconds of a step, after the first."""
    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    ends = ends_of_steps(train, lambda step, _: step > steps, wait)
    return statistics.median(b - a for (_, a), (_, b) in pairwise(ends))


def set_boundaries(learner: Learner, part: float) -> None:
    """Move the boundaries so that this fraction of all components is retained."""
    for axis in learner.axes:
        assert isinstance(axis.capacity, CountGate)
        gate, count = axis.capacity, max(1, round(part * axis.capacity.K))
        place([gate], torch.tensor([count - gate.smallest_count + 1e-4], dtype=torch.float64), gate.beta[None])


def peft_lora(task: Questions) -> Callable[[int], float]:
    """Return a function that trains peft's LoRA of rank 16 and returns seconds per step."""
    from peft import LoraConfig, get_peft_model

    settings = LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model: Any = get_peft_model(task.base.shared_copy().train(), settings)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=2e-3, fused=True)

    def train(on_step: OnStep) -> None:
        for number in itertools.count(1):
            token_losses(model, task.batch).mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            on_step(number)

    return partial(seconds, train, task.device)


def answered(model: Callable[..., Any], task: Questions) -> float:
    """Return answer tokens per second over all prompts."""
    generate_greedy(model, task.base, task.prompts, 2, rows=ROWS)
    began = time.perf_counter()
    generate_greedy(model, task.base, task.prompts, NEW, rows=ROWS)
    return ROWS * NEW / (time.perf_counter() - began)


def main(arguments: list[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    given = parser.parse_args(arguments)
    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device here; --device cpu tries the script")
    quick, device = given.quick, torch.device(given.device)
    warnings.simplefilter("ignore", FutureWarning)
    task, steps = Questions(llama(SMALL if quick else FULL, device), device), 3 if quick else 20
    size = sum(p.numel() for p in task.base.model.parameters()) / 1e9
    print(f"{size:.2f} billion parameters in bfloat16, {TRAINED} questions of {TOKENS} tokens a step")
    print(f"  {'training':34} {'ms / step':>10} {'x peft':>8} {'peak GB':>9}")
    speeds = {"the model by itself": answered(task.base.model, task)}
    rival = 0.0
    for name, gate in {"peft LoRA, r = 16": None, **GATES}.items():
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if gate is not None and gate.get("train.optimizer") == "adamw8bit" and find_spec("torchao") is None:
            print(f"  {name:34} not measured: pip install -e '.[eightbit]'")
            continue
        learner, train = (None, peft_lora(task)) if gate is None else learned(task, gate)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        lasted = train(steps)
        rival, peak = rival or lasted, peak_mib(device) * 2**20 / 1e9
        print(f"  {name:34} {lasted * 1e3:10.1f} {lasted / rival:8.2f} {peak:9.1f}", flush=True)
        if learner is not None:
            set_boundaries(learner, 0.5)
            speeds[f"{name}, half of it deployed"] = answered(learner.deploy(share_frozen=True), task)
        del learner, train
    print(f"  {f'{ROWS} answers of {NEW} tokens':48} {'tokens / s':>10} {'x the model':>12}")
    alone = next(iter(speeds.values()))
    for name, speed in speeds.items():
        print(f"  {name:48} {speed:10,.0f} {speed / alone:12.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
