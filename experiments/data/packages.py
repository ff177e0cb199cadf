"""Check for optional packages before importing them."""

from __future__ import annotations

import importlib.util

from experiments.data.errors import DataError


def require_packages(what: str, *modules: str, extra: str = "language") -> None:
    """Check that the modules of an extra, which ``what`` needs, are installed; silence transformers.

    Raises:
        DataError: if one is missing; the message has the command that installs it.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise DataError(f"{what} needs the package {missing[0]}: pip install -e '.[{extra}]'")
    if "transformers" in modules:
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
