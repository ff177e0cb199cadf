"""Every gold answer scores 1, and scoring takes time in proportion to the length of an answer."""

import os

import pytest

from experiments.data import MissingData, data_root
from experiments.data.source import Folder
from experiments.data.texts import SETS
from experiments.tasks.language.corpora import Example, gsm8k, spider, squad, wikisql
from experiments.tasks.language.corpora.wikisql import Query

SCORES = {"wikisql": wikisql, "gsm8k": gsm8k, "spider": spider, "squad": squad}


def examples(name, texts):
    """All examples of a set, also those that no subset of WikiSQL has."""
    if name != "wikisql":
        corpus = {"gsm8k": gsm8k, "spider": spider, "squad": squad}[name].make_corpus(texts)
        return [*corpus.train, *corpus.test]
    made = []
    for file in (file for file in texts.parts if not file.endswith(".tables.jsonl")):
        tables = {each["id"]: each["header"] for each in texts.parts[file.replace(".jsonl", ".tables.jsonl")]}
        made += [wikisql.example(each, tables[each["table_id"]], "") for each in texts.parts[file]]
    return made


def failing(name, texts):
    return [e for e in examples(name, texts) if set(SCORES[name].score(e.target, e).values()) != {1.0}]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCORES)
def test_every_official_gold_answer_is_right(name):
    try:
        texts = SETS[name].read_folder(Folder(data_root(os.environ.get("NGN_DATA")), name, {}, adopting=True))
    except MissingData as fault:
        pytest.skip(str(fault))
    assert not failing(name, texts)


HEADER = ("Ceased; reason", "", " a ", "a", 'b"', "c'", "a and b = ", "x\u2028y", "two\nlines", "where", "COUNT(a)")


@pytest.mark.parametrize("value", ["", " ", "'", '"', "; '", "a\nb", "\u2028", "' AND a = '", "x" * 1000, "``"])
@pytest.mark.parametrize("aggregate", ["", "COUNT"])
def test_a_query_of_hostile_names_and_values_matches_itself(value, aggregate):
    for column in range(len(HEADER)):
        query = Query(column, aggregate, ((0, "=", value), (column, ">", value)), HEADER)
        gold = query.text()
        assert wikisql.score(gold, Example("", gold, query, "")) == {"exact_match": 1, "string_match": 1}
        assert spider.score(gold, Example("", gold, gold, "")) == {"exact_match": 1, "string_match": 1}


LONG = 300_000
"""Characters. A score that takes time in proportion to the square of the length would take minutes."""


@pytest.mark.parametrize("part", ["x", "- ", ";", "= "])
def test_long_answers_are_scored(part):
    query = Query(0, "", ((1, "=", "3"),), ("Town", "No."))
    for start in ("", "SELECT Town FROM table WHERE No. = "):
        answer = start + part * (LONG // len(part))
        assert wikisql.score(answer, Example("", "", query, ""))["exact_match"] == 0
        assert gsm8k.score(answer, Example("", "", "3", ""))["decimal"] == 0
        assert spider.score(answer, Example("", "", "select", ""))["exact_match"] == 0
        assert squad.score(answer, Example("", "", ("b",), ""))["exact_match"] == 0
    spaces = "=" + " " * LONG + "x"
    assert spider.score(spaces, Example("", "", "= x", ""))["exact_match"] == 1
    assert gsm8k.normalised("9" * LONG) == "9" * LONG
