"""Make tiny text data sets in the form of the real ones, for ``profile=smoke`` and for tests."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from experiments.core.task import DataInfo
from experiments.data.synthetic import PROVENANCE
from experiments.data.texts import Texts

COLUMNS = ("Name", "Year", "Town", "Score")
WORDS = ("red", "oak", "sun", "elm", "fox", "bay")


def _texts(name: str, parts: dict[str, Any]) -> Texts:
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return Texts(parts, DataInfo(f"synthetic-{name}", digest, PROVENANCE))


def _wikisql(rng: np.random.Generator, count: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Make questions with one or two conditions over twelve tables; return questions and tables."""
    tables = [{"id": f"t{number}", "header": list(rng.permutation(COLUMNS))} for number in range(12)]
    questions = []
    for number in range(count):
        table = tables[number % len(tables)]
        columns = rng.choice(4, size=2 + number % 2, replace=False).tolist()
        conditions = [[column, 0, str(rng.choice(WORDS))] for column in columns[1:]]
        named = " and ".join(f"{table['header'][column]} {value}" for column, _, value in conditions)
        question = f"{table['header'][columns[0]]} of {named}?"
        sql = {"sel": columns[0], "agg": 0, "conds": conditions}
        questions.append({"table_id": table["id"], "question": question, "sql": sql})
    return questions, tables


def _spider(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    pairs = [(rng.choice(COLUMNS), rng.choice(WORDS)) for _ in range(count)]
    queries = [(f"{column} of {word}?", f"SELECT {column} FROM t WHERE Town = '{word}'") for column, word in pairs]
    return [{"db_id": "d", "question": question, "query": query} for question, query in queries]


def _gsm8k(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    made = []
    for a, b in rng.integers(1, 10, (count, 2)).tolist():
        total = a + b
        made.append({"question": f"{a} and {b}?", "answer": f"{a}+{b}=<<{a}+{b}={total}>>{total}\n#### {total}"})
    return made


def _squad(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    made = []
    for number in range(count):
        name, year = str(rng.choice(WORDS)), str(rng.integers(1900, 2000))
        question = {"id": f"q{number}", "question": f"When is {name}?", "answers": [{"text": year}]}
        made.append({"paragraphs": [{"context": f"The {name} is of {year}.", "qas": [question]}]})
    return made


def _all() -> dict[str, Texts]:
    rng = np.random.default_rng(0)
    questions, tables = _wikisql(rng, 240)
    columns = [[-1, "*"], *([0, name] for name in COLUMNS)]
    schema = [{"db_id": "d", "table_names_original": ["t"], "column_names_original": columns}]
    spider = {"train_spider.json": _spider(rng, 100), "dev.json": _spider(rng, 20), "tables.json": schema}
    return {
        "wikisql": _texts("wikisql", {"dev.jsonl": questions, "dev.tables.jsonl": tables}),
        "spider": _texts("spider", spider),
        "gsm8k": _texts("gsm8k", {"train.jsonl": _gsm8k(rng, 100), "test.jsonl": _gsm8k(rng, 20)}),
        "squad": _texts("squad", {"xquad.en.json": _squad(rng, 100)}),
        "general": _texts("general", {"test.txt": " ".join(rng.choice(WORDS, 400))}),
    }


TEXTS = _all()
"""Texts by corpus; ``general`` measures forgetting."""
