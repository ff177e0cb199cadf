"""Read MNIST from its four idx files, plain or gzipped, in its own or torchvision's folders."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import numpy as np

from experiments.data.source import DataError, Folder, ImageData

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
SIZES = {"train": 60_000, "test": 10_000}
OFFICIAL = {
    "train-images-idx3-ubyte": "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""Digests of the unpacked files: the packing does not matter."""

LARGEST = 64 * 2**20
"""Bytes. A larger unpacked file cannot be MNIST; this bounds the memory for a gzip file."""


def gunzip(packed: np.ndarray) -> np.ndarray:
    """Return the unpacked bytes, writable.

    Raises:
        OSError, EOFError, ValueError: if the bytes are not a gzip file, are cut short or damaged, or unpack to more
            than ``LARGEST``.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed.tobytes())) as stream:
            content = stream.read(LARGEST + 1)
    except zlib.error as fault:
        raise ValueError(str(fault)) from None
    if len(content) > LARGEST:
        raise ValueError(f"unpacks to more than {LARGEST} bytes")
    return np.frombuffer(bytearray(content), dtype=np.uint8)


def _idx(content: np.ndarray, path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Parse an idx file of uint8: magic bytes 0, 0, 8, dimensions; a big-endian 4-byte size each; then the data."""
    header = 4 + 4 * len(shape)
    if len(content) < header or content[:4].tolist() != [0, 0, 8, len(shape)]:
        raise DataError(f"{path}: not an idx file of unsigned bytes in {len(shape)} dimensions")
    sizes = tuple(int.from_bytes(content[4 + 4 * i : 8 + 4 * i].tobytes(), "big") for i in range(len(shape)))
    if sizes != shape:
        raise DataError(f"{path}: has the shape {sizes}; {shape} was expected")
    if len(content) != header + int(np.prod(shape)):
        raise DataError(f"{path}: {len(content)} bytes do not fit the shape {shape}")
    return content[header:].reshape(shape)


def read_folder(folder: Folder, train: int = SIZES["train"], test: int = SIZES["test"]) -> ImageData:
    """Read MNIST with the given numbers of images; see :func:`load_data`."""
    base = folder.path
    places = (base, base / "raw", base / "MNIST" / "raw", folder.root / "MNIST" / "raw")
    paths = folder.choose([[(place / name, place / f"{name}.gz") for name in FILES] for place in places])
    arrays = []
    for path, shape in zip(paths, ((train, 28, 28), (train,), (test, 28, 28), (test,)), strict=True):
        content = folder.read(path, gunzip if path.suffix == ".gz" else None)
        array = _idx(content, path, shape)
        if len(shape) == 1:
            array = array.astype(np.int64)
            if array.max() > 9:
                raise DataError(f"{path}: a label is {array.max()}; labels are 0 to 9")
        else:
            array = array[:, None]
        arrays.append(array)
    return ImageData(arrays[0], arrays[1], arrays[2], arrays[3], folder.info())


def load_data(root: Path) -> ImageData:
    """Read MNIST below a data root: 60,000 training and 10,000 test images, uint8 [N, 1, 28, 28].

    Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits".

    Raises:
        DataError: if a file is missing or damaged, or is neither official nor listed in a manifest.
    """
    return read_folder(Folder(root, "mnist", OFFICIAL))
