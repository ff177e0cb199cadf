"""Print tables in the terminal: our value, the published one, the interval and the verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from rich.markup import escape
from rich.table import Table as RichTable

from experiments.analysis.collect import Problem
from experiments.analysis.compare import Comparison, totals, verdict_counts
from experiments.analysis.tables import print_number
from experiments.analysis.verdict import AGREES, DISAGREES, NOT_RUN
from experiments.core.blocks import printable

_STYLES = {AGREES: "green", DISAGREES: "red"}
_SIGNS = {"lambda": "λ", "alpha": "α", "beta": "β", "kappa": "κ", "times": "×"}
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_PLAIN: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\\,\$\\pm\$\\,", " ± "),
    (r"10\^\{(-?\d+)\}", lambda match: "10" + match[1].translate(_RAISED)),
    (r"\\texttt\{(.*?)\}", r"\1"),
    (rf"\\({'|'.join(_SIGNS)})", lambda match: _SIGNS[match[1]]),
    (r"\b([A-Za-z])_(\d)", lambda match: match[1] + match[2].translate(_LOWERED)),
    (r"\\%", "%"),
    (r"\$", ""),
)


def tex_to_text(text: str) -> str:
    r"""Turn the TeX of a cell or label into plain text: ``6.10\,$\pm$\,1.45`` → ``6.10 ± 1.45``."""
    for pattern, replacement in _PLAIN:
        text = re.sub(pattern, replacement, text)
    return text


def interval_text(item: Comparison) -> str:
    """Format the intervals of a comparison with the precision of the published numbers."""
    texts = []
    for part in item.verdict.parts:
        span = f"[{print_number(part.low, part.spec)}, {print_number(part.high, part.spec)}]"
        texts.append(span if len(item.verdict.parts) == 1 else f"{part.name} {span}")
    return "\n".join(texts)


def rich_table(items: Sequence[Comparison], title: str) -> RichTable:
    """Return one line per cell, below the label and the stand-in of its row."""
    table = RichTable(title=title, title_justify="left", title_style="bold", box=None, header_style="dim")
    for head in ("", "ours", "n", "published", "95 % interval", "verdict"):
        table.add_column(head, justify="right" if head in ("ours", "n", "published") else "left", overflow="fold")
    before: tuple[str, str] | None = None
    for item in items:
        here = (item.row.key, item.stand_in)
        if here != before:
            label = tex_to_text(item.row.title) or item.table.title
            name = f" (stand-in: {item.stand_in})" if item.stand_in else ""
            table.add_row(escape(printable(f"{label}{name}")), style="cyan")
            before = here
        cells = (
            f"  {item.column.title}",
            tex_to_text(item.cell.text),
            f"{item.cell.n}/{item.cell.wanted}" if item.cell.wanted else "",
            tex_to_text(item.published_text),
            interval_text(item),
            ": ".join(filter(None, (item.verdict.text, item.verdict.advice))),
        )
        style = "" if item.stand_in else _STYLES.get(item.verdict.word, "")
        table.add_row(*(escape(printable(cell)) for cell in cells), style=style)
    return table


def summary(items: Sequence[Comparison]) -> str:
    """Summarise how many cells have runs, facts by verdict, and the expectation by chance."""
    counts = verdict_counts(items)
    return f"{counts.total() - counts[NOT_RUN]} of {counts.total()} cells have runs. {totals(items)}"


def print_problems(problems: Iterable[Problem]) -> None:
    """Print one line per problem."""
    for problem in problems:
        print(f"{problem.kind}: {problem}")
