"""Read CIFAR-10 from the official binary or python layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.data import unpickle
from experiments.data.source import DataError, Folder, ImageData

BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = "test_batch"
BINARY_ARCHIVE = "cifar-10-binary.tar.gz"
BINARY_FOLDER = "cifar-10-batches-bin"
PYTHON_FOLDER = "cifar-10-batches-py"
PER_BATCH = 10_000
RECORD = 1 + 3 * 32 * 32
"""Bytes of one image in the binary layout: a label, then the red, green and blue planes, row by row."""

OFFICIAL = {
    BINARY_ARCHIVE: "md5:c32a1d4ab5d03f1284b67883e8d87530",
    "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
    "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
    "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "md5:40351d587109b95175f43aff81a1287e",
}
"""The digest published with the archive; for the python files, those that torchvision checks. The files of the
binary layout have no published digests, so unpacking writes a manifest (see ``scripts/fetch_data.py``)."""


def _from_binary(content: np.ndarray, where: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels [count] and pixels [count, 3072], as views."""
    if content.size != count * RECORD:
        raise DataError(f"{where}: {content.size} bytes; {count} records of {RECORD} bytes were expected")
    records = content.reshape(count, RECORD)
    return records[:, 0], records[:, 1:]


def _from_pickle(content: np.ndarray, where: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels [count] and pixels [count, 3072] of a batch in the python layout."""
    batch = unpickle.safe_load(content, where)
    pixels = batch.get("data") if isinstance(batch, dict) else None
    labels = batch.get("labels") if isinstance(batch, dict) else None
    if not isinstance(pixels, np.ndarray) or pixels.shape != (count, RECORD - 1) or pixels.dtype != np.uint8:
        raise DataError(f"{where}: holds no uint8 data of the shape ({count}, {RECORD - 1})")
    if not isinstance(labels, list) or len(labels) != count or not all(type(label) is int for label in labels):
        raise DataError(f"{where}: holds no list of {count} labels")
    return np.asarray(labels), pixels


def _batches(folder: Folder, count: int) -> Iterator[tuple[Path, np.ndarray, np.ndarray]]:
    """Yield path, labels and pixels of the six batches, the test batch last."""
    names = [*BATCHES, TEST]
    files = {BINARY_FOLDER: [f"{name}.bin" for name in names], PYTHON_FOLDER: names}
    bases = (folder.path, folder.root)
    layouts: list[list[tuple[Path]]] = [[(folder.path / name,) for name in files[BINARY_FOLDER]]]
    layouts += [[(base / inner / name,) for name in files[inner]] for inner in files for base in bases]
    for path in folder.choose(layouts):
        reader = _from_binary if path.suffix == ".bin" else _from_pickle
        yield path, *reader(folder.read(path), path, count)


def read_folder(folder: Folder, per_batch: int = PER_BATCH) -> ImageData:
    """Read CIFAR-10 with the given number of images per batch; see :func:`load_data`."""
    images = np.empty((6 * per_batch, 3, 32, 32), dtype=np.uint8)
    labels = np.empty(6 * per_batch, dtype=np.int64)
    for i, (where, some_labels, pixels) in enumerate(_batches(folder, per_batch)):
        place = slice(i * per_batch, (i + 1) * per_batch)
        images[place] = pixels.reshape(per_batch, 3, 32, 32)
        labels[place] = some_labels
        if not 0 <= labels[place].min() <= labels[place].max() <= 9:
            raise DataError(f"{where}: a label is outside 0 to 9")
    split = 5 * per_batch
    return ImageData(images[:split], labels[:split], images[split:], labels[split:], folder.info())


def load_data(root: Path) -> ImageData:
    """Read CIFAR-10 below a data root: 50,000 training and 10,000 test images, uint8 [N, 3, 32, 32].

    Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.

    Raises:
        DataError: if a file is missing or damaged, or is neither official nor listed in a manifest.
    """
    return read_folder(Folder(root, "cifar10", OFFICIAL))
