"""What the programs print, and how they end when Ctrl-C, a full disk or a reader that goes away stops them.

Every program imports this module first, and ends with :func:`exit_with`. So nobody sees a traceback for what is no bug.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # nothing more is imported before `until_main`, which is called first
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

READER_GONE = 141
"""Exit status of a program that SIGPIPE has ended, 128 + 13."""
INTERRUPTED = 130
"""Exit status of a program that Ctrl-C has ended, 128 + 2."""
NARROWEST, ENDLESS = 40, 10_000
"""Characters of a line: at least, and where there is no terminal."""


class Cleaned:
    """A stream whose text is made :func:`~experiments.core.blocks.printable`, whoever prints it.

    So no escape sequence from a record or a file's name reaches the terminal. Progress bars may still go back to the
    start of their line, or up one. Rich draws on :attr:`rich_proxied_file`; what it is given must be printable.
    """

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write the text; return the number of its characters."""
        from experiments.core.blocks import printable

        start = int(text.startswith("\r"))
        if text[start:].replace("\x1b[A", ""):
            text = text[:start] + printable(text[start:])
        return int(self.rich_proxied_file.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def room() -> int:
    """Return the width of the terminal in characters; lines of a pipe or a file have no end."""
    import shutil

    return max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else ENDLESS


def drop_output() -> None:
    """Send all further output nowhere: its reader has closed the pipe, or it cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(*parts: Any) -> None:
    """Print texts, and tables of rich: as wide as the terminal, with its styles; elsewhere plain and never cut."""
    from rich.console import Console

    console = Console(width=room(), highlight=False)
    for part in parts:
        if isinstance(part, str):
            print(part, flush=True)
        else:
            with console.capture() as drawn:
                console.print(part)
            print(drawn.get(), end="", file=getattr(sys.stdout, "rich_proxied_file", sys.stdout), flush=True)


def print_line(*parts: Any) -> None:
    """:func:`show` at once. If the reader has gone, the program goes on in silence: its runs are what counts.

    If the output cannot be written otherwise, it goes on, too, and says so once on stderr.
    """
    try:
        show(*parts)
    except BrokenPipeError:
        drop_output()
    except OSError as fault:
        drop_output()
        print(f"the output cannot be written ({fault.strerror}); the runs go on without it", file=sys.stderr)


def _stop(*_: object) -> NoReturn:
    os.write(2, b"\nstopped; nothing was started\n")
    os._exit(INTERRUPTED)  # an exception could be swallowed by a module that is being imported


def until_main() -> None:
    """Let Ctrl-C end the program at once until :func:`exit_with`, while it imports its modules."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if it is ignored
        signal.signal(signal.SIGINT, _stop)


def exit_with(main: Callable[[], int | None]) -> NoReturn:
    """Exit with the status of a script's ``main``.

    It ends without a traceback if the reader of its output has gone, at Ctrl-C, and if a file is damaged, or cannot be
    read or written (status 1). ``HYDRA_FULL_ERROR=1`` shows the traceback of the last.
    """
    sys.stdout, sys.stderr = Cleaned(sys.stdout), Cleaned(sys.stderr)
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status: int | None
    try:
        try:
            status = main()
        finally:  # after --help, too
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        status = READER_GONE
    except KeyboardInterrupt as stopped:
        print("\nstopped", file=sys.stderr)
        status = getattr(stopped, "status", INTERRUPTED)
    except Exception as fault:
        from experiments.core.reading import storage_fault
        from ngn.files import FileError

        message = (
            storage_fault(fault) if isinstance(fault, OSError) else str(fault) if isinstance(fault, FileError) else None
        )
        if message is None or os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        if getattr(fault, "filename", "") is None:  # the output itself
            drop_output()
        print(message, file=sys.stderr)
        status = 1
    sys.exit(status)
