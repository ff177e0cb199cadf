"""Programs whose reader goes away, as with ``| head``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.paths import ROOT

SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))


def into_closed_pipe(*words: str) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, *words]
    try:
        return subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment, check=False
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["scripts/table.py", "results/cora"], 141),
        (["scripts/sweep.py", "status", "smoke"], 141),
        (["scripts/fetch_data.py", "--help"], 141),
        (["run.py", "--list"], 141),
    ],
)
def test_a_reader_that_has_gone_is_no_traceback(words: list[str], status: int) -> None:
    done = into_closed_pipe(*words)
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_ends_so(script: Path) -> None:
    assert "exit_with(main)" in script.read_text()


def test_runs_go_on_when_their_reader_has_gone() -> None:
    program = "from experiments.cli.pipes import print_line; import sys\n"
    program += "print_line('a'); print_line('b'); print('done', file=sys.stderr)"
    done = into_closed_pipe("-c", program)
    assert (done.returncode, done.stderr) == (0, "done\n")
