"""Make the tables of models from the files."""

from __future__ import annotations

import json
import statistics
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

Row = dict[str, Any]
CHECKS = ("found", "half", "equal", "trained", "masked", "deployed", "saved", "loaded", "resumed", "exported")
COMPARED = ("equal", "masked", "deployed")
WORDS = {
    "found": "finding", "half": "cutting", "equal": "comparing", "trained": "training", "masked": "cutting in place",
    "deployed": "deploying", "saved": "saving", "loaded": "loading", "resumed": "resuming", "exported": "exporting",
}  # fmt: skip
RIGHT, WRONG, FAILS, NOTHING = "right", "wrong", "fails", "nothing"
UNKNOWN = "not compared"


def read(folder: Path) -> list[Row]:
    """The files of a folder, in the order of their names."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def judged(model: Row) -> str:
    """What came of Torch-Pruning on a model; it needs to know the layers that make the outputs."""
    if not model["ngn"].get("last"):
        return UNKNOWN
    row = model["torch_pruning"]
    for key in ("fault", "cut", "runs"):
        if row.get(key, "yes") != "yes":
            return NOTHING if "removes nothing" in row[key] else FAILS
    return FAILS if row.get("step") != "yes" else RIGHT if row.get("equal") == "yes" else WRONG


def failing(own: Row) -> list[str]:
    """The checks of NGN that a model fails, or else those that were not made."""
    if "fault" in own:
        return ["ending"]
    fails = [check for check in CHECKS if own.get(check, "yes") != "yes"]
    return [WORDS[check] for check in fails or CHECKS if check in fails or check not in own]


def table(rows: list[Row], names: dict[str, list[str]]) -> str:
    """A summary, and one table for each collection.

    Args:
        names: those of all models of each collection; models without a row are listed.
    """
    ran = [row for row in rows if "not_run" not in row]
    parts = [_summary(ran)]
    for collection in names:
        these = [row for row in ran if row["collection"] == collection]
        left_out = [row for row in rows if row["collection"] == collection and "not_run" in row]
        lines = [
            f"## {collection}\n",
            "| model | million parameters | sizes | in sizes | left at half | trained | difference | in train mode "
            "| finding | all checks | Torch-Pruning: left at half | cut |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | --- |",
            *map(_line, these),
        ]
        if left_out:
            large = ", ".join(f"{row['name']} ({row['not_run']})" for row in left_out)
            lines.append("\n" + textwrap.fill(f"Not run, as they are too large for the machine: {large}.", 120))
        have = {row["name"] for row in rows if row["collection"] == collection}
        if to_come := [name for name in names[collection] if name not in have]:
            lines.append("\n" + textwrap.fill(f"Not run yet: {', '.join(to_come)}.", 120, break_on_hyphens=False))
        parts.append("\n".join(lines))
    if reasons := _reasons(ran):
        parts.append("## What fails\n\n| model | what | why |\n| --- | --- | --- |\n" + "\n".join(reasons))
    return "\n\n".join(parts)


def _summary(rows: list[Row]) -> str:
    text = []
    for collection in dict.fromkeys(row["collection"] for row in rows):
        these = [row for row in rows if row["collection"] == collection]
        holds = sum(not failing(row["ngn"]) for row in these)
        compared = sum(judged(row) != UNKNOWN for row in these)
        right = sum(judged(row) == RIGHT for row in these)
        text.append(f"{holds} of {len(these)} models of {collection} (Torch-Pruning: {right} of {compared})")
    wrong = sum(any(row["ngn"].get(check, "yes") != "yes" for check in COMPARED) for row in rows)
    spent = [_passes(row["ngn"]) for row in rows if row["ngn"].get("pass_seconds")]
    most = max(row["ngn"]["find_seconds"] - 10 * row["ngn"]["pass_seconds"] for row in rows if _passes(row["ngn"]))
    made = Counter((row["collection"], row["commit"][:8]) for row in rows if "commit" in row)
    others = sum(judged(row) == WRONG for row in rows)
    return textwrap.fill(
        f"**All checks hold for {', '.join(text)}.** NGN cuts {wrong} of all {len(rows)} models so that they compute "
        f"something else, Torch-Pruning {others}. Finding takes {statistics.median(spent):.1f} forward passes in the "
        f"median, and never more than ten passes and {max(0.0, most):.1f} seconds. Rows by commit: "
        f"{', '.join(f'{collection} {commit} {n}' for (collection, commit), n in made.items())}.",
        120,
    )


def _passes(own: Row) -> float:
    return own["find_seconds"] / own["pass_seconds"] if own.get("pass_seconds") else 0.0


def _largest(own: Row, mode: str) -> str:
    """The largest difference of all comparisons in a mode."""
    every = [each[mode] for each in own.get("differences", {}).values() if mode in each]
    said = [each for each in every if isinstance(each, str)]
    return said[0] if said else f"{max(every):.0e}" if every else "--"


def _line(row: Row) -> str:
    own, other = row["ngn"], row["torch_pruning"]
    cells = [
        row["name"],
        f"{own['parameters'] / 1e6:.2f}" if "parameters" in own else "--",
        f"{own['kept']} of {own['groups']}" if "kept" in own else "--",
        f"{own['kept_share']:.0%}" if "kept_share" in own else "--",
        f"{own['left']:.0%}" if "left" in own else "--",
        f"{own['trained_left']:.0%}" if "trained_left" in own else "--",
        _largest(own, "eval"),
        _largest(own, "train"),
        f"{_passes(own):.1f}" if _passes(own) else "--",
        ", ".join(f"not {what}" for what in failing(own)) or "yes",
        f"{other['left']:.0%}" if "left" in other and judged(row) != UNKNOWN else "--",
        judged(row),
    ]
    return f"| {' | '.join(cells)} |"


def _reasons(rows: list[Row]) -> list[str]:
    """Why NGN fails, or leaves a size that it found; and why Torch-Pruning fails."""
    lines, plain = [], str.maketrans("|`\n", "/' ")
    for row in rows:
        own, other = row["ngn"], row["torch_pruning"]
        said = [("all checks", own["fault"])] if "fault" in own else []
        if own.get("groups") == 0:
            said.append((WORDS["half"], f"no size is found. What fixes them: {', '.join(own['unknown'])}"))
        else:
            said += [(WORDS[check], own[check]) for check in CHECKS if own.get(check, "yes") != "yes"]
        said += [(f"{n} sizes left as they are", why) for why, n in Counter(own.get("failed_trial", [])).items()]
        if own.get("stay_masked"):
            said.append((f"{own['stay_masked']} sizes masked until they are deployed", "not cut in place"))
        if judged(row) == FAILS:
            checks = (other.get(check, "yes") for check in ("fault", "cut", "runs", "step"))
            said.append(("Torch-Pruning", next(found for found in checks if found != "yes")))
        lines += [f"| {row['name']} | {what} | `{why.translate(plain)}` |" for what, why in said]
    return lines
