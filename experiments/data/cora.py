"""Read Cora from the Planetoid files ``ind.cora.*``, with the standard processing and split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.data import unpickle
from experiments.data.source import DataError, Folder, GraphData

PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
SIZES = (2708, 1433, 7)
"""Nodes, features, classes."""
SPLIT = (140, 500, 1000)
OFFICIAL = {
    "ind.cora.x": "sha256:23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.tx": "sha256:b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.allx": "sha256:9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.y": "sha256:94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.cora.ty": "sha256:41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.ally": "sha256:2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "sha256:58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "sha256:297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
}
"""Digests of the files in ``data/`` of the repository kimiyoung/planetoid."""


def undirected(source: np.ndarray, target: np.ndarray, nodes: int) -> np.ndarray:
    """Return both directions of every edge once, int64 [2, E], without self loops, by target, then source."""
    kept = source != target
    source, target = source[kept], target[kept]
    codes = np.unique(np.concatenate([target * nodes + source, source * nodes + target]))
    return np.stack([codes % nodes, codes // nodes])


def row_normalised(features: np.ndarray) -> np.ndarray:
    """Divide each row by its sum, float32; empty rows stay zero."""
    sums = features.sum(axis=1, keepdims=True, dtype=np.float32)
    return (features / np.where(sums == 0, np.float32(1), sums)).astype(np.float32, copy=False)


def _edges(graph: Any, where: Path, nodes: int) -> np.ndarray:
    """Return the edges of a dictionary node → list of neighbours."""
    if not isinstance(graph, dict) or not all(isinstance(ends, list) for ends in graph.values()):
        raise DataError(f"{where}: holds no dictionary of lists of neighbours")
    ends = [(a, b) for a, neighbours in graph.items() for b in neighbours]
    if not all(type(a) is int and type(b) is int and 0 <= a < nodes and 0 <= b < nodes for a, b in ends):
        raise DataError(f"{where}: an edge ends outside the {nodes} nodes")
    pairs = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
    return undirected(pairs[:, 0], pairs[:, 1], nodes)


def _test_index(content: np.ndarray, where: Path, known: int, nodes: int) -> np.ndarray:
    """Return the node of each row of ``tx`` and ``ty``, int64 [nodes - known]; the file has one per line."""
    try:
        index = np.array([int(line) for line in content.tobytes().decode("ascii").split()], dtype=np.int64)
    except (ValueError, OverflowError):
        raise DataError(f"{where}: expected one node number per line") from None
    if not np.array_equal(np.sort(index), np.arange(known, nodes)):
        raise DataError(f"{where}: its numbers are not the nodes {known} to {nodes - 1}, each once")
    return index


def read_folder(folder: Folder, sizes: tuple[int, int, int] = SIZES, split: tuple[int, int, int] = SPLIT) -> GraphData:
    """Read Cora's files with the given sizes (nodes, features, classes) and split; see :func:`load_data`."""
    base = folder.path
    places = (base, base / "raw", base / "Cora" / "raw", folder.root / "Cora" / "raw")
    paths = dict(
        zip(PARTS, folder.choose([[(place / f"ind.cora.{part}",) for part in PARTS] for place in places]), strict=True)
    )
    nodes, columns, classes = sizes
    parts: dict[str, Any] = {}
    for part in PARTS[:-1]:
        parts[part] = unpickle.safe_load(folder.read(paths[part]), paths[part])
    known = nodes - split[2]
    shapes = {"x": (split[0], columns), "allx": (known, columns), "tx": (split[2], columns)}
    shapes |= {"y": (split[0], classes), "ally": (known, classes), "ty": (split[2], classes)}
    for part, shape in shapes.items():
        if (actual := getattr(parts[part], "shape", None)) != shape:
            raise DataError(f"{paths[part]}: an array of shape {shape} was expected, not {actual}")
    index = _test_index(folder.read(paths["test.index"]), paths["test.index"], known, nodes)
    features = np.empty((nodes, columns), dtype=np.float32)
    labels = np.empty(nodes, dtype=np.int64)
    # The rows of tx and ty follow the order of the test index, not the order of the nodes.
    features[:known], features[index] = parts["allx"], parts["tx"]
    labels[:known], labels[index] = parts["ally"].argmax(axis=1), parts["ty"].argmax(axis=1)
    return GraphData(
        features=row_normalised(features),
        edge_index=_edges(parts["graph"], paths["graph"], nodes),
        labels=labels,
        train=np.arange(split[0]),
        validation=np.arange(split[0], split[0] + split[1]),
        test=np.sort(index),
        info=folder.info(),
    )


def load_data(root: Path) -> GraphData:
    """Read Cora below a data root: 2,708 nodes, 1,433 row-normalised features, 7 classes, split 140 / 500 / 1,000.

    Source: Yang, Cohen and Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", 2016.

    Raises:
        DataError: if a file is missing or damaged, or is neither official nor listed in a manifest.
    """
    return read_folder(Folder(root, "cora", OFFICIAL))


def split_by(data: GraphData, order: npt.NDArray[np.int64]) -> GraphData:
    """The same graph with another split of the same sizes, drawn by ``order``.

    Equally many nodes of each class are for training, as in the standard split: of Cora 20. Of the rest the first 500
    are for validation and the next 1,000 for testing.

    Args:
        order: int64 [N], a permutation of the nodes.
    """
    each = len(data.train) // (int(data.labels.max()) + 1)
    train = np.concatenate([order[data.labels[order] == label][:each] for label in np.unique(data.labels)])
    rest = order[~np.isin(order, train)]
    held, end = len(data.validation), len(data.validation) + len(data.test)
    return replace(data, train=np.sort(train), validation=np.sort(rest[:held]), test=np.sort(rest[held:end]))
