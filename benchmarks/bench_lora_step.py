"""Measure the cost of learned ranks: a training step of NGN's low-rank terms against plain peft LoRA of rank 16.

    python benchmarks/bench_lora_step.py [--quick] [--rounds N]

The model is a Llama of SmolLM2-135M's shape with random weights, which cost the same as trained ones. Terms are on q
and v, with K = 16 and one boundary each. Questions are packed, and only answers have logits. Both sides train the same
batch with Adam, on one thread. Their steps take turns in one process: the result is the median ratio of processor
seconds, and its median over rounds. Peak memory is that of a process of its own. ``--quick`` has four layers and few
tokens, where what a boundary costs shows most.
"""

from __future__ import annotations

import itertools
import statistics
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from timing import in_turns, measure, options, ratio, seconds
from transformers import LlamaConfig, LlamaForCausalLM

import ngn
from experiments.tasks.language.packing import Packed, pack, token_losses, use_by_sequence

KINDS = ("ngn", "peft")


def base(layers: int, dtype: str) -> Any:
    """Make a frozen model of SmolLM2-135M's shape."""
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )  # fmt: skip
    model = LlamaForCausalLM(shape).requires_grad_(False).to(getattr(torch, dtype))
    use_by_sequence(model)
    return model


def batch(questions: int) -> Packed:
    """Make questions of 60 tokens with answers of 25."""
    source = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 49_152, (questions, 85), generator=source).tolist()
    return pack([(row[:60], row[60:]) for row in ids], torch.device("cpu"))


def ours(model: Any, questions: Packed) -> Callable[[], None]:
    """Return a function that makes one step like :class:`~ngn.train.trainer.Trainer`."""
    sizes = {f"model.layers.*.self_attn.{name}": ngn.Rank(16) for name in ("q_proj", "v_proj")}
    learner = ngn.learn_sizes(model, sizes, lambda0=1e-3, beta=(4.0, 12.0), frozen=True)
    boundaries = {"params": learner.controller_parameters(), "lr": 5e-2}
    groups: list[dict[str, Any]] = [{"params": learner.body_parameters()}, boundaries]
    optimizer = torch.optim.Adam(groups, lr=2e-3, fused=True)

    numbers = itertools.count()

    def step() -> None:
        number = next(numbers)
        learner.set_progress(number / 1000)
        learner.before_step(number)
        token_losses(learner, questions).mean().backward()
        learner.penalty().backward()
        optimizer.step()
        learner.after_step(number)
        optimizer.zero_grad(set_to_none=True)

    return step


def plain(model: Any, questions: Packed) -> Callable[[], None]:
    """Return a function that makes one step of peft's LoRA."""
    from peft import LoraConfig, get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        adapted = get_peft_model(
            model, LoraConfig(r=16, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        )
    optimizer = torch.optim.Adam([p for p in adapted.parameters() if p.requires_grad], lr=2e-3, fused=True)

    def step() -> None:
        token_losses(adapted, questions).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measured(request: dict[str, Any], ready: Callable[[], None]) -> dict[str, float]:
    """Measure in one process: both kinds in turns, or the peak memory of one."""
    each = []
    for kind in request["kinds"]:
        model = base(request["layers"], request["dtype"]).train()
        each.append((ours if kind == "ngn" else plain)(model, batch(request["questions"])))

    ready()
    taken = [times[1:] for times in in_turns([partial(seconds, step) for step in each], request["steps"] + 1)]
    return {"seconds": statistics.median(taken[-1]), "ratio": ratio(taken[0], taken[-1])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    given = options("A step of NGN-LoRA beside one of plain peft LoRA.", arguments, measured)
    if given is None:
        return
    small, large = {"layers": 4, "questions": 2, "steps": 30}, {"layers": 30, "questions": 8, "steps": 5}
    print("| layers | tokens | type | peft, s of one core | NGN / peft, time | peak memory |")
    print("| ---: | ---: | --- | ---: | ---: | ---: |")
    for size in (small,) if given.quick else (small, large):
        for dtype in ("float32", "bfloat16"):
            request = {**size, "dtype": dtype}
            found = [measure(__file__, {"kinds": ["ngn", "peft"], **request}, 1, 1) for _ in range(given.rounds)]
            taken, ratio = (statistics.median(one[key] for one in found) for key in ("seconds", "ratio"))
            peaks = [measure(__file__, {"kinds": [kind], **request, "steps": 1}, 1, 1)["peak_mib"] for kind in KINDS]
            tokens = 85 * size["questions"]
            print(
                f"| {size['layers']} | {tokens} | {dtype} | {taken:.3f} | {ratio:.3f} | {peaks[0] / peaks[1]:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
