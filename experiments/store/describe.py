"""Write the JSON schema of a record and the tables of docs/records.md from the classes of :mod:`record`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from experiments.store.record import Record

_TABLE = re.compile(r"(?<=\n\| key \| value \|\n\| --- \| --- \|\n)(?:\|.*\n)+")


class _Plain(GenerateJsonSchema):
    """A JSON schema without titles and defaults, which would repeat what the keys say."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: Any) -> Any:
        return self.generate_inner(schema["schema"])


def schema() -> dict[str, Any]:
    """Return the JSON schema of a record."""
    made = TypeAdapter(Record).json_schema(schema_generator=_Plain)
    blocks = made["$defs"]
    made["$defs"] = {"Result": blocks["Result"]}  # the only block that several keys refer to
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_inlined(made, blocks)}


def _inlined(part: Any, blocks: dict[str, Any]) -> Any:
    """Put each block but ``Result`` in the place of its reference. This saves the validator one call for each block."""
    if isinstance(part, list):
        return [_inlined(one, blocks) for one in part]
    if not isinstance(part, dict):
        return part
    name = str(part.get("$ref", "")).rpartition("/")[2]
    if name and name != "Result":
        part = {**blocks[name], **{key: value for key, value in part.items() if key != "$ref"}}
    return {key: _inlined(value, blocks) for key, value in part.items()}


def generated_files(root: Path) -> dict[Path, str]:
    """Return the files of a checkout in ``root`` that come from the classes: path → content."""
    whole, page = schema(), root / "docs" / "records.md"
    return {
        root / "experiments" / "store" / "record.schema.json": json.dumps(whole, indent=1, ensure_ascii=False) + "\n",
        page: _page(page.read_text(), whole),
    }


def _page(text: str, whole: dict[str, Any]) -> str:
    """Return the page with its first two tables (of a run and of a phase) made again."""
    result = whole["$defs"]["Result"]
    tables = iter((_rows(whole), _rows(result)))
    return _TABLE.sub(lambda _: "".join(f"| `{key}` | {says} |\n" for key, says in next(tables)), text, count=2)


def _rows(block: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted key, description) of every key, and of the keys inside a block."""
    for name, part in block["properties"].items():
        if "required" not in part or "properties" not in part:
            yield prefix + name, part["description"]
        yield from _rows(part, f"{prefix}{name}.") if "properties" in part else ()
