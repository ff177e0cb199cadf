"""Errors about data sets, and the check of the packages that read them."""

from __future__ import annotations

from experiments.core.packages import missing, sentence


class DataError(Exception):
    """Data are missing, damaged or not the expected ones. The message names the file and the command that helps."""


class MissingData(DataError):
    """The data set is not in the data root."""


def require_packages(what: str, *modules: str) -> None:
    """Check that the modules of an extra, which ``what`` needs, are installed; silence transformers.

    Raises:
        DataError: if one is missing; the message has the command that installs it.
    """
    if (name := missing(*modules)) is not None:
        raise DataError(sentence(what, name))
    if "transformers" in modules:
        from transformers.utils import logging

        logging.disable_progress_bar()
        logging.set_verbosity_error()
