"""Measure how fast a CPU adapts a language model: tokens per second of packed low-rank terms and of peft's Trainer.

    python benchmarks/bench_lora.py [--steps N] [--rounds N] [--compile] [--random]

WikiSQL-easy questions on SmolLM2-135M, eight per step, one thread, float32. The usual way is peft's LoRA of rank 16 on
the query and value maps under transformers' Trainer: sequences are padded and logits computed everywhere. The other
variants pack the same questions and compute logits only at targets. Variants take turns in one process; the median
over rounds counts. Tokens are those of questions and answers, without padding. On a shared machine, compare tokens per
second of processor time rather than of wall time.

``--random`` uses random weights of the same shape and synthetic questions. It needs no data and has the same speed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed

import ngn
from experiments.data import data_root, synthetic_texts, texts
from experiments.language.base import PretrainedModel, load_base, tiny_base
from experiments.language.corpora import wikisql
from experiments.language.packing import Tokens, pack, token_losses, use_by_sequence
from experiments.language.prompts import prompt_ids, target_ids
from experiments.language.settings import BaseModel

CPU = torch.device("cpu")
RANK, BATCH = 16, 8
Steps = Callable[[list[list[Tokens]]], None]
"""Runs one training step per batch."""


def smollm2(random: bool) -> tuple[PretrainedModel, list[Tokens]]:
    """Return the model and tokenised questions."""
    if random:
        from transformers import LlamaConfig, LlamaForCausalLM

        shape = LlamaConfig(
            vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, tie_word_embeddings=True,
        )  # fmt: skip
        tiny = tiny_base(CPU)
        base = PretrainedModel(LlamaForCausalLM(shape).requires_grad_(False), tiny.tokenizer, tiny.info, tiny.end)
        use_by_sequence(base.model)
        source = synthetic_texts.TEXTS["wikisql"]
    else:
        base = load_base(BaseModel(name="smollm2_135m", data="smollm2"), data_root(None), CPU)
        source = texts.SETS["wikisql"].load_data(data_root(None))
    tokenizer = base.tokenizer
    train = wikisql.make_corpus(source, "easy").train
    return base, [(prompt_ids(tokenizer, e.prompt, "plain"), target_ids(tokenizer, e.target, "plain")) for e in train]


def stepped(model: nn.Module, loss: Callable[..., torch.Tensor]) -> Steps:
    """Return a function that makes plain AdamW steps on the trained parameters."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    model.train()

    def steps(batches: list[list[Tokens]]) -> None:
        for batch in batches:
            loss(model, pack(batch, CPU)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    return steps


def peft_model(base: PretrainedModel) -> Any:
    from peft import LoraConfig, get_peft_model

    targets = ["q_proj", "v_proj"]
    return get_peft_model(
        base.shared_copy(), LoraConfig(r=RANK, lora_alpha=RANK, target_modules=targets, task_type="CAUSAL_LM")
    )


def with_trainer(base: PretrainedModel) -> Steps:
    """Train peft under transformers' Trainer, as documented: padded batches, labels of -100 on the prompts."""
    from transformers import Trainer, TrainingArguments

    model = peft_model(base)
    model.set_attn_implementation("sdpa")
    pad = base.end[0]

    def collate(batch: list[Tokens]) -> dict[str, torch.Tensor]:
        width = max(len(prompt) + len(target) for prompt, target in batch)
        rows = [(prompt, target, width - len(prompt) - len(target)) for prompt, target in batch]
        return {
            "input_ids": torch.tensor([[*p, *t, *[pad] * n] for p, t, n in rows]),
            "attention_mask": torch.tensor([[1] * (len(p) + len(t)) + [0] * n for p, t, n in rows]),
            "labels": torch.tensor([[-100] * len(p) + t + [-100] * n for p, t, n in rows]),
        }

    def steps(batches: list[list[Tokens]]) -> None:
        arguments = TrainingArguments(
            per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=1e-4, save_strategy="no",
            report_to=[], logging_strategy="no", disable_tqdm=True, use_cpu=True, remove_unused_columns=False,
        )  # fmt: skip
        questions = [question for batch in batches for question in batch]
        Trainer(model=model, args=arguments, train_dataset=questions, data_collator=collate).train()

    return steps


def with_ngn(base: PretrainedModel, compiled: bool) -> Steps:
    """Attach this library's low-rank terms, all 16 open."""
    model = base.shared_copy()
    ngn.attach_low_rank(model, base.maps(), lambda group: ngn.CountGate(RANK, t0=RANK - 1.0, delta=-0.5), seed=0)
    learner = ngn.CapacityLearner(model)
    learner.set_progress(0.0)
    if compiled:
        learner.forward = torch.compile(learner.forward, dynamic=True)  # type: ignore[method-assign]
    return stepped(learner, token_losses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4, help="of a variant in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="torch.compile as a further variant; takes minutes")
    parser.add_argument("--random", action="store_true", help="random weights, made-up questions")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    base, questions = smollm2(given.random)
    variants: dict[str, Steps] = {
        "peft, Trainer, padded": with_trainer(base),
        "peft, packed": stepped(peft_model(base), token_losses),
        "ngn, packed": with_ngn(base, compiled=False),
    }
    if given.compile:
        variants["ngn, packed, compiled"] = with_ngn(base, compiled=True)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    size = BATCH * given.steps
    for number in range(given.rounds + 1):
        part = questions[number * size : (number + 1) * size]
        batches = [part[at : at + BATCH] for at in range(0, size, BATCH)]
        tokens = sum(len(prompt) + len(target) for prompt, target in part)
        for name, steps in variants.items():
            clock, processor = time.monotonic(), time.process_time()
            steps(batches if number else batches[:1])  # one untimed step before the rounds
            if number:
                rates[name].append((tokens / (time.process_time() - processor), tokens / (time.monotonic() - clock)))
    usual = rates["peft, Trainer, padded"]
    print(f"{'':24}{'tokens per processor second':>28}{'per second':>12}{'ratio':>8}")
    for name, measured in rates.items():
        ratio = statistics.median(mine[0] / theirs[0] for mine, theirs in zip(measured, usual, strict=True))
        busy, wall = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"{name:24}{busy:28.1f}{wall:12.1f}{ratio:8.2f}")


if __name__ == "__main__":
    main()
