"""docs/records.md describes what ``experiments/store/record.py`` declares."""

import re
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from experiments.core.paths import ROOT
from experiments.store.record import PHASES, Record

SCHEMA = TypeAdapter(Record).json_schema()


def rows(block: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the line of every key, and of the keys inside a block."""
    for name, part in block["properties"].items():
        choices = [part, *part.get("anyOf", ())]
        inner = [SCHEMA["$defs"][one["$ref"].rpartition("/")[2]] for one in choices if "$ref" in one]
        if inner:
            yield from rows(inner[0], f"{prefix}{name}.")
        else:
            yield f"| `{prefix}{name}` | {part['description']} |"
        if prefix + name == "phases":
            yield from (f"| `phases.{phase}` | {says} |" for phase, says in PHASES.items())


def test_the_page_has_every_key_of_a_record() -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / "records.md").read_text(), flags=re.M)
    for title, block in (("The run", SCHEMA), ("A phase", SCHEMA["$defs"]["Result"])):
        (section,) = (one for one in sections if one.startswith(title))
        table = section.partition("| --- | --- |\n")[2].partition("\n\n")[0].rstrip("\n")
        assert table == (wanted := "\n".join(rows(block))), f"the table of '{title}' must be:\n{wanted}"


def test_every_block_refuses_other_keys() -> None:
    assert [block["additionalProperties"] for block in (SCHEMA, *SCHEMA["$defs"].values())] == [False] * 10
    assert set(SCHEMA["required"]) == set(SCHEMA["properties"]) - {"base", "converted", "curves_sha256", "sha256"}
    assert SCHEMA["$defs"]["Result"]["required"] == ["status", "count", "parameters", "steps", "seconds"]
