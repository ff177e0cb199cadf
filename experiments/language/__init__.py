"""Pretrained language models: loading, corpora, prompts, scores, packing, generation, pruning and export.

``settings``, ``prompts``, ``corpora`` and ``scores`` import neither torch nor transformers. ``docs/language.md``
describes the parts.
"""
