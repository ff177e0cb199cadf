"""Works on text: a small Transformer from scratch, and a trained language model."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rivals.models import Transformer
from rivals.work import FOR_LANGUAGE, FOR_TRAINED, Settings, Workload, computing
from torch import Tensor, nn

import ngn
from experiments.config.compose import compose
from experiments.data import synthetic, synthetic_texts, texts
from experiments.data.tinystories import Characters, split_stories
from experiments.language.base import load_base, tiny_base
from experiments.language.perplexity import documents
from experiments.language.windows import TokenBatches
from ngn.confirmation import PARTS
from ngn.sizes.base import ByImportance, Size
from ngn.train.batches import Batches, HeldOutParts, Split

CONTEXT = 128
WITHOUT_WEIGHTS = ("uniform width", "even sizes", "even sizes, cut half-way", "shrunk to even sizes")
OF_IMAGES = ("Torch-Pruning", "Torch-Pruning, local", "Torch-Pruning, sparsity", "MorphNet", "BAR")


def text(scale: str, root: Path, **changes: Any) -> Workload:
    """A Transformer on the characters of TinyStories; every twentieth training story is for validation."""
    if scale == "tiny":
        train, test, info = synthetic.stories(train=400)
    else:
        data = texts.TINYSTORIES.load_data(root)
        train, test = (list(split_stories(data.parts[f"{part}.txt"])) for part in ("train", "valid"))
        info = data.info
    settings = {
        "tiny": Settings(steps=4, batch=2, held=200),
        "small": Settings(steps=400, batch=16, held=200_000, lr=3e-2, K=32, lr_boundary=0.4),
        "full": Settings(steps=10_000, batch=32, held=1_000_000, lr=1.5e-2, K=32),
    }[scale]
    settings = replace(settings, **changes)
    characters = Characters(train)
    kept = [story for at, story in enumerate(train) if at % 20]
    tokens, validation, final_text = (characters.mapped(part) for part in (kept, train[::20], test))

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())

    def score(model: nn.Module, final: bool) -> float:
        held = next_tokens(final_text if final else validation, settings.held, CONTEXT)
        pairs = zip(*(part.split(32) for part in held), strict=True)
        losses = torch.cat([F.cross_entropy(model(x).mT, y, reduction="none").flatten() for x, y in pairs])
        return float(losses.double().mean()) / math.log(2)

    def sizes(K: int | None, order: ByImportance) -> dict[str, Size]:
        return {"layers.*.mlp": ngn.Width(K, order), "layers.*.attn": ngn.Heads(order)}

    def model(width: float) -> nn.Module:
        return Transformer(len(characters), CONTEXT, width)

    def batches(seed: int) -> Batches:
        return TokenBatches(tokens, CONTEXT, settings.batch, seed)

    x, y = next_tokens(validation, settings.held, CONTEXT)
    judging = PARTS * max(1, settings.batch // 2)
    return Workload(
        "transformer", "bits per character", -1, settings, info, model, sizes, ("head",), x[: settings.batch], batches,
        loss, score, held_out=HeldOutParts(Split(x[:judging], y[:judging]), PARTS),
        meaningless=("MorphNet", *FOR_LANGUAGE, *FOR_TRAINED),
    )  # fmt: skip


def language(scale: str, root: Path, **changes: Any) -> Workload:
    """SmolLM2-135M on general text: part of its feed-forward units, then 60,000 tokens of healing.

    The text is the test part of WikiText-2, of which the beginning gives the final score and 16,384 tokens behind it
    the validation score; the training reads what comes then.
    """
    settings = {
        "tiny": Settings(steps=4, batch=2, held=200, before=0.0, K=4),
        "small": Settings(steps=6, batch=4, held=2_048, lr=1e-4, before=0.0, K=32),
        "full": Settings(steps=60, batch=4, held=16_384, lr=1e-4, before=0.0, K=32, autocast="bf16"),
    }[scale]
    settings = replace(settings, **changes)
    cpu = torch.device("cpu")
    if scale == "tiny":
        base, read, context = tiny_base(cpu), synthetic_texts.TEXTS["general"], 32
    else:
        model = compose({"task": "wikisql_easy", "gate": "prune", "model": "smollm2_135m"}).model
        assert model is not None
        base, read, context = load_base(model, root, cpu), texts.WIKITEXT2.load_data(root), 256
    ids = np.array(base.tokenizer("\n\n".join(documents(read)), add_special_tokens=False)["input_ids"])
    first, second, third = np.split(ids, [settings.held, 2 * settings.held])

    def cross_entropy(model: nn.Module, batch: tuple[Tensor, Tensor], reduction: str = "mean") -> Tensor:
        logits = model(input_ids=batch[0], use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), batch[1].flatten(), reduction=reduction)

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        with computing(settings):
            return cross_entropy(model, batch)

    def score(model: nn.Module, final: bool) -> float:
        x, y = next_tokens(first if final else second, len(first), context)
        parts = zip(x.split(4), y.split(4), strict=True)
        return float(sum(cross_entropy(model, pair, "sum").double() for pair in parts)) / y.numel()

    def whole(width: float) -> nn.Module:
        if width != 1:
            raise ValueError("trained weights are of the whole width")
        made: nn.Module = copy.deepcopy(base.model).float().requires_grad_(True)
        return made

    def sizes(K: int | None, order: ByImportance) -> dict[str, Size]:
        return {"model.layers.*.mlp": ngn.Width(K, order)}

    def batches(seed: int) -> Batches:
        return TokenBatches(
            third[: settings.batch * context * settings.steps + 2 * context], context, settings.batch, seed
        )

    example = next_tokens(second, settings.batch * context + 1, context)[0]
    apart = sum(p.numel() for name, p in base.model.named_parameters() if ".mlp." not in name)
    return Workload(
        "smollm2", "nats per token", -1, settings, read.info, whole, sizes, (), example, batches, loss, score,
        outside=apart, order="wanda", base=base.info, meaningless=WITHOUT_WEIGHTS + OF_IMAGES,
    )  # fmt: skip


def next_tokens(tokens: np.ndarray, held: int, context: int) -> tuple[Tensor, Tensor]:
    """Windows of the first ``held`` tokens and the tokens that follow, int64 [n, context] each."""
    n = (min(held, len(tokens)) - 1) // context
    at = torch.from_numpy(tokens[: n * context + 1].astype(np.int64))
    return at[:-1].view(n, context), at[1:].view(n, context)
