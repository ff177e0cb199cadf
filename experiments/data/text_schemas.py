"""The form of each record in the text data sets, and what records of several files must agree on.

A schema has the keys that the suite reads. Records may have others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictFloat, StrictInt, StrictStr, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from experiments.data.source import DataError
from experiments.store.records import strict_json

FileRecords = dict[str, Any]
"""File name → its records."""
ColumnNumber = Annotated[StrictInt, Field(ge=0)]
Condition = tuple[ColumnNumber, Annotated[StrictInt, Field(ge=0, le=2)], StrictStr | StrictInt | StrictFloat]
"""WikiSQL: column, operator (= > <), value."""


def _record(**keys: Any) -> Any:
    """Return the type of a record with these keys."""
    return TypedDict("Record", keys)  # type: ignore[operator]


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
_ANSWERS = Annotated[list[_record(text=StrictStr)], Field(min_length=1)]  # type: ignore[valid-type]
_SQUAD_QUESTION = _record(id=StrictStr, question=StrictStr, answers=_ANSWERS)
SQUAD_ARTICLE = _record(paragraphs=list[_record(context=StrictStr, qas=list[_SQUAD_QUESTION])])  # type: ignore[valid-type]
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
