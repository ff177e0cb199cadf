"""A rehearsal: smoke records make tables and pages that say so, and never the paper's."""

from __future__ import annotations

import os
from pathlib import Path

import programs
import pytest
from record_samples import grown, record

from experiments.analysis.build import from_cells, reduce_all
from experiments.analysis.collect import Reader
from experiments.analysis.rehearsal import RehearsalReader, rehearsed
from experiments.paths import ROOT
from experiments.store.records import Store
from experiments.studies import STUDIES
from experiments.tables import MACROS
from experiments.tables.one_d import FOUR


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Smoke records of the baseline row, of changed sources."""
    made = Store(tmp_path)
    runs = rehearsed(FOUR.runs["baseline"])
    for seed in runs.seeds:
        made.write(record(runs.config(seed), {"grown": grown([6.0], 1e-5, 1e-5)}, clean=False))
    return made


def test_every_number_of_a_rehearsal_says_so(store: Store) -> None:
    reader = RehearsalReader(store)
    text = from_cells((FOUR,), reduce_all(reader, (FOUR,)), reader)
    assert text.startswith(f"% {RehearsalReader.mark}\n")
    assert r"baseline & \emph{rehearsal} 6.00 & \emph{rehearsal} 100\% &" in text
    plain = Reader(store, allow_dirty=True)
    assert "6.00" not in from_cells((FOUR,), reduce_all(plain, (FOUR,)), plain), "no table of the paper takes them"


def test_every_row_can_be_asked_for(store: Store) -> None:
    """Also rows whose settings have no smoke form."""
    cells = reduce_all(RehearsalReader(store), MACROS)
    assert sum(cell.complete for cell in cells.values()) > 4


def test_the_study_has_all_runs_of_its_table() -> None:
    assert [*STUDIES["rehearsal"].make()] == [rehearsed(runs) for runs in FOUR.runs.values()]


@pytest.mark.slow
def test_a_rehearsal_goes_the_whole_way(tmp_path: Path) -> None:
    env = {**os.environ, "NGN_OUTPUT": str(tmp_path), "OMP_NUM_THREADS": "1"}
    for script, *words in (
        ("sweep.py", "run", "rehearsal"),
        ("build_paper_data.py", "--rehearsal"),
        ("build_report.py", "--rehearsal"),
    ):
        done = programs.run(ROOT / "scripts" / script, *words, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
    page = (tmp_path / "rehearsal" / "report.html").read_text()
    assert f'<div class="watermark" aria-hidden="true">{RehearsalReader.mark}</div>' in page
    table = (tmp_path / "rehearsal" / "data_generated.tex").read_text()
    assert table.count(r"\emph{rehearsal}") >= 24, "six rows of four cells"
