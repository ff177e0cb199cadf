"""The cells as the page's panels hold them: value, interval, numbers of each seed, arithmetic, problems."""

from __future__ import annotations

from typing import Any

from experiments.analysis.collect import Reader
from experiments.analysis.compare import Comparison
from experiments.analysis.explain import arithmetic, digits
from experiments.analysis.terminal import plain
from experiments.page.runs import RunTable


def key_of(item: Comparison) -> str:
    """``macro.row.column``, and ``~ stand-in`` behind it for the cells of a stand-in."""
    return f"{item.name}~{item.stand_in}" if item.stand_in else item.name


def row_label(item: Comparison) -> str:
    """The printed labels of the cell's row, or the title of a single number."""
    return plain(item.row.title) or item.table.title


def payload(item: Comparison, reader: Reader, table: RunTable) -> dict[str, Any]:
    """What the panel of a cell shows.

    Runs are numbers of ``table``. ``beside`` pairs a place among the cell's runs with a record that was read with it,
    such as the fixed model of a learned size.
    """
    cell = item.cell
    companions = {run.run_id: run.companions for run in item.runs(reader)}
    return {
        "name": item.name,
        "title": f"{row_label(item)}: {item.column.title}" if not item.table.inline else item.table.title,
        "table": item.table.title,
        "stand_in": item.stand_in,
        "ours": plain(cell.text),
        "printed": plain(cell.printed),
        "published": plain(item.published_text),
        "verdict": item.verdict.word,
        "calibrated": item.verdict.calibrated,
        "n": cell.n,
        "wanted": cell.wanted,
        "seeds": item.row.seeds,
        "parts": [
            [part.name, part.published, part.low, part.high, part.inside, part.narrow] for part in item.verdict.parts
        ],
        "data": reader.data_notes(cell.run_ids),
        "runs": [table.at(run_id) for run_id in cell.run_ids],
        "beside": [
            [place, table.at(other.run_id)]
            for place, run_id in enumerate(cell.run_ids)
            for other in companions[run_id].values()
        ],
        "samples": [
            [quantity, [[float(digits(number)) for number in gate] for gate in gates]]
            for quantity, gates in cell.samples.items()
        ],
        "arithmetic": [
            [step.statistic, step.quantity, step.gate, step.gates, float(digits(step.result))]
            for step in arithmetic(item.table, item.row, item.column.key, cell)
        ],
        "problems": [[problem.kind, problem.where, problem.text] for problem in cell.problems],
    }
