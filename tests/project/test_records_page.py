"""docs/records.md describes every key of a record, and nothing else."""

import json
import re
from collections.abc import Iterator
from typing import Any

from experiments.paths import ROOT


def keys(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Return the dotted names of the schema's keys; for a block, those of its parts."""
    for name, part in schema["properties"].items():
        if "properties" in part:
            yield from keys(part, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_every_key_of_a_record_is_described() -> None:
    schema = json.loads((ROOT / "experiments" / "store" / "record.schema.json").read_text())
    run, phase = (set(keys(part)) for part in (schema, schema["definitions"]["phase"]))
    sections = re.split(r"^## ", (ROOT / "docs" / "records.md").read_text(), flags=re.M)
    described = {
        section.partition("\n")[0]: set(re.findall(r"^\| `([^`]+)` \|", section, re.M)) for section in sections
    }
    assert described["The run"] == run | {"phases"}
    assert described["A phase"] == phase
