"""Training and test questions of the corpora, and their prompts."""

from __future__ import annotations

from experiments.data.synthetic_texts import TEXTS
from experiments.tasks.language.corpora import gsm8k, spider, split_by, squad, wikisql


def test_what_belongs_together_stays_together():
    items = [(key, number) for key in range(50) for number in range(3)]
    first, rest = split_by(items, lambda item: item[0], "x")
    assert sorted(first + rest) == items
    assert {key for key, _ in first}.isdisjoint(key for key, _ in rest)
    assert len(first) == 120
    assert split_by(items, lambda item: item[0], "x") == (first, rest)
    assert split_by(items, lambda item: item[0], "y") != (first, rest)


def test_wikisql_is_split_by_table_and_says_so():
    texts = TEXTS["wikisql"]
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
    one = next(iter(spider.make_corpus(TEXTS["spider"]).train))
    assert one.prompt.startswith("Schema: t: Name, Year, Town, Score\nQuestion: ")
    sums = gsm8k.make_corpus(TEXTS["gsm8k"])
    assert all("<<" not in e.target and e.target.endswith(f"#### {e.reference}") for e in sums.train + sums.test)
    paragraphs = squad.make_corpus(TEXTS["squad"])
    contexts = [{each.prompt.split("\n")[0] for each in part} for part in (paragraphs.train, paragraphs.test)]
    assert contexts[0].isdisjoint(contexts[1])
    assert "80/20 by paragraph" in paragraphs.info.provenance
