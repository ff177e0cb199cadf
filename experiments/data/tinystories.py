"""Download TinyStories and the Pile's sample through the package datasets; encode stories character by character."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from experiments.core.paths import SCRATCH
from experiments.data.source import DataError, install_with_manifest, require_packages

END = "<|endoftext|>"
RARE = 10
"""Characters that occur less often in the training text share one token."""
START, OTHER = 0, 1


def install_from_hub(
    source: str, parts: Mapping[str, str], form: Callable[[str], str], working: Path, folder: Path
) -> None:
    """Download the texts of a repository of the hub and write them as files, with a manifest.

    Args:
        parts: part of the repository → file.
        form: text → what its file holds of it.

    Raises:
        DataError: if the package datasets is missing or the download fails.
    """
    require_packages(source, "datasets")
    import datasets
    from huggingface_hub import HfApi

    try:
        commit = HfApi().dataset_info(source, timeout=10).sha
        loaded = datasets.load_dataset(source, revision=commit, cache_dir=str(working / "hub"))
    except Exception as fault:  # the client's errors differ between its versions
        raise DataError(f"{source}: cannot be downloaded ({type(fault).__name__}: {fault})".splitlines()[0]) from None
    new = working / "texts"
    new.mkdir(exist_ok=True)
    for part, name in parts.items():
        with open(new / name, "wb") as file:
            file.writelines(form(text).encode() for text in loaded[part]["text"])
    install_with_manifest(f"{source}, revision {commit}", new, folder)


def split_stories(text: str) -> Iterator[str]:
    """Yield the stories of a text, stripped of surrounding blanks; skip empty ones."""
    return (story for part in text.split(END) if (story := part.strip()))


class Characters:
    """Tokens: the start of a story, one for all rare characters, and one for each frequent character.

    >>> letters = Characters(["a cat and a bat " * 10])
    >>> letters.decode(letters.encode("a cat!")), len(letters)
    ('a cat\ufffd', 9)
    """

    def __init__(self, training: Iterable[str]) -> None:
        counts = np.zeros(0x110000, dtype=np.int64)
        for story in training:
            np.add.at(counts, _points(story), 1)
        often = np.flatnonzero(counts >= RARE)
        self.points = np.concatenate([[ord("\n"), 0xFFFD], often]).astype(np.uint32)
        self.kind = np.uint8 if len(self.points) <= 256 else np.uint16
        self._table = np.full(len(counts), OTHER, dtype=self.kind)
        self._table[often] = np.arange(2, len(self.points))

    def __len__(self) -> int:
        return len(self.points)

    def encode(self, story: str) -> np.ndarray:
        """Return the tokens of a story, integers [characters], without a start token."""
        tokens: np.ndarray = self._table[_points(story)]
        return tokens

    def decode(self, tokens: np.ndarray) -> str:
        """Return the text of tokens; a start becomes a new line, a rare character U+FFFD."""
        return self.points[tokens].astype("<u4").tobytes().decode("utf-32-le")

    def mapped(self, texts: Iterable[str]) -> np.ndarray:
        """Encode stories, each after a start token: [tokens] in a file that disappears when this process ends."""
        SCRATCH.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=SCRATCH) as file:
            for story in texts:
                file.write(bytes([START]) * np.dtype(self.kind).itemsize)
                file.write(self.encode(story).tobytes())
            file.flush()
            return np.memmap(file, dtype=self.kind, mode="r+")


def _points(text: str) -> np.ndarray:
    """Return Unicode code points, uint32 [characters]."""
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
