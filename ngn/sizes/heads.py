"""Learned numbers of attention heads."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from torch import nn

from ngn.axis import Cut, inputs, outputs
from ngn.components.attention import Attention
from ngn.sizes.base import ByImportance, Maker, Size, entries, has_linear, linear


class Heads(Size):
    """The heads of an attention layer; with grouped queries, the key-value heads, each with its queries.

    Names are known for Llama and models like it, OPT, GPT-2, GPT-NeoX, BERT, DistilBERT, ``nn.MultiheadAttention``, and
    vision transformers with a fused ``qkv``.

    Args:
        by_importance, gate: see :class:`Size`.
        qkv: names, inside the module, of the query, key and value layers, or of one fused layer.
        out: name of the output projection.
        head_dim: entries of a head, if the module has no such attribute.
        interleaved: a fused layer orders its outputs by head (q, k, v of head 0, ...), not all queries first.
        counts: further integer attributes of the module that count heads and shrink with the size. ``num_heads`` and
            similar names are known.

    >>> import torch, ngn
    >>> attention = torch.nn.MultiheadAttention(8, 4, batch_first=True)
    >>> learner = ngn.learn_sizes(attention, {"": ngn.Heads(t0=1.2)})
    >>> x = torch.randn(2, 5, 8)
    >>> learner.deploy(example={"query": x, "key": x, "value": x, "need_weights": False}, unsettled="allow").num_heads
    2
    """

    unit = "heads"

    def __init__(
        self,
        by_importance: ByImportance = None,
        qkv: Sequence[str] = (),
        out: str = "",
        head_dim: int | None = None,
        interleaved: bool = False,
        counts: Sequence[str] = (),
        **gate: Any,
    ) -> None:
        super().__init__(None, by_importance, **gate)
        self.counts = (counts,) if isinstance(counts, str) else (*counts,)
        self.qkv, self.out = ((qkv,) if isinstance(qkv, str) else (*qkv,)), out
        self.head_dim, self.interleaved = head_dim, interleaved

    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        module = model.get_submodule(name)
        if isinstance(module, nn.MultiheadAttention):
            if type(module) not in (nn.MultiheadAttention, Attention):
                raise ValueError(
                    f"{name or 'the model'} is a {type(module).__name__}: learning its heads would replace its forward "
                    "pass; use nn.MultiheadAttention itself"
                )
            return self._attach_to_torch(module, name, make)
        known = [(self.qkv, self.out, self.interleaved)] if self.qkv else _ATTENTION
        layout = next((part for part in known if self.qkv or has_linear(module, [*part[0], part[1]])), None)
        if layout is None:
            raise ValueError(
                f"{name or type(module).__name__} is not a known attention layer; name its linear layers: "
                "ngn.Heads(qkv=..., out=..., head_dim=...)"
            )
        paths, out, interleaved = layout
        interleaved |= getattr(module, "multi_query", None) is False  # of GPTBigCode, named as GPT-2 is
        maps, to = [linear(module, name, path) for path in paths], linear(module, name, out)
        d = self.head_dim or _head_dim(module)
        if d is None:
            raise ValueError(f"{name} has no attribute for the entries of a head; give them: ngn.Heads(head_dim=...)")
        if len(maps) == 1:
            if entries(maps[0])[1] != 3 * entries(to)[0]:
                raise ValueError(
                    f"{name}.{paths[0]} has {entries(maps[0])[1]} outputs, "
                    f"not {3 * entries(to)[0]} for queries, keys and values"
                )
            K = entries(to)[0] // d
            starts = [0] if interleaved else [0, K * d, 2 * K * d]
            cuts = [cut for start in starts for cut in outputs(maps[0], 3 * d if interleaved else d, start)]
        else:
            K = entries(maps[1])[1] // d
            cuts = [cut for m in maps for cut in outputs(m, entries(m)[1] // K)]
        queries = entries(maps[0])[1] // d if len(maps) > 1 else K
        for key, value in module._parameters.items():  # one value per head, such as the sinks of gpt-oss
            if (
                value is not None
                and value.dim() == 1
                and len(value) in {K, queries} - (set() if "sink" in key else {d})
            ):
                cuts.append(Cut(module, key, 0, len(value) // K))
        beside = module.get_submodule(paths[0].rpartition(".")[0])
        self._refuse_shared(module, name, beside, {entries(m)[1] for m in maps} - {d})
        if missing := [count for count in self.counts if not isinstance(getattr(module, count, None), int)]:
            raise ValueError(f"{name or 'the model'} has no integer attribute {missing[0]!r}, which counts= names")
        named = dict.fromkeys((*_COUNTS, *self.counts))
        counts = [
            (m, count)
            for m in module.modules()
            for count in named
            if isinstance(getattr(m, count, None), int) and not isinstance(getattr(type(m), count, None), property)
        ]
        self.axis(name, K, make, cuts + inputs(to, entries(to)[0] // K), [to], counts)

    def _refuse_shared(self, module: nn.Module, name: str, beside: nn.Module, entries: set[int]) -> None:
        """Refuse norms over all heads (their parameters have one of these ``entries``) and a bias per head."""
        for path, part in beside.named_children():
            if "norm" in path and any(p.dim() and p.shape[-1] in entries for p in part.parameters()):
                raise ValueError(f"{name}: {path} normalises over all heads together, so no head can be removed")
        if "alibi" in inspect.signature(module.forward).parameters:
            raise ValueError(f"{name}: its input alibi is a bias per head, which the library cannot cut")

    def _attach_to_torch(self, module: nn.MultiheadAttention, name: str, make: Maker) -> None:
        if module.bias_k is not None or module.add_zero_attn:
            raise ValueError(f"{name}: an extra key (add_bias_kv, add_zero_attn) belongs to no head; build it without")
        K, d = module.num_heads, module.head_dim
        cuts = [Cut(module, part, 0, d) for part in ("q_proj_weight", "k_proj_weight", "v_proj_weight")]
        if module.in_proj_weight is not None:
            cuts = [Cut(module, "in_proj_weight", 0, d, start * K * d) for start in range(3)]
        cuts += [Cut(module, "in_proj_bias", 0, d, start * K * d) for start in range(3)]
        module.__class__, module._qkv_same_embed_dim = Attention, False  # False: disables torch's fast path
        out = module.out_proj
        self.axis(name, K, make, cuts + inputs(out, d), [out], [(module, "num_heads")])


_ATTENTION = [
    (("q_proj", "k_proj", "v_proj"), "o_proj", False),  # Llama, Qwen, Mistral, Gemma
    (("q_proj", "k_proj", "v_proj"), "out_proj", False),  # OPT, CLIP
    (("self.query", "self.key", "self.value"), "output.dense", False),  # BERT
    (("query_key_value",), "dense", True),  # GPT-NeoX
    (("qkv",), "proj", False),  # vision transformers
    (("c_attn",), "c_proj", False),  # GPT-2
    (("q_lin", "k_lin", "v_lin"), "out_lin", False),  # DistilBERT
]
_COUNTS = ("num_heads", "num_attention_heads", "num_key_value_heads", "all_head_size", "n_heads", "split_size")


def _head_dim(module: nn.Module) -> int | None:
    for part in module.modules():
        for attribute in ("head_dim", "head_size", "attention_head_size"):
            if isinstance(value := getattr(part, attribute, None), int):
                return value
    return None
