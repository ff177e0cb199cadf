"""The corpora: their questions and prompts, scores on the edge cases of official rules, and gold answers."""

import pytest

from experiments.data.synthetic import corpora
from experiments.tasks.language.corpora import Example, gsm8k, spider, split_by, squad, wikisql
from experiments.tasks.language.corpora.wikisql import Query


def test_what_belongs_together_stays_together():
    items = [(key, number) for key in range(50) for number in range(3)]
    first, rest = split_by(items, lambda item: item[0], "x")
    assert sorted(first + rest) == items
    assert {key for key, _ in first}.isdisjoint(key for key, _ in rest)
    assert len(first) == 120
    assert split_by(items, lambda item: item[0], "x") == (first, rest)
    assert split_by(items, lambda item: item[0], "y") != (first, rest)


def test_wikisql_is_split_by_table_and_says_so():
    texts = corpora()["wikisql"]
    easy, hard = wikisql.make_corpus(texts, "easy"), wikisql.make_corpus(texts, "hard")
    tables = {f"dev-{number}": each["table_id"] for number, each in enumerate(texts.parts["dev.jsonl"])}
    train, test = ({tables[each.id] for each in part} for part in (easy.train + hard.train, easy.test + hard.test))
    assert train.isdisjoint(test)
    assert (len(train), len(test)) == (10, 2)
    assert "80/20 by table" in easy.info.provenance
    assert all(len(each.reference.conditions) == 1 for each in easy.train + easy.test)
    for part in (hard.train, hard.test):
        several = [each for each in part if len(each.reference.conditions) > 1]
        assert len(part) == 2 * len(several) > 0


def test_prompts_and_answers():
    each = wikisql.example(
        {"question": " Who? ", "sql": {"sel": 1, "agg": 3, "conds": [[0, 2, 5]]}}, ["No.", "Name"], "dev-0"
    )
    assert each.prompt == "Columns: No., Name\nQuestion: Who?\nSQL:"
    assert each.target == "SELECT COUNT(Name) FROM table WHERE No. < '5'"
    one = next(iter(spider.make_corpus(corpora()["spider"]).train))
    assert one.prompt.startswith("Schema: t: Name, Year, Town, Score\nQuestion: ")
    sums = gsm8k.make_corpus(corpora()["gsm8k"])
    assert all("<<" not in e.target and e.target.endswith(f"#### {e.reference}") for e in sums.train + sums.test)
    paragraphs = squad.make_corpus(corpora()["squad"])
    contexts = [{each.prompt.split("\n")[0] for each in part} for part in (paragraphs.train, paragraphs.test)]
    assert contexts[0].isdisjoint(contexts[1])
    assert "80/20 by paragraph" in paragraphs.info.provenance


HEADER = ("No.", "School/Club Team", "Year and Town", "Town", "O'Brien")


def sql(conditions=((0, "=", "3"), (1, "=", "Butler CC (KS)")), column=3, aggregate=""):
    query = Query(column, aggregate, conditions, HEADER)
    return Example("", query.text(), query, "")


GOLD = "SELECT Town FROM table WHERE No. = '3' AND School/Club Team = 'Butler CC (KS)'"


def test_the_canonical_text():
    assert sql().target == GOLD
    assert wikisql.score(GOLD, sql()) == {"exact_match": 1, "string_match": 1}


SAME = [
    "SELECT Town FROM table WHERE School/Club Team = 'Butler CC (KS)' AND No. = '3'",  # conditions are a set
    "select  town from TABLE where no.='3' and school/club team = 'BUTLER cc (ks)';",
    'SELECT "Town" FROM table WHERE `No.` = "3" AND School/Club Team = "Butler CC (KS)"',
    "SELECT Town FROM table WHERE No. = 3 AND School/Club Team = Butler CC (KS)",
    GOLD + "\nSELECT something else",
]
OTHER = [
    "",
    "SELECT Town FROM table WHERE No. = '3'",
    "SELECT Town FROM table WHERE No. > '3' AND School/Club Team = 'Butler CC (KS)'",
    "SELECT Year and Town FROM table WHERE No. = '3' AND School/Club Team = 'Butler CC (KS)'",
    "SELECT Town FROM other WHERE No. = '3' AND School/Club Team = 'Butler CC (KS)'",
    "SELECT Town FROM table WHERE Unknown = '3' AND School/Club Team = 'Butler CC (KS)'",
    GOLD + " AND Town = 'x'",
]


@pytest.mark.parametrize(("prediction", "exact"), [*((each, 1) for each in SAME), *((each, 0) for each in OTHER)])
def test_forms_of_the_same_query_match_and_others_do_not(prediction, exact):
    assert wikisql.score(prediction, sql()) == {"exact_match": exact, "string_match": 0}


def spider_example(query):
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
        ("#### 5\nno, it is 7", "5", 0, 1, 0),  # last number, first ####
        ("it is 5 ...", "5", 0, 0, 0),  # a trailing "..." counts as the last number
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
        ("a", ("the",), 1, 1),  # both empty once normalised
        ("x x y", ("x y y",), 0, 2 / 3),  # multisets
    ],
)
def test_squad(prediction, golds, exact, f1):
    assert squad.score(prediction, Example("", "", golds, "")) == {"exact_match": exact, "f1": pytest.approx(f1)}


HOSTILE = ("Ceased; reason", "", " a ", "a", 'b"', "c'", "a and b = ", "x\u2028y", "two\nlines", "where", "COUNT(a)")


@pytest.mark.parametrize("value", ["", " ", "'", '"', "; '", "a\nb", "\u2028", "' AND a = '", "x" * 1000, "``"])
@pytest.mark.parametrize("aggregate", ["", "COUNT"])
def test_a_query_of_hostile_names_and_values_matches_itself(value, aggregate):
    for column in range(len(HOSTILE)):
        query = Query(column, aggregate, ((0, "=", value), (column, ">", value)), HOSTILE)
        gold = query.text()
        assert wikisql.score(gold, Example("", gold, query, "")) == {"exact_match": 1, "string_match": 1}
        assert spider.score(gold, Example("", gold, gold, "")) == {"exact_match": 1, "string_match": 1}
