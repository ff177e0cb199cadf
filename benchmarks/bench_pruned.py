"""Measure a pruned language model against the dense one: parameters, memory, prefill and decoding.

    python benchmarks/bench_pruned.py FOLDER ... [--dense MODEL] [--threads N] [--rounds N] [--dtype float32]
    python benchmarks/bench_pruned.py --shape smollm2 [--keep 0.5] [--round-to 64]

FOLDER comes from scripts/export_model.py, in either form. MODEL is the pretrained model: a folder, or a name on the
hub. With --shape, no files are needed: the model is a Llama of that shape with random weights. Its layers keep about
the fraction --keep of their neurons, in multiples of --round-to; neighbouring layers differ.

Prefill is the forward pass of one prompt; decoding is one further token with the cache. Models take turns. The result
is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import ngn
from experiments.language.pruned_files import load_compact, pad_layers

PROMPT, TOKENS = 256, 32
"""Tokens of a prompt, and tokens decoded after it."""


def made(keep: float, step: int) -> dict[str, Any]:
    """Make a dense model of SmolLM2-135M's shape, and its pruned form as compact and as padded model."""
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
    )  # fmt: skip
    dense = LlamaForCausalLM(shape).requires_grad_(False).eval()
    whole = 1536 // step
    counts = [max(1, min(whole, round(keep * whole) + whole * (layer % 3 - 1) // 8)) for layer in range(30)]
    sizes: dict[str, Any] = {f"model.layers.{layer}.mlp": ngn.Width(whole) for layer in range(30)}
    left = dict(zip(sizes, counts, strict=True))
    learner = ngn.learn_sizes(dense, sizes, capacity=lambda name, K: ngn.Retained(K))
    for name, axis in zip(learner.names, learner.axes, strict=True):
        axis.capacity.left.fill_(left[name])  # type: ignore[operator]
    compact = learner.deploy(share_frozen=True)
    return {"dense": LlamaForCausalLM(shape).eval(), "compact": compact, "padded": pad_layers(compact)}


def load_model(folder: str, dtype: torch.dtype) -> Any:
    """Load a model of transformers, or a compact one."""
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    except RuntimeError:  # the shapes of its layers differ from its config
        return load_compact(folder).to(dtype)


@torch.no_grad()
def prefill(model: Any, ids: torch.Tensor) -> Any:
    """Run the forward pass of a prompt, with logits at its last token."""
    return model(input_ids=ids, use_cache=True, logits_to_keep=1)


@torch.no_grad()
def decode(model: Any, ids: torch.Tensor) -> float:
    """Return seconds per token of greedy decoding after a prompt."""
    output = prefill(model, ids)
    start = time.perf_counter()
    for _ in range(TOKENS):
        chosen = output.logits[:, -1:].argmax(-1)
        output = model(input_ids=chosen, past_key_values=output.past_key_values, use_cache=True)
    return (time.perf_counter() - start) / TOKENS


def seconds(call: Callable[[], Any]) -> float:
    """Return the wall time of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--dense")
    parser.add_argument("--shape", choices=["smollm2"])
    parser.add_argument("--keep", type=float, default=0.5)
    parser.add_argument("--round-to", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    dtype = getattr(torch, given.dtype)
    if given.shape:
        models = {name: model.to(dtype) for name, model in made(given.keep, given.round_to).items()}
    elif given.dense and given.folders:
        models = {name: load_model(name, dtype) for name in [given.dense, *given.folders]}
    else:
        parser.error("type --dense MODEL and FOLDERs, or --shape NAME")
    ids = torch.randint(3, 1000, (1, PROMPT), generator=torch.Generator().manual_seed(0))
    for model in models.values():
        decode(model, ids)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for _ in range(given.rounds):
        for name, model in models.items():
            times[name].append((seconds(lambda model=model: prefill(model, ids)), decode(model, ids)))  # type: ignore[misc]
    first = times[next(iter(models))]
    print(f"| {'model':40} | parameters | MiB | prefill of {PROMPT}, ms | x dense | decoding, ms per token | x dense |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, model in models.items():
        count = sum(p.numel() for p in model.parameters())
        size = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**20
        cells = []
        for at in (0, 1):
            ratio = statistics.median(dense[at] / own[at] for dense, own in zip(first, times[name], strict=True))
            cells += [f"{1000 * statistics.median(own[at] for own in times[name]):.1f}", f"{ratio:.2f}"]
        print(f"| {Path(name).name:40} | {count:,} | {size:.0f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
