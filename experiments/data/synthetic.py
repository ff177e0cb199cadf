"""Make tiny learnable data in the form of the real ones, for ``profile=smoke`` and tests, never for numbers."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

import numpy as np

from experiments.core.task import DataInfo
from experiments.data.cora import row_normalised, undirected
from experiments.data.source import GraphData, ImageData
from experiments.data.texts import Texts
from experiments.store.provenance import combined_digest

PROVENANCE = "synthetic, made by the suite itself (seed 0); no real data"


def _info(name: str, arrays: dict[str, np.ndarray]) -> DataInfo:
    parts = {key: hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() for key, array in arrays.items()}
    return DataInfo(f"synthetic-{name}", combined_digest(parts), PROVENANCE)


def images(shape: tuple[int, ...], classes: int = 10, train: int = 256, test: int = 128) -> ImageData:
    """Make images [C, H, W]: each class is a coarse pattern of grey levels, with noise and a random contrast.

    The same arguments give the same images on every machine.
    """
    rng = np.random.default_rng(0)
    channels, height, width = shape
    coarse = rng.uniform(-1.0, 1.0, (classes, channels, 4, 4))
    rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    patterns = coarse[:, :, rows][:, :, :, columns]
    count = train + test
    # Balance the classes in both parts as far as their sizes allow.
    labels = np.concatenate([rng.permutation(np.arange(n) % classes) for n in (train, test)])
    contrast = rng.uniform(0.7, 1.3, (count, 1, 1, 1))
    noise = rng.uniform(-0.5, 0.5, (count, *shape))
    pixels = np.clip(np.rint(128 + 80 * (contrast * patterns[labels] + noise)), 0, 255).astype(np.uint8)
    info = _info("images", {"images": pixels, "labels": labels})
    return ImageData(pixels[:train], labels[:train], pixels[train:], labels[train:], info)


def graph(nodes: int = 120, features: int = 32, classes: int = 4) -> GraphData:
    """Make a graph like a citation network: most neighbours share a class, and each class prefers some words.

    A sixth of the nodes is for training, a third for validation, the rest for testing.
    """
    rng = np.random.default_rng(0)
    labels = np.arange(nodes) % classes
    own_word = np.arange(features)[None] % classes == labels[:, None]
    words = (rng.random((nodes, features)) < np.where(own_word, 0.4, 0.1)).astype(np.float32)
    same_class = labels[:, None] == labels[None]
    chance = np.where(same_class, 3.0, 0.5) / (nodes / classes)
    source, target = np.nonzero(np.triu(rng.random((nodes, nodes)) < chance, k=1))
    # The classes alternate from node to node, so each consecutive stretch of nodes is balanced.
    first, second = max(classes, nodes // 6), max(classes, nodes // 6) + nodes // 3
    arrays = {"features": row_normalised(words), "edge_index": undirected(source, target, nodes), "labels": labels}
    order = np.arange(nodes)
    return GraphData(
        **arrays,
        train=order[:first],
        validation=order[first:second],
        test=order[second:],
        info=_info("graph", arrays),
    )


def stories(train: int = 40, valid: int = 12) -> tuple[list[str], list[str], DataInfo]:
    """Make training and validation stories of one sentence each, the same on every machine."""
    rng = np.random.default_rng(0)
    words = (("The", "A"), ("cat", "dog", "bird"), ("saw", "likes"), ("the", "a"), ("red", "big"), ("ball.", "tree."))
    made = [" ".join(options[rng.integers(len(options))] for options in words) for _ in range(train + valid)]
    info = _info("stories", {"text": np.frombuffer("\n".join(made).encode(), dtype=np.uint8)})
    return made[:train], made[train:], info


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


@cache
def corpora() -> dict[str, Texts]:
    """Make texts by corpus; ``general`` measures forgetting."""
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
