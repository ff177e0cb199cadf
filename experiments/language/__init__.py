"""Pretrained language models and what is asked of them: bases, corpora, prompts, scores, packing, generation.

Neither torch nor transformers is imported before a base is loaded or a batch is made; ``docs/language.md`` says what
lies where.
"""
