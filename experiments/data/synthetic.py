"""Make tiny learnable data for ``profile=smoke`` and for tests, never for a number in a table."""

from __future__ import annotations

import hashlib

import numpy as np

from experiments.core.task import DataInfo
from experiments.data.cora import row_normalised, undirected
from experiments.data.source import GraphData, ImageData
from experiments.store.sources import combined_digest

PROVENANCE = "synthetic, made by the suite itself (seed 0); no real data"


def _info(name: str, arrays: dict[str, np.ndarray]) -> DataInfo:
    parts = {key: hashlib.sha256(np.ascontiguousarray(array).data).hexdigest() for key, array in arrays.items()}
    return DataInfo(f"synthetic-{name}", combined_digest(parts), PROVENANCE)


def images(shape: tuple[int, ...], classes: int = 10, train: int = 256, test: int = 128) -> ImageData:
    """Make images [C, H, W]: each class is a coarse pattern of grey levels, with noise and a random contrast.

    The same arguments give the same images on every machine.
    """
    rng = np.random.default_rng(0)
    channels, height, width = shape
    coarse = rng.uniform(-1.0, 1.0, (classes, channels, 4, 4))
    rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    patterns = coarse[:, :, rows][:, :, :, columns]
    count = train + test
    # Balance the classes in both parts as far as their sizes allow.
    labels = np.concatenate([rng.permutation(np.arange(n) % classes) for n in (train, test)])
    contrast = rng.uniform(0.7, 1.3, (count, 1, 1, 1))
    noise = rng.uniform(-0.5, 0.5, (count, *shape))
    pixels = np.clip(np.rint(128 + 80 * (contrast * patterns[labels] + noise)), 0, 255).astype(np.uint8)
    info = _info("images", {"images": pixels, "labels": labels})
    return ImageData(pixels[:train], labels[:train], pixels[train:], labels[train:], info)


def graph(nodes: int = 120, features: int = 32, classes: int = 4) -> GraphData:
    """Make a graph like a citation network: most neighbours share a class, and each class prefers some words.

    A sixth of the nodes is for training, a third for validation, the rest for testing.
    """
    rng = np.random.default_rng(0)
    labels = np.arange(nodes) % classes
    own_word = np.arange(features)[None] % classes == labels[:, None]
    words = (rng.random((nodes, features)) < np.where(own_word, 0.4, 0.1)).astype(np.float32)
    same_class = labels[:, None] == labels[None]
    chance = np.where(same_class, 3.0, 0.5) / (nodes / classes)
    source, target = np.nonzero(np.triu(rng.random((nodes, nodes)) < chance, k=1))
    # The classes alternate from node to node, so each consecutive stretch of nodes is balanced.
    first, second = max(classes, nodes // 6), max(classes, nodes // 6) + nodes // 3
    arrays = {"features": row_normalised(words), "edge_index": undirected(source, target, nodes), "labels": labels}
    order = np.arange(nodes)
    return GraphData(
        **arrays,
        train=order[:first],
        validation=order[first:second],
        test=order[second:],
        info=_info("graph", arrays),
    )


def stories(train: int = 40, valid: int = 12) -> tuple[list[str], list[str], DataInfo]:
    """Make training and validation stories of one sentence each, the same on every machine."""
    rng = np.random.default_rng(0)
    words = (("The", "A"), ("cat", "dog", "bird"), ("saw", "likes"), ("the", "a"), ("red", "big"), ("ball.", "tree."))
    made = [" ".join(options[rng.integers(len(options))] for options in words) for _ in range(train + valid)]
    info = _info("stories", {"text": np.frombuffer("\n".join(made).encode(), dtype=np.uint8)})
    return made[:train], made[train:], info
