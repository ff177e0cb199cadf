"""The fixed prompts of all tasks, as plain text or as a chat.

``plain`` is the text below, after the tokenizer's start of text if it has one; the answer follows after one space.
``chat`` puts the same text into the user's turn of the tokenizer's chat template.
"""

from __future__ import annotations

from typing import Any, Literal

from experiments.core.blocks import ConfigError

Style = Literal["plain", "chat"]

WIKISQL = "Columns: {columns}\nQuestion: {question}\nSQL:"
SPIDER = "Schema: {schema}\nQuestion: {question}\nSQL:"
GSM8K = "Question: {question}\nAnswer:"
SQUAD = "Context: {context}\nQuestion: {question}\nAnswer:"


def prompt_ids(tokenizer: Any, prompt: str, style: Style) -> list[int]:
    """Return the tokens of a prompt, with one start of text if the tokenizer has one.

    Raises:
        ConfigError: for a chat, if the tokenizer has no template.
    """
    if style != "chat":
        return list(tokenizer(prompt)["input_ids"])
    if not tokenizer.chat_template:
        raise ConfigError(
            "task.prompt=chat: the model's tokenizer has no chat template, as it is no model of conversations; use "
            "task.prompt=plain, or put its chat_template.jinja into the model's folder"
        )
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    # The chat template has already added the start of text.
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def target_ids(tokenizer: Any, target: str, style: Style) -> list[int]:
    """Return the tokens of an answer and the token that ends it."""
    text = target if style == "chat" else f" {target}"
    return [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
