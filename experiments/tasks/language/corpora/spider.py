"""Spider: questions over the schema of a database, each answered by one query."""

from __future__ import annotations

from typing import Any

from experiments.data.texts import Texts
from experiments.tasks.language import prompts
from experiments.tasks.language.corpora import Corpus, Example, shuffled


def schema_of(database: dict[str, Any]) -> str:
    """Return ``table: column, column | table: ...`` with the original names."""
    columns: dict[int, list[str]] = {number: [] for number in range(len(database["table_names_original"]))}
    for table, name in database["column_names_original"]:
        if table >= 0:
            columns[table].append(name)
    names = enumerate(database["table_names_original"])
    return " | ".join(f"{name}: {prompts.columns(columns[number])}" for number, name in names)


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
