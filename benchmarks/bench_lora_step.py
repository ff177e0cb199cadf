"""Measure the cost of learned ranks: a training step of NGN's low-rank terms against plain peft LoRA of rank 16.

    python benchmarks/bench_lora_step.py [--quick] [--rounds N]

The model is a Llama of SmolLM2-135M's shape with random weights, which cost the same as trained ones. Terms are on q
and v, with K = 16 and one boundary each. Questions are packed, and only answers have logits. Both sides train the same
batch in float32 with Adam, on one thread, in separate processes that take turns. The result is the median over rounds
of the ratio of processor seconds.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from processes import Rate, measure, options
from transformers import LlamaConfig, LlamaForCausalLM

import ngn
from experiments.language.packing import Packed, pack, token_losses, use_by_sequence

KINDS = {"ngn": "NGN-LoRA, K = 16", "peft": "peft LoRA, r = 16"}


def base(layers: int) -> Any:
    """Make a frozen model of SmolLM2-135M's shape."""
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )  # fmt: skip
    model = LlamaForCausalLM(shape).requires_grad_(False)
    use_by_sequence(model)
    return model


def batch(questions: int) -> Packed:
    """Make questions of 60 tokens with answers of 25."""
    source = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 49_152, (questions, 85), generator=source).tolist()
    return pack([(row[:60], row[60:]) for row in ids], torch.device("cpu"))


def ours(model: Any, questions: Packed) -> Callable[[int], None]:
    """Return a function that makes one step like :class:`ngn.Trainer`."""
    names = [name for name, _ in model.named_modules() if name.endswith(("q_proj", "v_proj"))]
    gate = {"delta": -0.5, "t0": 0.1, "lambda0": 1e-3, "beta": (4.0, 12.0)}
    ngn.attach_low_rank(model, names, lambda number: ngn.CountGate(16, **gate), seed=0)  # type: ignore[arg-type]
    learner = ngn.CapacityLearner(model)
    boundaries = {"params": learner.controller_parameters(), "lr": 5e-2}
    groups: list[dict[str, Any]] = [{"params": learner.body_parameters()}, boundaries]
    optimizer = torch.optim.Adam(groups, lr=2e-3, fused=True)

    def step(number: int) -> None:
        learner.set_progress(number / 1000)
        learner.before_step(number)
        token_losses(learner, questions).mean().backward()
        learner.penalty().backward()
        optimizer.step()
        learner.after_step(number)
        optimizer.zero_grad(set_to_none=True)

    return step


def plain(model: Any, questions: Packed) -> Callable[[int], None]:
    """Return a function that makes one step of peft's LoRA."""
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        adapted = get_peft_model(
            model, LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        )
    optimizer = torch.optim.Adam([p for p in adapted.parameters() if p.requires_grad], lr=2e-3, fused=True)

    def step(number: int) -> None:
        token_losses(adapted, questions).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


@contextlib.contextmanager
def prepared(request: dict[str, Any]) -> Iterator[Rate]:
    """Measure in one process: the median of CPU seconds per step."""
    model, questions = base(request["layers"]), batch(request["questions"])
    step = (ours if request["kind"] == "ngn" else plain)(model.train(), questions)
    step(0)

    def timed() -> dict[str, float]:
        seconds = []
        for number in range(1, request["steps"] + 1):
            began = time.process_time()
            step(number)
            seconds.append(time.process_time() - began)
        return {"rate": 0.0, "seconds": statistics.median(seconds)}

    yield timed


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    given = options("A step of NGN-LoRA beside one of plain peft LoRA.", arguments, prepared)
    if given is None:
        return
    size = {"layers": 4, "questions": 2, "steps": 2} if given.quick else {"layers": 30, "questions": 8, "steps": 3}
    print(f"a step on {size['questions']} packed questions of 85 tokens, {size['layers']} layers, one thread")
    rounds: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for number in range(given.rounds):
        for kind in (*KINDS,) if number % 2 else (*KINDS,)[::-1]:
            rounds[kind].append(measure(__file__, {"kind": kind, **size}, 1, 1))
    for kind, label in KINDS.items():
        seconds, peak = (statistics.median(one[key] for one in rounds[kind]) for key in ("seconds", "peak_mib"))
        print(f"  {label:20} {seconds:8.3f} s of one core, peak {peak:7.0f} MiB")
    for key, what in (("seconds", "time"), ("peak_mib", "peak memory")):
        pairs = [a[key] / b[key] for a, b in zip(rounds["ngn"], rounds["peft"], strict=True)]
        print(f"  {what:20} {statistics.median(pairs):8.3f} times")


if __name__ == "__main__":
    main()
