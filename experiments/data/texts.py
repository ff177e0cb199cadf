"""Read the text data sets: questions with answers, and running text, from JSON, JSON lines or plain text.

Each record is checked: it has the keys that the suite reads, and may have others. Some must agree between files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictFloat, StrictInt, StrictStr, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from experiments.core.task import DataInfo
from experiments.data.source import DataError, Folder
from experiments.store.records import strict_json

FileRecords = dict[str, Any]
"""File name → its records."""
ColumnNumber = Annotated[StrictInt, Field(ge=0)]
Condition = tuple[ColumnNumber, Annotated[StrictInt, Field(ge=0, le=2)], StrictStr | StrictInt | StrictFloat]
"""WikiSQL: column, operator (= > <), value."""


def _record(**keys: Any) -> Any:
    """Return the type of a record with these keys."""
    return TypedDict("Record", keys)  # type: ignore[operator]


def _several(form: Any, least: int = 0) -> Any:
    """Return the type of a list of such records, at least ``least``."""
    return Annotated[list[form], Field(min_length=least)]


WIKISQL_QUESTION = _record(
    table_id=StrictStr,
    question=StrictStr,
    sql=_record(sel=ColumnNumber, agg=Annotated[StrictInt, Field(ge=0, le=5)], conds=list[Condition]),
)
"""A question of WikiSQL. Its query: column, aggregate (none, MAX, MIN, COUNT, SUM, AVG), conditions."""
WIKISQL_TABLE = _record(id=StrictStr, header=Annotated[list[StrictStr], Field(min_length=1)])
GSM8K_QUESTION = _record(question=StrictStr, answer=Annotated[str, StringConstraints(strict=True, pattern=r"#### \S")])
"""A problem of GSM8K; its answer ends with ``#### `` and the number."""
SPIDER_QUESTION = _record(question=StrictStr, query=StrictStr, db_id=StrictStr)
SPIDER_DATABASE = _record(
    db_id=StrictStr,
    table_names_original=list[StrictStr],
    column_names_original=list[tuple[Annotated[StrictInt, Field(ge=-1)], StrictStr]],
)
"""The schema of a database of Spider; a column names its table by number, -1 for ``*``."""
_ANSWERS = _several(_record(text=StrictStr), 1)
_SQUAD_QUESTIONS = _several(_record(id=StrictStr, question=StrictStr, answers=_ANSWERS))
SQUAD_ARTICLE = _record(paragraphs=_several(_record(context=StrictStr, qas=_SQUAD_QUESTIONS)))
DOCUMENT = _record(text=StrictStr)


def parse(text: str) -> Any:
    """Parse JSON in which every key of an object stands once, every number is finite, and every text is valid Unicode.

    Raises:
        ValueError, RecursionError: if the text is not of this form.
    """
    made = strict_json(text)
    if "\\ud" in text.lower():  # an escaped half of a surrogate pair, perhaps without the other half
        json.dumps(made, ensure_ascii=False).encode()
    return made


