"""Errors about data sets."""

from __future__ import annotations


class DataError(Exception):
    """Data are missing, damaged or not the expected ones. The message names the file and the command that helps."""


class MissingData(DataError):
    """The data set is not in the data root."""
