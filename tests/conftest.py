"""One thread everywhere, and tests that need what this machine lacks are skipped."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before torch or numpy is imported: on small tensors threads get into each other's way, and results depend on them.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"
# Programs that tests start keep their compiled sources, as is the default, so that the next one need not compile them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# No test outlives a loss of power. The programs that tests start, those of the injected faults among them, do wait.
os.fsync = lambda descriptor: None
# Under nohup a closed terminal is ignored, and programs that tests start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

import hypothesis  # noqa: E402
import pytest  # noqa: E402

# A slow machine is no failure.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

_BEGAN = time.monotonic()


@pytest.fixture(autouse=True)
def alike() -> Iterator[None]:
    """What a test draws, and the environment and arguments that it finds, depend on no test before it."""
    environment, arguments = dict(os.environ), [*sys.argv]
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
    yield
    os.environ.clear()  # run.py sets it for its jobs
    os.environ.update(environment)
    sys.argv[:] = arguments


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-for",
        type=float,
        metavar="MINUTES",
        help="skip slow tests whose turn comes later than this after the start; all others run in any case",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Several test processes share the process that their programs are forked from."""
    if getattr(config.option, "numprocesses", None):
        import programs

        programs.server()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where CI has a limit, a machine that is too slow for everything leaves out slow tests, and says which."""
    minutes = item.config.getoption("--slow-for")
    if minutes is not None and item.get_closest_marker("slow") and time.monotonic() - _BEGAN > 60 * minutes:
        # with its name, since skips of one reason are summed up in one line
        pytest.skip(f"{item.nodeid}: slow, and the {minutes:g} minutes for slow tests are over")


NEEDED: dict[str, tuple[Callable[[], object], str]] = {
    "gpu": (lambda: importlib.import_module("torch").cuda.is_available(), "a CUDA device"),
    "slurm": (lambda: shutil.which("sinfo"), "Slurm"),
    "checkout": ((Path(__file__).parents[1] / ".git").exists, "a git checkout, and this is a source archive"),
    "browser": (
        lambda: shutil.which("chromium") and importlib.util.find_spec("playwright"),
        "Chromium (apt install chromium) and playwright (pip)",
    ),
}
"""Marker → whether what its tests need is there, and what that is."""


@pytest.fixture(scope="session")
def page_made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(report, reader, page) of the records of ``page_samples``; made once, as several files look at it."""
    import page_samples

    return page_samples.make(tmp_path_factory.mktemp("page"))


def _turn(item: pytest.Item) -> tuple[bool, float]:
    """When a test has its turn: whether it is slow, and minus its seconds where its marker has them."""
    marker = item.get_closest_marker("slow")
    return marker is not None, -float(marker.kwargs.get("seconds", 0)) if marker else 0.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests last, the slowest of them first, so that no process trains alone at the end; skip what cannot run."""
    items.sort(key=_turn)
    for name, (there, why) in NEEDED.items():
        needing = [item for item in items if item.get_closest_marker(name)]
        if needing and not there():
            for item in needing:
                item.add_marker(pytest.mark.skip(reason=f"needs {why}"))


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's number of threads for the test."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
