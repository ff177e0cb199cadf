"""Programs whose reader goes away, as with ``| head``."""

import errno
import os
import re
import subprocess
import sys

import pytest

from experiments.core.paths import ROOT

SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))


def into_closed_pipe(*words):
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
def test_a_reader_that_has_gone_is_no_traceback(words, status):
    done = into_closed_pipe(*words)
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize("script", [*SCRIPTS, ROOT / "run.py"], ids=lambda path: path.stem)
def test_every_script_begins_and_ends_so(script):
    text = script.read_text()
    assert "exit_with(main)" in text
    before = text[: text.index("until_main()\n")]
    imported = set(re.findall(r"^(?:from|import) (\S+)", before, re.M))
    assert imported <= {"__future__", "sys", "pathlib"}, "Ctrl-C would show a traceback while these are imported"


def program(*lines, **streams):
    """Run lines of Python after the import of the module."""
    text = "\n".join(("import errno, os, signal, sys", "from experiments.cli import pipes", *lines))
    words = [sys.executable, "-c", text]
    return subprocess.run(words, cwd=ROOT, text=True, check=False, **{"capture_output": True} | streams)


INTERRUPTED = "os.kill(os.getpid(), signal.SIGINT)"


def test_ctrl_c_is_no_traceback():
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's background jobs ignore it
    caught = ("try:", f"    {INTERRUPTED}", "except BaseException: pass", "print('on')")
    early = program(heard, "pipes.until_main()", *caught)
    assert (early.returncode, early.stdout, early.stderr) == (130, "", "\nstopped; nothing was started\n")
    late = program(heard, "pipes.until_main()", "def main():", f"    {INTERRUPTED}", "pipes.exit_with(main)")
    assert (late.returncode, late.stderr) == (130, "\nstopped\n")
    ignored = program("signal.signal(signal.SIGINT, signal.SIG_IGN)", "pipes.until_main()", INTERRUPTED, "print('on')")
    assert (ignored.returncode, ignored.stdout) == (0, "on\n")


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EFBIG", "ENOTDIR"])
def test_a_file_that_cannot_be_written_is_one_line(code):
    fault = f"raise OSError(errno.{code}, os.strerror(errno.{code}), 'some/file')"
    done = program("def main():", f"    {fault}", "pipes.exit_with(main)")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("some/file: cannot be ")
    assert os.strerror(getattr(errno, code)) in line


def test_a_damaged_file_is_one_line():
    done = program(
        "from ngn.files import FileError", "def main(): raise FileError('a.json: damaged')", "pipes.exit_with(main)"
    )
    assert (done.returncode, done.stderr) == (1, "a.json: damaged\n")


def test_a_full_disk_behind_the_output_is_one_line():
    with open("/dev/full", "w") as full:
        done = program("pipes.exit_with(lambda: print('x' * 9999))", capture_output=False, stdout=full, stderr=-1)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.startswith("the output: cannot be written (No space left on device)")
        lines = ("pipes.print_line('a')", "pipes.print_line('b')", "print('done', file=sys.stderr)")
        done = program(*lines, capture_output=False, stdout=full, stderr=-1)
    assert (done.returncode, done.stderr.splitlines()[1:]) == (0, ["done"])


def test_a_bug_shows_its_traceback():
    done = program("pipes.exit_with(lambda: 1 / 0)")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_no_escape_sequence_reaches_the_terminal():
    hostile = "a\x1b[2Jb\x9b\x07\rc\x7f\u202ed\udc9b\te\n"
    lines = (
        f"hostile = {hostile!r}",
        "import logging",
        "def main():",
        "    print(hostile, end='')",
        "    print(hostile, file=sys.stderr, end='')",
        "    logging.warning('%s', hostile.strip())",
        "    sys.stderr.write('\\r50 %'); sys.stderr.write('\\x1b[A')",
        "pipes.exit_with(main)",
    )
    done = program(*lines)
    clean = "a<U+001B>[2Jb<U+009B><U+0007><U+000D>c<U+007F><U+202E>d<U+DC9B>\te\n"
    assert done.stdout == clean
    assert done.stderr.replace("\r", "\n") == f"{clean}WARNING:root:{clean}\n50 %\x1b[A", "bars may still go back"


def test_rich_draws_in_colour_and_its_contents_are_clean():
    lines = (
        "from rich.console import Console",
        "from experiments.analysis.collect import Problem",
        "from experiments.analysis.terminal import print_problems",
        "def main():",
        "    console = Console(force_terminal=True)",
        "    console.print('green', style='green')",
        "    print_problems([Problem('foreign', 'run', 'x\\x1b[2Jy')], console)",
        "pipes.exit_with(main)",
    )
    first, second = program(*lines).stdout.splitlines()
    assert first == "\x1b[32mgreen\x1b[0m"
    assert second == "foreign: run: x<U+001B>[2Jy"


def test_runs_go_on_when_their_reader_has_gone():
    program = "from experiments.cli.pipes import print_line; import sys\n"
    program += "print_line('a'); print_line('b'); print('done', file=sys.stderr)"
    done = into_closed_pipe("-c", program)
    assert (done.returncode, done.stderr) == (0, "done\n")
