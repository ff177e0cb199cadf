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
    "line",
    ["scripts/table.py results/cora", "scripts/sweep.py status smoke", "scripts/fetch_data.py --help", "run.py --list"],
)
def test_a_reader_that_has_gone_is_no_traceback(line):
    done = into_closed_pipe(*line.split())
    assert (done.returncode, done.stderr) == (141, "")


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


HEARD = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # a shell's background jobs ignore it
INTERRUPTED = "os.kill(os.getpid(), signal.SIGINT)"
CAUGHT = f"try: {INTERRUPTED}\nexcept BaseException: pass\nprint('on')"
ENDS = {
    "interrupted early": (
        (HEARD, "pipes.until_main()", CAUGHT), 130, "", "\nstopped; nothing was started\n",
    ),
    "interrupted late": (
        (HEARD, "pipes.until_main()", f"pipes.exit_with(lambda: {INTERRUPTED})"), 130, "", "\nstopped\n",
    ),
    "an interruption that nohup ignores": (
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "pipes.until_main()", CAUGHT), 0, "on\n", "",
    ),
    "a damaged file": (
        ("from ngn.files import FileError", "def main(): raise FileError('a.json: damaged')", "pipes.exit_with(main)"),
        1, "", "a.json: damaged\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_no_end_has_a_traceback(name):
    lines, *expected = ENDS[name]
    done = program(*lines)
    assert [done.returncode, done.stdout, done.stderr] == expected


def test_a_file_that_cannot_be_written_is_one_line():
    codes = ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EFBIG", "ENOTDIR")
    done = program(
        f"for code in {codes}:",
        "    def main(): raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)), 'some/file')",
        "    try: pipes.exit_with(main)",
        "    except SystemExit as end: print(end.code)",
    )
    assert done.stdout.split() == ["1"] * len(codes)
    for code, line in zip(codes, done.stderr.splitlines(), strict=True):
        assert line.startswith("some/file: cannot be ")
        assert os.strerror(getattr(errno, code)) in line


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


def test_a_table_is_in_colour_in_a_terminal_and_its_contents_are_clean(monkeypatch):
    lines = (
        "from experiments.analysis.overview import table_of",
        "sys.stdout.isatty = lambda: True",
        "pipes.exit_with(lambda: pipes.show(table_of([{'a': 'x\\x1b[2Jy'}], 40)))",
    )
    monkeypatch.setenv("TERM", "xterm-256color")
    assert program(*lines).stdout == "\x1b[1ma            \x1b[0m\nx<U+001B>[2Jy\n"
