"""The Markdown pages: prose wraps at 120 columns (tables, code and long links are free), links lead somewhere, and
docs/records.md describes what ``experiments/store/record.py`` declares.
"""

import ast
import inspect
import re
from itertools import pairwise

from pydantic import TypeAdapter

from experiments.core.paths import ROOT
from experiments.store import record
from experiments.store.record import PHASES, Record

MADE = {ROOT / "docs" / "results.md"}  # by a template, a paragraph a line
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})


def test_prose_wraps_at_120_columns():
    long = []
    for page in set(PAGES) - MADE:
        prose = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.S | re.M)
        lines = [line for line in prose.splitlines() if not re.match(r" *(\||#|!?\[|<)|    ", line)]
        long += [f"{page.relative_to(ROOT)}: {line}" for line in lines if len(line) > 120 and "](" not in line]
    assert not long


def test_links_lead_somewhere():
    broken = []
    for page in PAGES:
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        broken += [f"{page.relative_to(ROOT)}: {target}" for target in targets if not (page.parent / target).exists()]
    assert not broken


SCHEMA = TypeAdapter(Record).json_schema()


def texts():
    """Yield ((class, key), the text below the key) of every key of a record."""
    for block in ast.parse(inspect.getsource(record)).body:
        for key, below in pairwise(getattr(block, "body", ())):
            if isinstance(key, ast.AnnAssign) and isinstance(below, ast.Expr):
                yield (block.name, key.target.id), " ".join(ast.literal_eval(below.value).split())


TEXTS = dict(texts())


def rows(block, prefix=""):
    """Yield the line of every key, and of the keys inside a block."""
    for name, part in block["properties"].items():
        choices = [part, *part.get("anyOf", ())]
        inner = [SCHEMA["$defs"][one["$ref"].rpartition("/")[2]] for one in choices if "$ref" in one]
        if inner:
            yield from rows(inner[0], f"{prefix}{name}.")
        else:
            yield f"| `{prefix}{name}` | {TEXTS[block['title'], name]} |"
        if prefix + name == "phases":
            yield from (f"| `phases.{phase}` | {says} |" for phase, says in PHASES.items())


def test_the_page_has_every_key_of_a_record():
    sections = re.split(r"^## ", (ROOT / "docs" / "records.md").read_text(), flags=re.M)
    for title, block in (("The run", SCHEMA), ("A phase", SCHEMA["$defs"]["Result"])):
        (section,) = (one for one in sections if one.startswith(title))
        table = section.partition("| --- | --- |\n")[2].partition("\n\n")[0].rstrip("\n")
        assert table == (wanted := "\n".join(rows(block))), f"the table of '{title}' must be:\n{wanted}"
