"""What can go wrong with the files of a training."""

from __future__ import annotations

from ngn.files import FileError


class CheckpointError(FileError):
    """There are checkpoints, but none is usable."""


class StorageError(FileError):
    """A file could not be written: the disk is full, the folder is read-only, or a quota is used up."""
