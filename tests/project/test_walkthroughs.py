"""What users read runs: README, tutorial, CONTRIBUTING, docs/extending word by word, the notebook, and the site."""

import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys

import matplotlib.pyplot as plt
import pytest
from PIL import Image
from walkthrough import COMMANDS, FILE, MISSING, PRINTED, PYTHON, SHOWN, Reader

from experiments.core.paths import ROOT

README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PLUGIN = ROOT / "examples" / "plugin"
EXTENDING = (ROOT / "docs" / "extending.md").read_text()
PAGES = {name: (ROOT / "docs" / "extending" / f"{name}.md").read_text() for name in ("task", "method", "study", "size")}
SHORT = {
    "make ": "make --dry-run ",  # it installs packages, and takes minutes
    ".ci/run": "test -x .ci/run && bash -n .ci/run",
    "python -m mypy": "python -m mypy --version",
    "python -m pytest -q": "python -m pytest -q -k wraps",  # the copy has no figures, which pages link to
    "python scripts/sweep.py run STUDY": "python scripts/sweep.py run smoke --dry-run",
    "python run.py ... ": "python run.py task=cora profile=smoke --cfg job ",
}
"""How a command of CONTRIBUTING.md begins → what is typed in its place, as it would take long."""
SMALL = {
    r"^(make \S+).*": r"\1 --dry-run",
    r"^(python run.py (?!.*--list)[^#]*)": r"\1 profile=smoke train.epochs=null train.steps=2 ",
    r"seed=0\.\.9": "seed=0",
}
"""What stands in a command of README.md → what is typed in its place."""


@pytest.mark.checkout
@pytest.mark.slow(seconds=30)
def test_the_commands_of_the_readme_run_in_a_fresh_clone(tmp_path):
    lines = [line for line in "".join(COMMANDS.findall(README)).splitlines() if line.strip()]
    assert {line.split()[0] for line in lines} == {"make", "python"}
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    reader = Reader(clone, clone)
    for line in lines:
        for usual, small in SMALL.items():
            line = re.sub(usual, small, line)
        reader.type(f"{line}\n")
    assert list(clone.glob("scratch/results/cifar10/*.json"))
    asked = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert asked.stdout == "", "what a newcomer does first does not make the checkout one of changed code"


@pytest.mark.slow(seconds=10)
def test_the_first_example_makes_a_model_of_transformers_smaller(tmp_path):
    pytest.importorskip("transformers")
    page = (ROOT / "docs" / "index.md").read_text()
    before, after = _parameters(Reader(tmp_path).compute(*PYTHON.findall(page)))
    assert 0.5 * before < after <= 0.6 * before
    assert (tmp_path / "small.safetensors").exists()


def _parameters(printed):
    ((before, after),) = re.findall(r"parameters: (\d+) -> (\d+)", printed.replace(",", ""))
    return int(before), int(after)


