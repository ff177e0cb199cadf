"""How much memory a run of a pretrained model takes in each phase, by arithmetic. Imports no torch.

The sums follow a model of the Llama family with fused attention. They leave out fragmentation and the context of CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from experiments.tasks.language.components import AdapterComponent, LoRAComponent, PruneComponent

if TYPE_CHECKING:
    from experiments.core.config import Config

TOKENS = 160
"""Tokens of a question with its answer, at most ``task.max_tokens``: somewhat more than the mean of GSM8K."""
ANSWER = 0.5
"""Share of these tokens whose logits are computed, at most."""
CHUNK = 1024
"""Tokens of a chunk of general text, all of which are predicted."""
MemoryParts = dict[str, float]
"""What takes memory → bytes."""


def footprint(config: Config, on_card: bool) -> Mapping[str, MemoryParts] | None:
    """Return the bytes of each phase: load, train, update, score, generate; None if they are unknown.

    That is, if the model's sizes are unknown, or if a finished module is made smaller.

    Args:
        on_card: whether the run is on a GPU. The frozen original of a model that is trained then waits on the host.
    """
    model, gate = config.model, config.gate
    assert model is not None
    if gate.given:
        return None
    sizes = (model.parameters, model.hidden, model.vocab, model.kv_heads, model.head_dim, model.ffn)
    if any(size is None for size in sizes):
        return None
    P, d, V, heads, head, f = (size or 0 for size in sizes)
    w, kv, layers = (2 if model.dtype == "bfloat16" else 4), heads * head, getattr(gate, "layers", 0)
    weights, updated = float(P * w), isinstance(gate, PruneComponent) and gate.backbone != "frozen"
    eight_bit = config.train.optimizer == "adamw8bit"

    state: MemoryParts = {"frozen weights": weights}
    if updated:
        own = P * (w if eight_bit else 4)
        state = {"trained weights": own, "gradients": own, "moments": P * (2 + 8 / 256 if eight_bit else 8)}
        if not on_card:
            state["frozen original"] = weights
        if config.train.autocast == "bf16" and not eight_bit:
            state["copies for autocast"] = 2.0 * P
    elif trained := _attached(config, d, kv, f):
        state["trained state"] = 16.0 * trained
    held = sum(state.values()) - state.get("gradients", 0.0)

    samples = config.train.batch or 1
    replay = getattr(config.task, "replay", 0)
    tokens = samples * min(getattr(config.task, "max_tokens", None) or TOKENS, TOKENS) + replay
    in_half = config.train.autocast == "bf16" or (w == 2 and (eight_bit or not updated))
    kind = 2 if in_half else 4
    # Of a layer and token: three activations of the feed-forward block, two norms in float32, attention. A trained map
    # also keeps its input, and a gate what it multiplies.
    layer = kind * (3 * f + 2 * d + 2 * kv) + 16 * d
    layer += kind * (2 * d + f) * updated + kind * (d + f) * isinstance(gate, PruneComponent)
    kept = layer + layers * d * kind if model.gradient_checkpointing else layers * layer
    answers = (tokens - replay) * ANSWER + replay
    activations: MemoryParts = {"activations": float(tokens * kept), "logits": 12.0 * V * answers}

    # Gradients are freed after an update. Where most activations are held, only the last weight has one again.
    passes, largest_weight = dict(state), d * max(V, f)
    if updated and config.train.accumulate == 1:
        passes["gradients"] *= largest_weight / P
    update: MemoryParts = {"moments in float32": 8.0 * largest_weight} if updated and eight_bit else {}

    rows, new = getattr(config.task, "eval_batch", 1), getattr(config.task, "max_new_tokens", 0)
    cache = 2.0 * rows * (TOKENS + new) * layers * kv * kind
    return {
        "load": {"weights": weights},
        "train": {**passes, **activations},
        "update": {**state, **update},
        "score": {"weights and moments": held, "logits": (w + 8.0) * V * CHUNK},
        "generate": {"weights and moments": held, "keys and values": cache, "logits": (w + 4.0) * V * rows},
    }


def _attached(config: Config, d: int, kv: int, f: int) -> int:
    """Return the number of trained numbers of low-rank terms or adapters."""
    gate = config.gate
    if isinstance(gate, LoRAComponent):
        ends = {"q": 2 * d, "k": d + kv, "v": d + kv, "o": 2 * d, "gate": d + f, "up": d + f, "down": d + f}
        return gate.layers * (gate.K or 0) * sum(ends[target] for target in gate.targets)
    if isinstance(gate, AdapterComponent):
        return gate.layers * (gate.K or 0) * gate.width * 2 * d
    return 0


def largest(phases: Mapping[str, MemoryParts]) -> tuple[str, float]:
    """Return the phase that takes most, and its bytes."""
    name = max(phases, key=lambda phase: sum(phases[phase].values()))
    return name, sum(phases[name].values())


SAVING: tuple[Mapping[str, Mapping[str, object]], ...] = (
    {"model": {"gradient_checkpointing": True}},
    {"train": {"optimizer": "adamw8bit"}},
    {"model": {"gradient_checkpointing": True}, "train": {"optimizer": "adamw8bit"}},
    {"model": {"dtype": "bfloat16"}},
    {"model": {"dtype": "bfloat16", "gradient_checkpointing": True}, "train": {"optimizer": "adamw8bit"}},
    {"gate": {"backbone": "frozen"}},
)
"""Settings that take less memory, those that change least first."""


def what_fits(config: Config, on_card: bool, there: float) -> list[str]:
    """Return, as text, changes of settings with which a run fits into ``there`` bytes, with their bytes."""
    fitting: list[str] = []
    now = footprint(config, on_card)
    if now is None:
        return fitting
    for change in SAVING:
        blocks = {name: getattr(config, name) for name in change}
        if any(not hasattr(blocks[name], key) for name, keys in change.items() for key in keys):
            continue
        new = {name: block.model_copy(update=dict(change[name])) for name, block in blocks.items()}
        phases = footprint(config.model_copy(update=new), on_card)
        if phases is not None and (needed := largest(phases)[1]) <= min(there, 0.99 * largest(now)[1]):
            words = [f"{name}.{key}={str(v).lower()}" for name, keys in change.items() for key, v in keys.items()]
            fitting.append(f"{' '.join(words)} ({needed / 1e9:.1f} GB)")
    return fitting
