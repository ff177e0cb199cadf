"""Output to a reader that may go away, such as ``| head``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

READER_GONE = 141
"""Exit status of a program that SIGPIPE has ended, 128 + 13."""


def drop_output() -> None:
    """Send all further output nowhere: its reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_line(line: str) -> None:
    """Print a line at once. If the reader has gone, the program goes on in silence: its runs are what counts."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        drop_output()


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Exit with the status of a script's ``main``; without a traceback if the reader of its output has gone."""
    try:
        try:
            status = main()
        finally:  # after --help, too
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        status = READER_GONE
    sys.exit(status)
