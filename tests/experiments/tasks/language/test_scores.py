"""Scores on the edge cases of their official rules."""

from __future__ import annotations

import pytest

from experiments.tasks.language.corpora import Example, gsm8k, spider, squad, wikisql
from experiments.tasks.language.corpora.wikisql import Query

HEADER = ("No.", "School/Club Team", "Year and Town", "Town", "O'Brien")


def sql(conditions=((0, "=", "3"), (1, "=", "Butler CC (KS)")), column=3, aggregate="") -> Example:
    query = Query(column, aggregate, conditions, HEADER)
    return Example("", query.text(), query, "")


GOLD = "SELECT Town FROM table WHERE No. = '3' AND School/Club Team = 'Butler CC (KS)'"


def test_the_canonical_text():
    assert sql().target == GOLD
    assert wikisql.score(GOLD, sql()) == {"exact_match": 1, "string_match": 1}
    assert Query(0, "COUNT", (), HEADER).text() == "SELECT COUNT(No.) FROM table"


@pytest.mark.parametrize(
    "prediction",
    [
        "SELECT Town FROM table WHERE School/Club Team = 'Butler CC (KS)' AND No. = '3'",  # conditions are a set
        "select  town from TABLE where no.='3' and school/club team = 'BUTLER cc (ks)';",
        'SELECT "Town" FROM table WHERE `No.` = "3" AND School/Club Team = "Butler CC (KS)"',
        "SELECT Town FROM table WHERE No. = 3 AND School/Club Team = Butler CC (KS)",
        GOLD + "\nSELECT something else",
        GOLD + "; DROP",
    ],
)
def test_forms_of_the_same_query_match(prediction):
    assert wikisql.score(prediction, sql()) == {"exact_match": 1, "string_match": 0}


@pytest.mark.parametrize(
    "prediction",
    [
        "",
        "Town",
        "SELECT Town",
        "SELECT Town FROM table",
        "SELECT Town FROM table WHERE",
        "SELECT Town FROM table WHERE No. = '3'",
        "SELECT Town FROM table WHERE No. > '3' AND School/Club Team = 'Butler CC (KS)'",
        "SELECT Town FROM table WHERE No. = '4' AND School/Club Team = 'Butler CC (KS)'",
        "SELECT COUNT(Town) FROM table WHERE No. = '3' AND School/Club Team = 'Butler CC (KS)'",
        "SELECT Year and Town FROM table WHERE No. = '3' AND School/Club Team = 'Butler CC (KS)'",
        "SELECT Town FROM other WHERE No. = '3' AND School/Club Team = 'Butler CC (KS)'",
        "SELECT Town FROM table WHERE Unknown = '3' AND School/Club Team = 'Butler CC (KS)'",
        GOLD + " AND Town = 'x'",
        GOLD + " LIMIT 1",
        "The answer: " + GOLD,
    ],
)
def test_other_queries_do_not(prediction):
    assert wikisql.score(prediction, sql()) == {"exact_match": 0, "string_match": 0}


def spider_example(query: str) -> Example:
    return Example("", query, query, "")


def test_spider_is_a_normalised_text():
    each = spider_example("SELECT count(*) FROM Singer WHERE name = 'Joe  X' AND age>=3")
    assert spider.score('select COUNT( * ) from singer where Name="Joe  X" and age >= 3 ;', each)["exact_match"] == 1
    for other in (
        "SELECT count(*) FROM Singer WHERE name = 'joe  x' AND age>=3",  # a value keeps its case
        "SELECT count(*) FROM Singer WHERE age>=3 AND name = 'Joe  X'",  # no set match
        "SELECT count(*) FROM Singer WHERE name = 'Joe X' AND age>=3",
        "",
    ):
        assert spider.score(other, each)["exact_match"] == 0
    assert spider.score(each.target, each) == {"exact_match": 1, "string_match": 1}


@pytest.mark.parametrize(
    ("prediction", "gold", "flexible", "strict", "decimal"),
    [
        ("so 2+2=4\n#### 4", "4", 1, 1, 1),
        ("The answer is 4.", "4", 1, 0, 1),  # the point at the end is part of the number, and is dropped
        ("#### 18.00", "18", 0, 0, 1),  # equal as numbers, not as texts
        ("#### $1,234", "1234", 1, 0, 1),  # the strict rule allows no dollar sign
        ("#### 1,234", "1234", 1, 1, 1),
        ("#### 5\nno, it is 7", "5", 0, 1, 0),  # last number, first ####
        ("it is 5...", "5", 0, 0, 0),  # "5..." keeps two of its points
        ("it is 5 ...", "5", 0, 0, 0),  # a trailing "..." counts as the last number
        ("-3", "-3", 1, 0, 1),
        ("none", "3", 0, 0, 0),
        ("", "3", 0, 0, 0),
    ],
)
def test_gsm8k(prediction, gold, flexible, strict, decimal):
    expected = {"flexible": flexible, "strict": strict, "decimal": decimal}
    assert gsm8k.score(prediction, Example("", "", gold, "")) == expected


@pytest.mark.parametrize(
    ("prediction", "golds", "exact", "f1"),
    [
        ("The Broncos!", ("Broncos", "Denver Broncos"), 1, 1),
        ("the Denver team", ("Broncos", "Denver Broncos"), 0, 0.5),  # the best over the references
        ("an answer\nand more", ("answer",), 1, 1),
        ("", ("x",), 0, 0),
        ("a", ("the",), 1, 1),  # both empty once normalised
        ("x x y", ("x y y",), 0, 2 / 3),  # multisets
    ],
)
def test_squad(prediction, golds, exact, f1):
    assert squad.score(prediction, Example("", "", golds, "")) == {"exact_match": exact, "f1": pytest.approx(f1)}
