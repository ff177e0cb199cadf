"""Made-up table cells that support or contradict a claim. No training, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.analysis.compare import Comparison
from experiments.analysis.formats import DASH
from experiments.analysis.reduce import Cell
from experiments.analysis.statistics import NO, PARTIAL, YES
from experiments.analysis.verdict import NOT_RUN, Verdict
from experiments.tables import MACROS


def cell(name: str, n: int | None = None, **value: float) -> tuple[str, Comparison]:
    """Make a table cell with these numbers, from ``n`` seeds or from every published one."""
    macro, row_key, column_key = name.split(".")
    (table,) = [table for table in MACROS if table.name == macro]
    row = table.row(row_key)
    used = row.seeds if n is None else n
    made = Cell({key.replace("__", "."): v for key, v in value.items()}, DASH, used, row.seeds, {}, ("run",) * used, ())
    return name, Comparison(table, row, table.column(column_key), made, None, Verdict(NOT_RUN))


def eight(column: str, values: Sequence[Any]) -> dict[str, Any]:
    rows = ("mnist-mlp", "mnist-conv", "cifar10-conv", "cora-gcn")
    return dict(cell(f"dataeightbody.{row}.{column}", value=value) for row, value in zip(rows, values, strict=True))


def stories(ratio: float) -> dict[str, Comparison]:
    rows = ("stories-heads", "stories-ffn", "stories-joint", "stories-mamba")
    soft = dict(cell(f"dataeightbody.{row}.soft", value=1.0) for row in rows)
    return soft | dict(cell(f"dataeightbody.{row}.truncated", value=ratio) for row in rows)


def dimensions(last: float) -> dict[str, Comparison]:
    rates = {1: 100.0, 2: 100.0, 4: 100.0, 6: 100.0, 8: last}
    return dict(cell(f"datafifteenbody.{d}.exact", rate=rate) for d, rate in rates.items())


TASKS = ("wikisql-easy", "wikisql-hard", "spider", "gsm8k", "squad")


def peft(ngn: float) -> dict[str, Comparison]:
    scores = {"ngn": ngn, "sora": 50.0, "adalora": 50.0}
    rows = {f"dataelevenbaselinesbody.{task}-{method}": score for task in TASKS for method, score in scores.items()}
    # SoRA misses the rank of Spider and GSM8K
    counts = {row: 13 if row.endswith("-sora") and ("spider" in row or "gsm8k" in row) else 17 for row in rows}
    cells = (cell(f"{row}.{key}", value=n) for key, of in (("count", counts), ("score", rows)) for row, n in of.items())
    return dict(cells)


def thirds(mid: float) -> dict[str, Comparison]:
    return dict(
        cell(f"dataelevenbody.lora-{task}.thirds", early__value=5, mid__value=mid, late__value=6) for task in TASKS[:2]
    )


def pairs(kind: str, truncated: float) -> dict[str, Comparison]:
    return dict(
        cell(f"dataeleven{kind}body.{task}.score", soft__value=60, truncated__value=truncated) for task in TASKS
    )


def ladders(sign: int, frozen: float = 1.0) -> dict[str, Comparison]:
    found = {}
    for target in ("heads", "ffn", "both"):
        for backbone, times in (("frozen", frozen), ("updated", 2.0)):
            for power in (2, 3, 4):
                name = f"datathirteenbody.{target}-{backbone}-1e-{power}"
                for column, number in (
                    ("kept", sign * power),
                    ("score", sign * power),
                    ("forgetting", -sign * power + 9),
                ):
                    found.update([cell(f"{name}.{column}", value=number * (times if column == "forgetting" else 1))])
    return found


def removal(ngn: float) -> dict[str, Comparison]:
    rows = {"ngn": ngn, "random": 17.0, "wanda": 70.0}
    return dict(
        cell(f"datafourteenbody.{row}.{column}", value=score)
        for row, score in rows.items()
        for column in ("score", "mixed_score")
    )


OF_CELLS: dict[str, tuple[dict[str, Comparison], dict[str, Comparison]]] = {
    "dimension": (dimensions(90.0), dimensions(50.0)),
    "vision_prune": (eight("prunes_back", [YES, PARTIAL, NO, YES]), eight("prunes_back", [YES] * 4)),
    "stories_truncation": (stories(1.02), stories(1.2)),
    "peft_baselines": (peft(60.0), peft(40.0)),
    "peft_middle": (thirds(9), thirds(1)),
    "lora_close": (pairs("lora", 61), pairs("lora", 50)),
    "adapter_close": (pairs("adapter", 61), pairs("adapter", 50)),
    "prune_monotone": (ladders(1), ladders(-1)),
    "prune_frozen": (ladders(1), ladders(1, frozen=3.0)),
    "prune_random": (removal(65.0), removal(20.0)),
}
