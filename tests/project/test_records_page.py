"""The schema of a record and docs/records.md are what ``experiments/store/record.py`` says."""

import json
import re

from experiments.paths import ROOT
from experiments.store import describe
from experiments.store.record import PHASES


def test_the_schema_and_the_page_are_current() -> None:
    stale = [path.name for path, text in describe.generated_files(ROOT).items() if path.read_text() != text]
    assert not stale, "python scripts/describe_records.py writes them anew"


def test_the_page_has_every_key_of_a_record() -> None:
    schema = json.loads((ROOT / "experiments" / "store" / "record.schema.json").read_text())
    sections = re.split(r"^## ", (ROOT / "docs" / "records.md").read_text(), flags=re.M)
    described = {section.partition("\n")[0]: re.findall(r"^\| `([^`]+)` \|", section, re.M) for section in sections}
    assert {key.partition(".")[0] for key in described["The run"]} == set(schema["properties"])
    assert {key.partition(".")[0] for key in described["A phase"]} == set(schema["$defs"]["Result"]["properties"])
    assert {f"phases.{name}" for name in PHASES} <= set(described["The run"])


def test_the_limits_that_the_classes_declare_are_in_the_schema() -> None:
    schema = json.loads((ROOT / "experiments" / "store" / "record.schema.json").read_text())
    result = schema["$defs"]["Result"]
    blocks = [schema["properties"][name] for name in ("time", "execution", "data", "base", "code")]
    blocks += [result["properties"][name] for name in ("cost", "budget", "prunes_back")]
    assert all(block["additionalProperties"] is False and block["properties"] for block in (schema, result, *blocks))
    assert set(schema["required"]) == set(schema["properties"]) - {"base", "curves_sha256", "sha256"}
    assert result["required"] == ["status", "count", "parameters", "steps", "seconds"]
    assert schema["properties"]["phases"]["minProperties"] == 1
    assert result["properties"]["t"]["type"] == "array", "a key may be missing, but not null"
