"""``run.py --list``: every study with its cost, tables and figures, without torch."""

import re
import subprocess
import sys

from experiments.cli import listing
from experiments.core.paths import ROOT
from experiments.studies import FIGURES, STUDIES, macros


def test_the_list_has_every_study_with_its_runs_and_outputs():
    code = "import sys; from experiments.cli.app import main; main(['--list'])"
    code = f"try:\n {code}\nexcept SystemExit as end:\n assert not end.code and 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = dict(re.findall(r"^(\w+) {2,}(\S.*)$", done.stdout, re.M))
    assert rows.keys() == STUDIES.keys() | {"study"}
    assert rows["schedules"].startswith("300 ")
    assert "GiB" in rows["vision"], "its records tell"
    assert rows["lora_llama3"].split()[-2:] == ["?", "?"], "the records of a small model tell nothing of a large one"
    shown = {name for line in re.findall(r"→((?:.*\n {6})*.*)", done.stdout) for name in re.split(r"[,\s]+", line)}
    assert shown - {""} == {table.name for table in macros() if table.runs} | FIGURES.keys()


def test_a_table_belongs_to_the_smallest_study_with_its_runs(monkeypatch):
    monkeypatch.setattr(listing, "_tables_and_figures", lambda: iter([("one", {"a"}), ("both", {"a", "c"})]))
    runs = {"all": dict.fromkeys("ab"), "first": dict.fromkeys("a"), "third": dict.fromkeys("cd")}
    outputs = listing.outputs_of(runs)
    assert outputs == {"all": ["both"], "first": ["one", "both"], "third": ["both"]}