def read_records(path: Path, text: str, schema: Any) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines (``.jsonl``), or of a JSON file: a list, or an object with "data".

    Only a line feed ends a line: JSON allows the other line separators of Unicode within a string.

    Args:
        schema: the type of a record.

    Raises:
        DataError: if a record is not of this type. The message names the file, the line or record, and the key.
    """
    if path.suffix == ".jsonl":
        entries: list[tuple[str, Any]] = [
            (f"{path}, line {n}", line) for n, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
        read: Callable[[Any], Any] = parse
    else:
        try:
            whole = parse(text)
        except (ValueError, RecursionError) as fault:
            raise DataError(f"{path}: unreadable ({fault})") from None
        listed = whole.get("data") if isinstance(whole, dict) else whole
        if not isinstance(listed, list):
            raise DataError(f'{path}: must be a list of records, or an object with such a list as "data"')
        entries, read = [(f"{path}, record {n}", record) for n, record in enumerate(listed, 1)], lambda record: record
    if not entries:
        raise DataError(f"{path}: holds no records")
    adapter = TypeAdapter(schema)
    records = []
    for where, entry in entries:
        try:
            records.append(_checked(adapter, read(entry)))
        except (ValueError, RecursionError) as fault:
            raise DataError(f"{where}: unreadable ({fault})") from None
    return records


def _checked(adapter: TypeAdapter[Any], record: Any) -> dict[str, Any]:
    try:
        adapter.validate_python(record)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from None
    return dict(record)


def _by_name(records: Iterable[dict[str, Any]], key: str, file: str) -> dict[str, dict[str, Any]]:
    named: dict[str, dict[str, Any]] = {}
    for record in records:
        if record[key] in named:
            raise ValueError(f"{file}: the {key} {record[key]!r} stands there twice")
        named[record[key]] = record
    return named


def check_wikisql(parts: FileRecords) -> None:
    """Raise a ValueError if a question names a table or a column that does not exist."""
    for file in (name for name in parts if not name.endswith(".tables.jsonl")):
        listed = file.replace(".jsonl", ".tables.jsonl")
        tables = _by_name(parts[listed], "id", listed)
        for number, each in enumerate(parts[file], 1):
            if (table := tables.get(each["table_id"])) is None:
                raise ValueError(f"{file}: record {number} asks table {each['table_id']!r}, which {listed} lacks")
            sql, columns = each["sql"], len(table["header"])
            if (largest := max(sql["sel"], *(condition[0] for condition in sql["conds"]), 0)) >= columns:
                raise ValueError(f"{file}: record {number} names column {largest} of a table with {columns} columns")


def check_spider(parts: FileRecords) -> None:
    """Raise a ValueError if a question names a database, or a column a table, that does not exist."""
    databases = _by_name(parts["tables.json"], "db_id", "tables.json")
    for name, database in databases.items():
        tables = len(database["table_names_original"])
        if (largest := max((table for table, _ in database["column_names_original"]), default=0)) >= max(tables, 1):
            raise ValueError(f"tables.json: a column of database {name!r} names table {largest} of {tables}")
    for file in (name for name in parts if name != "tables.json"):
        for number, each in enumerate(parts[file], 1):
            if each["db_id"] not in databases:
                raise ValueError(f"{file}: record {number} asks database {each['db_id']!r}, which tables.json lacks")


def check_squad(parts: FileRecords) -> None:
    """Raise a ValueError if two questions of a file have the same id, or a file has no question."""
    for file, articles in parts.items():
        paragraphs = (paragraph for article in articles for paragraph in article["paragraphs"])
        if not _by_name((each for paragraph in paragraphs for each in paragraph["qas"]), "id", file):
            raise ValueError(f"{file}: holds no question")


Check = Callable[[FileRecords], None]
"""Raises a ValueError if records do not agree."""


@dataclass(frozen=True)
class Texts:
    """The files of one layout, by name: a list of records (from JSON or JSON lines), or the text."""

    parts: dict[str, Any]
    info: DataInfo


@dataclass(frozen=True)
class TextSet:
    """One text data set.

    Attributes:
        NAME: name of the data set and of its folder below the data root.
        layouts: possible sets of files, best first. A later one is a stand-in or another packing.
        schemas: file name → type of each of its records. Text files have no entry.
        inside: folders of the official packing, where the files may also be.
        OFFICIAL: digests of official files.
        check: checks what records of several files must agree on.
    """

    NAME: str
    layouts: tuple[tuple[str, ...], ...]
    schemas: Mapping[str, Any]
    inside: tuple[str, ...] = ()
    OFFICIAL: Mapping[str, str] = field(default_factory=dict)
    check: Check = field(default=lambda parts: None)

    def read_folder(self, folder: Folder) -> Texts:
        """Read the first complete layout; see :meth:`load_data`."""
        places = (folder.path, *(folder.path / name for name in self.inside))
        files = [[(place / name,) for name in layout] for layout in self.layouts for place in places]
        parts = {path.name: self._parsed(path, folder.read(path).tobytes()) for path in folder.choose(files)}
        try:
            self.check(parts)
        except ValueError as fault:
            raise DataError(f"{folder.path}: {fault}") from None
        return Texts(parts, folder.info())

    def load_data(self, root: Path) -> Texts:
        """Read the data set below a data root.

        Raises:
            DataError: if a file is missing, damaged, not the expected one, or not of its form.
        """
        return self.read_folder(Folder(root, self.NAME, self.OFFICIAL))

    def _parsed(self, path: Path, content: bytes) -> Any:
        try:
            text = content.decode()
        except UnicodeDecodeError as fault:
            raise DataError(f"{path}: unreadable ({fault})") from None
        if path.name in self.schemas:
            return read_records(path, text, self.schemas[path.name])
        if not text.strip():
            raise DataError(f"{path}: holds no text")
        return text


WIKISQL = TextSet(
    "wikisql",
    (("train.jsonl", "train.tables.jsonl", "test.jsonl", "test.tables.jsonl"), ("dev.jsonl", "dev.tables.jsonl")),
    {f"{part}.jsonl": WIKISQL_QUESTION for part in ("train", "dev", "test")}
    | {f"{part}.tables.jsonl": WIKISQL_TABLE for part in ("train", "dev", "test")},
    inside=("data",),
    check=check_wikisql,
)
"""Zhong, Xiong and Socher, "Seq2SQL", 2017; BSD-3-Clause. The stand-in has only the official dev questions."""
GSM8K = TextSet(
    "gsm8k",
    (("train.jsonl", "test.jsonl"),),
    dict.fromkeys(("train.jsonl", "test.jsonl"), GSM8K_QUESTION),
    inside=("grade_school_math/data",),
    OFFICIAL={
        "train.jsonl": "sha256:17f347dc51477c50d4efb83959dbb7c56297aba886e5544ee2aaed3024813465",
        "test.jsonl": "sha256:3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    },
)
"""Cobbe et al., "Training Verifiers to Solve Math Word Problems", 2021; MIT. Digests of openai/grade-school-math."""
SPIDER = TextSet(
    "spider",
    (("train_spider.json", "dev.json", "tables.json"),),
    dict.fromkeys(("train_spider.json", "dev.json"), SPIDER_QUESTION) | {"tables.json": SPIDER_DATABASE},
    inside=("spider", "spider_data"),
    OFFICIAL={
        "train_spider.json": "git:673f7c4ca415a4fd1ebb8654960c2ff18cbc90c3",
        "dev.json": "sha256:30d64a3fccde493226df79687aed9e4a1c0129525baf44f29c0573d914d758a4",
        "tables.json": "sha256:61bb20aa401f03164e2d7f3b16509b7b5f79cc9c943ca7bd159046df1159e2ed",
    },
    check=check_spider,
)
"""Yu et al., "Spider", 2018; CC BY-SA 4.0. The databases are not used."""
SQUAD = TextSet(
    "squad",
    (("train-v1.1.json", "dev-v1.1.json"), ("xquad.en.json",)),
    dict.fromkeys(("train-v1.1.json", "dev-v1.1.json", "xquad.en.json"), SQUAD_ARTICLE),
    OFFICIAL={
        "train-v1.1.json": "sha256:3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
        "dev-v1.1.json": "sha256:95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
        "xquad.en.json": "sha256:e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29",
    },
    check=check_squad,
)
"""Rajpurkar et al., "SQuAD", 2016; CC BY-SA 4.0. The stand-in is XQuAD's English part: 240 dev paragraphs."""
WIKITEXT2 = TextSet("wikitext2", (("wiki.test.tokens",), ("test.txt",)), {}, inside=("wikitext-2",))
"""Merity et al., "Pointer Sentinel Mixture Models", 2016; CC BY-SA. The test part, tokens as published."""
PILE10K = TextSet("pile10k", (("pile-10k.jsonl",),), {"pile-10k.jsonl": DOCUMENT})
"""The first 10,000 documents of the Pile (Gao et al., 2020): one JSON object with "text" on each line."""
TINYSTORIES = TextSet(
    "tinystories", (("TinyStories-train.txt", "TinyStories-valid.txt"), ("train.txt", "valid.txt")), {}
)
"""Eldan and Li, "TinyStories", 2023; CDLA-Sharing-1.0. Stories end with ``<|endoftext|>``."""
SETS = {each.NAME: each for each in (WIKISQL, GSM8K, SPIDER, SQUAD, WIKITEXT2, PILE10K, TINYSTORIES)}
