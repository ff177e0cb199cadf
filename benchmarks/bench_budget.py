"""Measure what a training under a budget costs, beside the large model and the small one that it ends with.

    python benchmarks/bench_budget.py [--quick] [--rounds N]

Three models: the transformer and ResNet-20 of the study of rivals, and a small Llama. Inputs are random, one thread.

Trainings under budgets of 50 and 25 % of the parameters take turns, step by step, with the plain training of the large
model. Held-out batches of half the size judge. Times are processor seconds of all steps over those of the large model;
``learn_sizes`` and ``deploy``, which do not depend on the number of steps, have a column of their own. A step is
compared with one of the large model while all gates are open, and with one of the deployed model, as a plain module,
after the commit: medians of ratios within a round.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from timing import in_turns, measure, options, ratio, seconds
from torch import Tensor, nn

import ngn
from experiments.models.cifar_resnet import CifarResNet
from experiments.tasks.tinystories.task import Transformer
from ngn.sizes.base import Size

SHARES = (50, 25)
STEPS = 200
"""Steps of a training. Up to 256 changes of the sizes before the commit are spread over more steps in a longer one."""


@dataclass(frozen=True)
class Work:
    """A model to train on one batch, and its sizes; ``output`` gives what the loss is computed of."""

    title: str
    model: Callable[[], nn.Module]
    sizes: dict[str, Size]
    inputs: Tensor
    targets: Tensor
    output: Callable[[Any], Tensor] = lambda out: out


def transformer() -> Work:
    """The transformer of ``gate=units``, on 16 texts of 128 characters."""
    tokens = torch.randint(80, (16, 129))
    sizes: dict[str, Size] = {"layers.*.mlp": ngn.Width(64), "layers.*.attn": ngn.Heads()}
    return Work("Transformer, 2 layers of width 64", lambda: Transformer(80, 128), sizes, tokens[:, :-1], tokens[:, 1:])


def llama() -> Work:
    """A Llama of four layers with grouped queries, on 8 texts of 128 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=448, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    tokens = torch.randint(256, (8, 129))
    sizes: dict[str, Size] = {"model.layers.*.mlp": ngn.Width(32), "model.layers.*.self_attn": ngn.Heads()}
    make, words = lambda: LlamaForCausalLM(shape), (tokens[:, :-1], tokens[:, 1:])
    return Work("Llama, 4 layers of width 128", make, sizes, *words, lambda out: out.logits)


def resnet20() -> Work:
    """ResNet-20 on 64 images of 32 x 32 pixels."""
    sizes: dict[str, Size] = {"layer*.*.conv1": ngn.Channels(16)}
    images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    return Work("ResNet-20", lambda: CifarResNet(3, maps=True), sizes, images, labels)


WORKS = {"transformer": transformer, "llama": llama, "resnet20": resnet20}


class Training:
    """One training, step by step.

    Attributes:
        seconds, once: processor time of all steps so far, and of ``learn_sizes`` and ``deploy``.
    """

    def __init__(self, work: Work, steps: int, share: int | None = None, model: nn.Module | None = None) -> None:
        began = time.process_time()
        self.work, self.steps, self.done, self.seconds = work, steps, 0, 0.0
        if model is None:
            torch.manual_seed(0)
            model = work.model()
        self.model, self.learner = model.train(), None
        if share is not None:
            self.learner = ngn.learn_sizes(
                model, work.sizes, budget=ngn.Budget(parameters=f"{share}%"), example=work.inputs[:2]
            )
        body = model.parameters() if self.learner is None else self.learner.body_parameters()
        self.optimizer = torch.optim.AdamW(body, lr=1e-3)
        self.once = time.process_time() - began

    def step(self, progress: float | None = None) -> float:
        """Take a step, and return its processor time, s. ``progress`` holds the schedules in place."""
        passed = seconds(lambda: self._step(progress))
        self.seconds += passed
        return passed

    def _loss(self, rows: int) -> Tensor:
        out = self.work.output((self.model if self.learner is None else self.learner)(self.work.inputs[:rows]))
        return F.cross_entropy(out.flatten(0, -2), self.work.targets[:rows].flatten())

    def _step(self, progress: float | None) -> None:
        loss = self._loss(rows := len(self.work.inputs))
        if self.learner is not None:
            loss = loss + self.learner.penalty()
        self.optimizer.zero_grad()
        loss.backward()
        if self.learner is not None and (number := self.learner.held_out_batch(self.done)) is not None:
            self.learner.eval().judge(lambda part: self._loss(rows // 2), number)
            self.learner.train()
        self.optimizer.step()
        self.done += 1
        if self.learner is not None:
            self.learner.step(self.done / self.steps if progress is None else progress, self.optimizer)

    def deployed(self) -> nn.Module:
        """The model that a training under a budget ends with."""
        assert self.learner is not None
        began = time.process_time()
        small = self.learner.deploy(unsettled="allow")
        self.once += time.process_time() - began
        return small


def trainings(work: Work, steps: int, rounds: int) -> dict[str, float]:
    """Train the large model, and under each budget, in turns; then compare steps, each once without counting."""
    large, ours = Training(work, steps), {share: Training(work, steps, share) for share in SHARES}
    in_turns([each.step for each in (large, *ours.values())], steps)
    small = {share: one.deployed() for share, one in ours.items()}
    found = {f"whole {share}": one.seconds / large.seconds for share, one in ours.items()}
    found |= {f"once {share}": one.once for share, one in ours.items()}
    opened = Training(work, steps, SHARES[0])
    whole, gated = (each[1:] for each in in_turns([large.step, lambda: opened.step(1e-9)], rounds + 1))
    found["open"] = ratio(gated, whole)
    for share, one in ours.items():
        each: list[Callable[[], float]]
        each = [Training(work, steps, model=small[share]).step, functools.partial(one.step, 0.9), large.step]
        plain, committed, whole = (times[1:] for times in in_turns(each, rounds + 1))
        found |= {f"step {share}": ratio(committed, plain), f"small {share}": ratio(plain, whole)}
    return found


def measured(request: dict[str, Any], ready: Callable[[], None]) -> dict[str, float]:
    """Measure in one process."""
    torch.manual_seed(0)
    work = WORKS[request["work"]]()
    ready()
    return trainings(work, request["steps"], request["rounds"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    what = "What a training under a budget costs, beside the large model and the small one."
    given = options(what, arguments, measured)
    if given is None:
        return
    steps, rounds = (12, 3) if given.quick else (STEPS, 20)
    columns = (
        "model", "budget", "training x large", "goal", "once, s", "all open x large", "committed step x small",
        "small step x large",
    )  # fmt: skip
    print(f"| {' | '.join(columns)} |\n| --- {'| ---: ' * (len(columns) - 1)}|")
    for name in WORKS:
        request = {"work": name, "steps": steps, "rounds": rounds}
        each = [measure(__file__, request, 1, 1) for _ in range(given.rounds)]
        found = {key: statistics.median(one[key] for one in each) for key in each[0]}
        title = WORKS[name]().title
        for share, goal in zip(SHARES, (0.85, 0.65), strict=True):
            shown = [found[f"whole {share}"], goal, found[f"once {share}"], found["open"], found[f"step {share}"]]
            numbers = " | ".join(f"{value:.2f}" for value in [*shown, found[f"small {share}"]])
            print(f"| {title} | {share} % | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
