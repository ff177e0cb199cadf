"""What optional packages are needed, said before the first of them is imported."""

from __future__ import annotations

import importlib.util

from experiments.data.errors import DataError


def need(what: str, *modules: str, extra: str = "language") -> None:
    """Look whether modules of an extra are installed, for the purpose ``what``; keep transformers quiet.

    Raises:
        DataError: with the command that installs them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise DataError(f"{what} needs the package {missing[0]}: pip install -e '.[{extra}]'")
    if "transformers" in modules:
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
