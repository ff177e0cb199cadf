"""Every line of a text data set has its form, or one message names the file, the line and the key."""

import json

import data_samples as samples
import pytest

from experiments.data import DataError, sets, synthetic_texts
from experiments.data.source import Folder
from experiments.data.texts import SETS

QUESTION = {"table_id": "t", "question": "?", "sql": {"sel": 0, "agg": 0, "conds": [[1, 0, "x"]]}}
TABLE = {"id": "t", "header": ["a", "b"]}
SUM = {"question": "1 + 1?", "answer": "#### 2"}
QUERY = {"question": "?", "query": "SELECT a", "db_id": "d"}
COLUMNS = "column_names_original"
DATABASE = {"db_id": "d", "table_names_original": ["t"], "column_names_original": [[-1, "*"], [0, "a"]]}
ASKED = {"id": "q", "question": "?", "answers": [{"text": "a"}]}


def article(**change):
    return {"paragraphs": [{"context": "a b", "qas": [ASKED | change]}]}


def sql(**change):
    return QUESTION | {"sql": QUESTION["sql"] | change}


def lines(*records) -> bytes:
    return "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in records).encode()


def wikisql(questions=(QUESTION,), tables=(TABLE,)):
    return {"dev.jsonl": lines(*questions), "dev.tables.jsonl": lines(*tables)}


def gsm8k(*records):
    return {"train.jsonl": lines(*records), "test.jsonl": lines(SUM)}


def spider(questions=(QUERY,), tables=(DATABASE,)):
    whole = {"train_spider.json": questions, "dev.json": [QUERY], "tables.json": tables}
    return {name: json.dumps(content).encode() for name, content in whole.items()}


def squad(*articles):
    return {"xquad.en.json": json.dumps({"data": articles}).encode()}


def read(root, name, files):
    samples.put(root / name, files)
    return SETS[name].read_folder(Folder(root, name, {}, adopting=True)).parts


HOSTILE = {
    "a text for a column": ("wikisql", wikisql([sql(sel="0")]), r"sql\.sel: .* valid integer"),
    "no sql": ("wikisql", wikisql([{"table_id": "t", "question": "?"}]), r"line 1: .*sql: Field required"),
    "column 2 of 2": ("wikisql", wikisql([sql(sel=2)]), r"record 1 names column 2 of a table with 2 columns"),
    "no such table": ("wikisql", wikisql([QUESTION | {"table_id": "u"}]), r"asks table 'u', which dev\.tables"),
    "no columns": ("wikisql", wikisql(tables=[TABLE | {"header": []}]), r"header: .* at least 1 item"),
    "a table twice": ("wikisql", wikisql(tables=[TABLE, TABLE]), r"tables\.jsonl: the id 't' stands there twice"),
    "a key twice": ("gsm8k", gsm8k('{"question": "", "answer": "#### 1", "answer": "#### 2"}'), r"'answer' stands"),
    "not a number": ("wikisql", wikisql([sql(conds=[[0, 0, float("nan")]])]), r"NaN is not a finite number"),
    "a list for a line": ("gsm8k", gsm8k([SUM]), r"line 1: unreadable \(Input should be a valid dict"),
    "half a line": ("gsm8k", gsm8k(SUM, '{"question": "'), r"train\.jsonl, line 2: unreadable"),
    "no answer's mark": ("gsm8k", gsm8k(SUM | {"answer": "2"}), r"answer: .*match"),
    "half of a surrogate pair": ("gsm8k", gsm8k(SUM | {"question": "\ud800"}), r"line 1: unreadable .*surrogates"),
    "deep": ("gsm8k", gsm8k("[" * 100_000), r"line 1: unreadable"),
    "no object": ("spider", spider() | {"dev.json": b"3"}, r"must be a list of records"),
    "no such database": ("spider", spider([QUERY | {"db_id": "e"}]), r"asks database 'e', which tables\.json lacks"),
    "table 1 of 1": ("spider", spider(tables=[DATABASE | {COLUMNS: [[1, "a"]]}]), r"names table 1 of 1"),
    "no references": ("squad", squad(article(answers=[])), r"answers: .* at least 1 item"),
    "an id twice": ("squad", squad(article(), article()), r"the id 'q' stands there twice"),
    "no questions": ("squad", squad({"paragraphs": []}), r"xquad\.en\.json: holds no question"),
    "no text": ("wikitext2", {"test.txt": b" \n"}, r"test\.txt: holds no text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_in_one_message(tmp_path, name):
    kind, files, fault = HOSTILE[name]
    with pytest.raises(DataError, match=fault):
        read(tmp_path, kind, files)


@pytest.mark.parametrize("break_", ["\u2028", "\u2029", "\x85"])
def test_only_a_line_feed_ends_a_line(tmp_path, break_):
    record = json.dumps(SUM | {"question": f"1 +{break_}1?"}, ensure_ascii=False)
    assert read(tmp_path, "gsm8k", gsm8k(record, SUM))["train.jsonl"][0]["question"] == f"1 +{break_}1?"
    assert read(tmp_path, "gsm8k", gsm8k(f"{record}\r", "", SUM))["train.jsonl"][1] == SUM


def test_the_files_of_the_suite_pass(tmp_path):
    for name in ("wikisql", "spider", "gsm8k", "squad"):
        parts = synthetic_texts.TEXTS[name].parts
        files = {f: lines(*part) if f.endswith("l") else json.dumps(part).encode() for f, part in parts.items()}
        assert read(tmp_path, name, files) == parts
        sets.adopt(name, tmp_path, "made up")
