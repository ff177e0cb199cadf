"""One thread everywhere, and tests that need what this machine lacks are skipped."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

# Before torch or numpy is imported: on small tensors threads get into each other's way, and results depend on them.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

import hypothesis  # noqa: E402
import pytest  # noqa: E402

# A slow machine is no failure.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

_BEGAN = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-for",
        type=float,
        metavar="MINUTES",
        help="skip slow tests whose turn comes later than this after the start; all others run in any case",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where CI has a limit, a machine that is too slow for everything leaves out slow tests, and says which."""
    minutes = item.config.getoption("--slow-for")
    if minutes is not None and item.get_closest_marker("slow") and time.monotonic() - _BEGAN > 60 * minutes:
        # with its name, since skips of one reason are summed up in one line
        pytest.skip(f"{item.nodeid}: slow, and the {minutes:g} minutes for slow tests are over")


def _has_cuda() -> bool:
    import torch  # only once a test asks for a GPU

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def page_made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(report, reader, page) of the records of ``page_samples``; made once, as several files look at it."""
    import page_samples

    return page_samples.make(tmp_path_factory.mktemp("page"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests last; those that need a GPU, Slurm, or a browser (Chromium and playwright) skipped where it lacks."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
    needing_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if needing_gpu and not _has_cuda():
        for item in needing_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    needing_slurm = [item for item in items if item.get_closest_marker("slurm")]
    if needing_slurm and shutil.which("sinfo") is None:
        for item in needing_slurm:
            item.add_marker(pytest.mark.skip(reason="needs Slurm"))
    needing_browser = [item for item in items if item.get_closest_marker("browser")]
    if needing_browser and not (shutil.which("chromium") and importlib.util.find_spec("playwright")):
        for item in needing_browser:
            item.add_marker(pytest.mark.skip(reason="needs Chromium (apt install chromium) and playwright (pip)"))


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's number of threads for the test."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
