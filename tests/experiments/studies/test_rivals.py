"""The comparison with rivals: its records are those of its configurations, and its table compares by seed."""

import json
import re
from statistics import median

import programs
import pytest

from experiments.config.compose import check
from experiments.config.identity import numerics, run_id
from experiments.config.schema import CheckedConfig
from experiments.core.paths import ROOT
from experiments.store.records import Store, read_record
from experiments.studies import rivals
from experiments.studies.rivals import METHODS, verdict


def test_verdicts():
    said = {"ahead": [0.5, 0.6, 0.7], "behind": [-0.5, -0.6, -0.7], "equal": [-0.1, 0, 0.1], "cannot tell": [-1, 0, 1]}
    assert [verdict(better, 0.3) for better in (*said.values(), [1.0])] == [*said, ""]


@pytest.mark.parametrize(("scale", "few"), [("full", ""), ("small", ""), ("front", ""), ("front", "--few")])
def test_the_figure_and_every_score_of_the_page_are_those_of_the_records(scale, few, tmp_path):
    picture = tmp_path / "drawn.svg"
    line = [ROOT / "scripts" / "rivals.py", "--scale", scale, "--figure", picture, *few.split()]
    done = programs.run(*line, cwd=ROOT)
    assert picture.read_bytes() == (ROOT / "docs" / f"rivals_{scale}{few.replace('--', '_')}.svg").read_bytes()
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    section = page.partition(f"<!-- rivals {scale}: begin -->")[2].partition("<!-- rivals")[0]
    scores = set(re.findall(r"\S+ ± [\d.]+" if scale == "full" else r"\| .* \|", section))
    assert (len(scores) > 10) == (scale != "small")  # the page has no table of short trainings
    if scale == "front":
        assert section.strip() == done.stdout.strip(), "also the verdicts below its tables"
        first = (ROOT / "README.md").read_text().partition("```python")[0]
        scores |= {f"| {score} |" for score in re.findall(r"\d\d\.\d\d(?: ± [\d.]+)?", first)}
        timed = json.loads((ROOT / "benchmarks" / "results" / "front.json").read_text())["front20"]
        members = {member["share"]: member["milliseconds"] for member in timed["one training, teacher"]}
        times = [f"{median(members[share]):.1f}" for share in (100, 75, 50, 25)]
        assert re.findall(r"% \| ([\d.]+) \|", first) == times
    assert all(score in done.stdout for score in scores)


def test_every_record_is_of_its_configuration_and_within_its_limit():
    records = [*map(read_record, Store(rivals.FOLDER).paths())]
    assert sum("converted" in record for record in records) == 432
    for record in records:
        config = CheckedConfig.model_validate(record["config"])
        assert record["run_id"] == run_id(config) == run_id(check(record["config"]))
        assert record["code"]["commit"]
        assert "benchmarks/results/rivals" in record.get("converted", "benchmarks/results/rivals")
        assert record["code"]["numerics"] == numerics(config)
        for phase in record["phases"].values():
            assert phase["count"]
            if "budget" in phase:
                assert phase["budget"]["cost"] <= phase["budget"]["limit"]


def test_the_study_names_the_records_of_its_rows():
    planned = {run.id for run in rivals.STUDY.runs()}
    records = map(read_record, Store(rivals.FOLDER).paths())
    others = [record for record in records if record["run_id"] not in planned]
    scratch = [record for record in others if record["config"]["task"]["split"] == "test"]
    assert [record["phases"].keys() for record in scratch] == [{"grown"}], "NGN from scratch without its second phase"
    assert {*METHODS} - {rivals.CUT} <= set(rivals.read(rivals.FOLDER).method) <= {*METHODS}
