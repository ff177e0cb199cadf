"""What can be wrong with data."""

from __future__ import annotations


class DataError(Exception):
    """Data that are missing, damaged or foreign. The message names the file, the place and the way out."""


class MissingData(DataError):
    """Data that are not there at all."""
