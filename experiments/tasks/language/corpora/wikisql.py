"""WikiSQL: questions over the columns of one table, each answered by one query.

The score: compare queries by their parts (logical form) and letter by letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    prompt = prompts.WIKISQL.format(columns=", ".join(header), question=record["question"].strip())
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


NAMES = ("exact_match", "string_match")
Parts = tuple[str, str, frozenset[tuple[str, str, str]]]
"""Column, aggregate and set of conditions, all normalised."""

_QUOTE = "['\"`]"


def normalised(text: str) -> str:
    """Return the text in lower case, with single spaces."""
    return " ".join(text.lower().split())


def first_statement(text: str) -> str:
    """Return the first SQL statement of an answer: up to the end of a line, or to a semicolon outside quotes."""
    line = next(iter(text.strip().splitlines()), "")
    inside = {"'": False, '"': False}
    for at, letter in enumerate(line):
        if letter in inside:
            inside[letter] = not inside[letter]
        elif letter == ";" and not any(inside.values()):
            return line[:at]
    return line


def query_parts(query: Query) -> Parts:
    """Return the parts of a query that the score compares."""
    names = [normalised(name) for name in query.header]
    conditions = frozenset((names[column], operator, normalised(value)) for column, operator, value in query.conditions)
    return names[query.column], query.aggregate.lower(), conditions


def parse(text: str, header: Sequence[str]) -> Parts | None:
    """Parse a query in the canonical form; return None for another form or an unknown column.

    Letter case, spaces and the kind of quotes do not matter. A value without quotes extends to the next condition.
    """
    names = sorted({normalised(name) for name in header}, key=len, reverse=True)
    column = "|".join(re.escape(name) for name in names)
    quoted = f"{_QUOTE}?(?P<column>{column}){_QUOTE}?"
    aggregate = "|".join(name.lower() for name in AGGREGATES if name)
    rest = normalised(first_statement(text))
    head = re.match(rf"select (?:(?P<aggregate>{aggregate}) ?\( ?{quoted} ?\)) from {_QUOTE}?table{_QUOTE}?", rest)
    head = head or re.match(rf"select {quoted} from {_QUOTE}?table{_QUOTE}?", rest)
    if head is None:
        return None
    where, conditions = rest[head.end() :], set()
    if where:
        another = rf" and {_QUOTE}?(?:{column}){_QUOTE}? ?[=<>]"
        value = rf"(?:(?P<mark>{_QUOTE})(?P<inside>.*?)(?P=mark)|(?P<bare>[^'\"`].*?))"
        condition = re.compile(rf"{quoted} ?(?P<operator>[=<>]) ?{value}(?= ?$|{another})")
        if not where.startswith(" where "):
            return None
        at, end = len(" where "), len(where.rstrip())
        while True:
            match = condition.match(where, at)
            if match is None:
                return None
            inside = match["bare"] if match["mark"] is None else match["inside"]
            conditions.add((match["column"], match["operator"], normalised(inside)))
            if match.end() >= end:
                break
            at = match.end() + len(" and ")
    return head["column"], head.groupdict().get("aggregate") or "", frozenset(conditions)


def score(prediction: str, example: Example) -> dict[str, float]:
    """Return ``exact_match`` (same column, aggregate and set of conditions) and ``string_match`` (identical text).

    The identical text also matches by its parts, even where it cannot be parsed: a column's name may have a semicolon.
    """
    same = prediction.strip() == example.target.strip()
    by_parts = same or parse(prediction, example.reference.header) == query_parts(example.reference)
    return {"exact_match": float(by_parts), "string_match": float(same)}