@pytest.mark.slow(seconds=30)
def test_the_tutorial_runs(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = []
    for language, block in re.findall(r"^```(sh|python)\n(.*?)^```", TUTORIAL, re.S | re.M):
        if "network()" in block and "def network" not in block:
            blocks[-1][1] += block  # it continues the block before
        else:
            blocks.append([language, block])
    reader = Reader(tmp_path)
    do = {"sh": reader.type, "python": reader.compute}
    first, record, sweep, table, study, own, task = (do[language](block) for language, block in blocks)
    assert len(re.findall(r"grown t = ", first)) == 3
    assert len(re.findall(r"^step ", record, re.M)) == 5
    assert sweep.count("already in") == 3
    counts = [float(line.split()[3]) for line in table.splitlines()[1:4]]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    assert "6 of 6 runs done" in study
    t, units = map(float, re.findall(r"t = ([\d.]+): (\d+) of 64", own)[0])
    assert units == 4 * (int(t + 0.5) + 1) < 0.95 * 64
    whole, left = _parameters(own)
    assert left < 0.95 * whole
    shown = TUTORIAL.split("It prints the report")[1].split("```")[1].splitlines()[1:]
    words = [re.sub(r"[-\d.,%]+(e-\d+)?", "0", line) for line in (*shown, *own.splitlines()[: len(shown)])]
    assert [line.split() for line in words[: len(shown)]] == [line.split() for line in words[len(shown) :]]
    assert float(re.findall(r"deployed (\S+)", own)[0]) < 1e-2
    assert 4 <= int(own.splitlines()[-1].split()[0]) < 0.95 * 64
    assert task.count("/sine-waves-ngn") == 2
    assert "factor: 2.0" in task


@pytest.mark.checkout
@pytest.mark.slow(seconds=10)
def test_the_commands_of_contributing_do_what_it_says(tmp_path):
    """In a copy of the checkout, the parts of a folder of one's own become parts of the suite, without the folder."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "--", ".", ":!results", ":!paper"]
    copy = tmp_path / "copy"
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
            (copy / name).chmod((ROOT / name).stat().st_mode)
    reader = Reader(copy, copy)
    console = re.findall(r"^```console\n(.*?)^```$", CONTRIBUTING, re.S | re.M)
    blocks = [*COMMANDS.findall(CONTRIBUTING), *(block.replace("$ ", "") for block in console)]
    for line in "".join(blocks).splitlines():
        start = next((start for start in SHORT if line.startswith(start)), "")
        reader.type(f"{SHORT.get(start, '')}{line.removeprefix(start)}\n")
    assert "/sine-waves-urgent-s0-" in reader.type("python run.py task=sine method=urgent profile=smoke")


@pytest.mark.slow(seconds=25)
def test_the_pages_of_extending_do_what_they_say(tmp_path):
    reader = Reader(tmp_path)
    for page in (EXTENDING, *PAGES.values()):
        reader.follow(page)
    page = reader.report()
    assert 'figure "Error against learned size on a\nsine" with one point for each of the 4 runs' in PAGES["study"]
    assert "<figcaption>Error against learned size on a sine</figcaption>" in page
    (drawn,) = re.findall(r'id="sine_error">.*?base64,(.*?)"', page, re.S)
    assert "n = 4 runs" in base64.b64decode(drawn).decode()
    assert "At twice the price fewer waves are learned, same seed, in the mean." in page


def test_every_block_of_a_page_is_a_step():
    """A block that is written in another form would not be followed."""
    for page in PAGES.values():
        blocks = len(re.findall(r"^```\w", page, re.M))
        assert blocks == sum(len(form.findall(page)) for form in (FILE, COMMANDS, PRINTED))
        rows = re.findall(r"^\|.*\n", page, re.M)
        tables = [table for _, table in SHOWN.findall(page)]
        heads = 2 * page.count("| missing | message |\n")
        assert len(rows) == heads + len(MISSING.findall(page)) + sum(table.count("\n") for table in tables)


def test_the_example_has_the_files_of_the_pages():
    written = {name: text for page in PAGES.values() for name, text in FILE.findall(page)}
    files = [path for path in PLUGIN.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert written == {f"scratch/mine/{path.relative_to(PLUGIN)}": path.read_text() for path in files}


NOTEBOOK = ROOT / "examples" / "smaller_cnn.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def _of_reports(text):
    return [int(number.replace(",", "")) for number in re.findall(r"accuracy \S+, ([\d,]+) parameters", text)]


def test_the_notebook_was_executed_in_order_to_its_end():
    assert [cell["execution_count"] for cell in CELLS] == [*range(1, len(CELLS) + 1)]
    printed = "".join("".join(out.get("text", "")) for cell in CELLS for out in cell["outputs"])
    before, after = _of_reports(printed)
    assert after <= 0.6 * before
    assert "60,000 images to train on" in printed
    assert any("image/png" in out.get("data", {}) for out in CELLS[-1]["outputs"])
    drawn = Image.open(NOTEBOOK.with_suffix(".png")).text["Description"]
    assert drawn in printed, "the picture of docs/index.md is of the report that the notebook prints"
    sizes = [(int(whole), int(left)) for whole, left in re.findall(r"^\d +(\d+) -> +(\d+) channels", drawn, re.M)]
    assert [whole for whole, _ in sizes] == [24, 48]
    assert min(left / whole for whole, left in sizes) < 0.95
    assert f"parameters: {before:,} -> {after:,} (-40%)" in drawn


def test_the_cells_of_the_notebook_run(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("NGN_SMOKE", "1")
    monkeypatch.chdir(tmp_path)  # the notebook writes no files next to itself
    names = {}
    for cell in CELLS:
        exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), names)
    channels, parameters, errors = names["figure"].axes
    heights = [[bar.get_height() for bar in axes.patches] for axes in (channels, parameters, errors)]
    assert heights[0] == [24, 48, names["small"][0].out_channels, names["small"][4].out_channels]
    assert heights[1][1] <= 0.6 * heights[1][0], "the picture shows parameters before and after"
    assert heights[2] == [100 * (1 - names[name]) for name in ("before", "after", "as_long")]
    plt.close("all")
    before, after = _of_reports(capsys.readouterr().out)
    assert after <= 0.6 * before
    assert names["small"][0].out_channels < 24 or names["small"][4].out_channels < 48
    assert not list(tmp_path.iterdir())


@pytest.mark.slow(seconds=40)
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx_gallery")
    for entry in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff"):
        shutil.copy(ROOT / entry, tmp_path)
    for folder in ("docs", "examples", "paper", "conf"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ROOT / "docs" / "site", ".", "site"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for script in (ROOT / "examples" / "gallery").glob("*.py"):
        if script.name != "picture.py":
            page = (tmp_path / "site" / "build" / "gallery" / f"{script.stem}.html").read_text()
            assert f"sphx_glr_{script.stem}_001.png" in page, "t over training, and what is kept"
            text = html.unescape(page).replace(",", "")
            of_parameters = re.findall(r"^parameters: (\d+) -> (\d+)|(\d+) → (\d+) parameters", text, re.M)
            of_sizes = re.findall(r"^\S+ +(\d+) -> +(\d+) \w+", text, re.M)
            assert of_parameters, script.name
            assert of_sizes, script.name
            for whole, left in (filter(None, pair) for pair in [*of_parameters, *of_sizes]):
                assert int(left) < 0.95 * int(whole), f"{script.name} shows that something became smaller"
