"""The controls of learned sizes: every row keeps its budget, a training runs once, and the table says where it lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from experiments.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_allocation
from allocation.controls import CONTROLS
from bench_allocation import NAMES, ROWS, table


def record(folder: Path, control: str, *more: str) -> dict:
    path = folder / f"{control}.json"
    bench_allocation.main(["--controls", control, "--seeds", "0", "--steps", "2", "--folder", str(folder), *more])
    return json.loads(path.read_text())


@pytest.mark.parametrize("control", CONTROLS)
def test_every_row_is_trained_within_the_budget(control: str, tmp_path: Path) -> None:
    found = {unit["row"]: unit for unit in record(tmp_path, control)["units"]}
    assert list(found) == list(ROWS) == list(NAMES)
    limit = float(CONTROLS[control].share[:-1]) / 100 * found["all"]["parameters"]
    for row, unit in found.items():
        assert row == "all" or 0.9 * limit < unit["parameters"] <= limit, row
    assert found["even"]["sizes"] == found["cut"]["sizes"] == found["learned"]["sizes"], "no evidence in two steps"
    assert found["scratch"]["error"] == found["even"]["error"]
    assert len({found[row]["error"] for row in ("even", "learned", "by hand", "cut", "all")}) == 5


def test_a_training_in_the_file_is_skipped_and_other_code_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = record(tmp_path, "maps")
    path = tmp_path / "maps.json"
    path.write_text(json.dumps(first | {"units": [u for u in first["units"] if u["row"] != "cut"]}))
    capsys.readouterr()
    again = record(tmp_path, "maps")
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()] == ["'cut',"]
    assert again["units"][-1]["error"] == next(u["error"] for u in first["units"] if u["row"] == "cut")
    path.write_text(json.dumps(first | {"commit": "another"}))
    with pytest.raises(SystemExit, match="another commit"):
        record(tmp_path, "maps")


def made(row: str, seed: int, error: float, sizes: tuple[int, ...] = (6, 6)) -> dict:
    return {"row": row, "seed": seed, "error": error, "sizes": sizes, "parameters": 1, "processor_seconds": 2.0}


def test_the_table_first_says_where_learned_sizes_lose() -> None:
    units = [made(row, seed, 0.5) for row in ROWS for seed in (0, 1) if row not in ("learned", "shuffled")]
    units += [made("learned", 0, 0.4, (2, 10)), made("learned", 1, 0.6), made("even", 2, 9.0)]
    units += [made("shuffled", 0, 1.0), made("shuffled", 1, 1.0, (5, 7))]
    text = table([{"control": "layers", "share": "25%", "steps": 2, "units": units}])
    first, _, rest = text.partition("| control")
    assert " ".join(first.split()) == (
        "Learned sizes do not beat even ones with every seed on layers (better with 1 of 2 seeds). "
        "From shuffled targets the sizes were the even ones in 1 of 2 trainings."
    )
    assert "| **learned on evidence** | 4, 8 | 0.500 ± 0.14 | +0.000 ± 0.14 | 1.00 | 2 |" in rest
    assert "even sizes from scratch | 6, 6 | 0.500 ± 0.00 | -- | 1.00 | 2 |" in rest, "seed 2 is not whole"
    assert len(rest.splitlines()) == 2 + len(NAMES)


def test_the_committed_records_are_of_the_controls() -> None:
    with pytest.raises(SystemExit):
        bench_allocation.main(["--steps", "2"])
    for path in (ROOT / "benchmarks" / "results" / "allocation").glob("*.json"):
        kept = json.loads(path.read_text())
        assert (kept["control"], kept["steps"]) == (path.stem, CONTROLS[path.stem].steps)
        assert kept["commit"]
        assert {unit["row"] for unit in kept["units"]} <= set(NAMES)
