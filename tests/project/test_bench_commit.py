"""When sizes of a trained network are fixed: every way is within the share, runs once, and has a column."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from experiments.paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import bench_commit
from bench_commit import WAYS, main, table


@pytest.mark.parametrize("work", bench_commit.LENGTHS)
def test_every_way_is_trained_once(
    work: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["--scale", "tiny", "--work", work, "--shares", "50", "--seeds", "3", "--folder", str(tmp_path)]
    main(given)
    path = tmp_path / f"{work}-50-s3.json"
    found = json.loads(path.read_text())
    assert list(found["ways"]) == list(WAYS)
    (lacking, score), *_ = reversed(found["ways"].items())
    path.write_text(json.dumps(found | {"ways": {k: v for k, v in found["ways"].items() if k != lacking}}))
    capsys.readouterr()
    main(given)
    assert capsys.readouterr().out == f"{path.stem} {lacking}: {score:.3f}\n"
    monkeypatch.setattr(bench_commit, "pretrained", None)  # nothing lacks, so nothing is trained
    main(given)
    path.write_text(json.dumps(found | {"commit": "another", "ways": {}}))
    with pytest.raises(SystemExit, match="another commit"):
        main(given)


def test_the_table_has_gains_over_the_usual_way_and_only_whole_files() -> None:
    facts = {"work": "transformer", "share": 50, "unit": "bits", "better": -1, "dense": 2.0}
    files = [facts | {"ways": {way: at + 0.01 * seed for at, way in enumerate(WAYS, 3)}} for seed in (0, 1)]
    *_, line = table([*files, facts | {"ways": {}}]).splitlines()
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:5] == ["transformer, bits", "50 %", "2.000", "3.005", "4.005 (-1.000 ± 0.000)"]
    assert cells[-1] == "2"


def test_the_default_folder_is_for_real_data() -> None:
    with pytest.raises(SystemExit):
        main(["--scale", "tiny"])
