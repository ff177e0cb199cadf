"""What benchmarks that write a file per unit share: whether code is committed, the files, and tables in pages."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from experiments.store import provenance

HERE = Path(__file__).resolve().parent


def committed() -> bool:
    """Return whether the library and the benchmarks are committed."""
    changed = subprocess.run(["git", "-C", HERE, "status", "--porcelain", "--", "*.py"], capture_output=True, text=True)
    return provenance.code().clean and changed.returncode == 0 and not changed.stdout


def write(path: Path, value: dict[str, Any]) -> None:
    """Write the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    os.replace(part, path)


def write_between_marks(page: Path, name: str, text: str) -> None:
    """Write ``text`` between the marks of ``name`` in a page.

    Raises:
        ValueError: if the page has no such marks.
    """
    begin, end = (f"<!-- {name}: {word} -->" for word in ("begin", "end"))
    before = page.read_text()
    after, found = re.subn(f"{begin}.*{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", before, flags=re.DOTALL)
    if not found:
        raise ValueError(f"{page} has no marks {begin}, {end}")
    page.write_text(after)
