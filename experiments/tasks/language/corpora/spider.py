"""Spider: questions over the schema of a database, each answered by one query.

The score: compare queries as normalised texts, which is stricter than set match and execution.
"""

from __future__ import annotations

import re
from typing import Any

from experiments.data.texts import Texts
from experiments.tasks.language import prompts
from experiments.tasks.language.corpora import Corpus, Example, shuffled
from experiments.tasks.language.corpora.wikisql import first_statement


def schema_of(database: dict[str, Any]) -> str:
    """Return ``table: column, column | table: ...`` with the original names."""
    columns: dict[int, list[str]] = {number: [] for number in range(len(database["table_names_original"]))}
    for table, name in database["column_names_original"]:
        if table >= 0:
            columns[table].append(name)
    names = enumerate(database["table_names_original"])
    return " | ".join(f"{name}: {', '.join(columns[number])}" for number, name in names)


def make_corpus(texts: Texts) -> Corpus:
    """Return the official train_spider and dev sets."""
    schemas = {database["db_id"]: schema_of(database) for database in texts.parts["tables.json"]}

    def examples(part: str) -> tuple[Example, ...]:
        made = []
        for number, each in enumerate(texts.parts[f"{part}.json"]):
            query = " ".join(each["query"].split())
            prompt = prompts.SPIDER.format(schema=schemas[each["db_id"]], question=each["question"].strip())
            made.append(Example(prompt, query, query, f"{part}-{number}"))
        return tuple(shuffled(made, f"spider/{part}"))

    return Corpus(examples("train_spider"), examples("dev"), texts.info)


NAMES = ("exact_match", "string_match")


def normalised(query: str) -> str:
    """Normalise a query: lower case and single spaces outside values, single quotes, no final semicolon."""
    query = query.strip().removesuffix(";")
    out = []
    for piece in re.findall(r"'[^']*'|\"[^\"]*\"|[^'\"]+|['\"]", query):
        if len(piece) > 1 and piece[0] in "'\"":
            out.append(f"'{piece[1:-1]}'")
        else:
            spaced = re.sub(r"(<=|>=|!=|<>|[=<>(),])", r" \1 ", piece.lower())
            out += spaced.split()
    return " ".join(out)


def score(prediction: str, example: Example) -> dict[str, float]:
    """Return ``exact_match`` (equal when normalised) and ``string_match`` (identical text)."""
    same = prediction.strip() == example.target.strip()
    alike = same or normalised(first_statement(prediction)) == normalised(example.reference)
    return {"exact_match": float(alike), "string_match": float(same)}
