"""WikiSQL: questions over the columns of one table, each answered by one query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from experiments.data.texts import Texts
from experiments.tasks.language import prompts
from experiments.tasks.language.corpora import Corpus, Example, shuffled, split_by

AGGREGATES = ("", "MAX", "MIN", "COUNT", "SUM", "AVG")
OPERATORS = ("=", ">", "<")
Subset = Literal["easy", "hard"]


@dataclass(frozen=True)
class Query:
    """``SELECT aggregate(column) FROM table WHERE ...``; columns by number, conditions (column, operator, value)."""

    column: int
    aggregate: str
    conditions: tuple[tuple[int, str, str], ...]
    header: tuple[str, ...]

    def text(self) -> str:
        """Return the canonical text, on which the models are trained."""
        name = self.header[self.column]
        chosen = f"{self.aggregate}({name})" if self.aggregate else name
        where = " AND ".join(f"{self.header[c]} {operator} '{value}'" for c, operator, value in self.conditions)
        return f"SELECT {chosen} FROM table" + (f" WHERE {where}" if where else "")


def example(record: dict[str, Any], header: list[str], name: str) -> Example:
    """Turn a record of the official files into an example."""
    sql = record["sql"]
    conditions = tuple((column, OPERATORS[operator], str(value)) for column, operator, value in sql["conds"])
    query = Query(sql["sel"], AGGREGATES[sql["agg"]], conditions, tuple(header))
    prompt = prompts.WIKISQL.format(columns=prompts.columns(header), question=record["question"].strip())
    return Example(prompt, query.text(), query, name)


def subset_of(examples: list[Example], subset: Subset, address: str) -> list[Example]:
    """Select a subset. easy: exactly one condition. hard: all with two or more, and as many with one."""
    single = [each for each in examples if len(each.reference.conditions) == 1]
    if subset == "easy":
        return shuffled(single, f"{address}/easy")
    several = [each for each in examples if len(each.reference.conditions) > 1]
    return shuffled(several + shuffled(single, f"{address}/single")[: len(several)], f"{address}/hard")


def make_corpus(texts: Texts, subset: Subset) -> Corpus:
    """Return the official train and test sets; without them, the dev set with 80 % of its tables for training."""

    def examples(part: str) -> list[Example]:
        headers = {table["id"]: table["header"] for table in texts.parts[f"{part}.tables.jsonl"]}
        records = texts.parts[f"{part}.jsonl"]
        return [example(each, headers[each["table_id"]], f"{part}-{i}") for i, each in enumerate(records)]

    info = texts.info
    if "train.jsonl" in texts.parts:
        train, test = examples("train"), examples("test")
    else:
        tables = {f"dev-{i}": each["table_id"] for i, each in enumerate(texts.parts["dev.jsonl"])}
        train, test = split_by(examples("dev"), lambda each: tables[each.id], "wikisql")
        info = replace(info, provenance=f"{info.provenance}; dev questions, 80/20 by table for training and testing")
    return Corpus(tuple(subset_of(train, subset, "train")), tuple(subset_of(test, subset, "test")), info)
