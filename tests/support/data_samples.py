"""Small data sets in the official formats, for tests of the readers."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile

import numpy as np

from experiments.data import cifar10, source
from experiments.data import cora as cora_reader
from experiments.data import mnist as mnist_reader

MNIST_COUNTS = (12, 8)
CIFAR_BATCH = 5
CORA_SIZES, CORA_SPLIT = (700, 30, 3), (20, 500, 100)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def idx(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def mnist(counts=MNIST_COUNTS):
    """Make the four idx files by name, and the arrays in them."""
    rng = np.random.default_rng(1)
    files, arrays = {}, {}
    for part, n in zip(("train", "t10k"), counts, strict=True):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = np.arange(n) % 10
    files = {name: idx(array) for name, array in arrays.items()}
    return files, arrays


def cifar():
    """Make the binary and the python files by name, images [30, 3, 32, 32] and labels [30], the test batch last."""
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (6 * CIFAR_BATCH, 3, 32, 32)).astype(np.uint8)
    labels = rng.integers(0, 10, 6 * CIFAR_BATCH)
    binary, python = {}, {}
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        place = slice(i * CIFAR_BATCH, (i + 1) * CIFAR_BATCH)
        pixels = images[place].reshape(CIFAR_BATCH, -1)
        binary[f"{name}.bin"] = np.column_stack([labels[place].astype(np.uint8), pixels]).tobytes()
        python[name] = pickle.dumps({"data": pixels, "labels": labels[place].tolist(), "batch_label": name}, 2)
    return binary, python, images, labels


def tar_gz(folder, files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def csr_pickle(dense):
    """Pickle a sparse matrix as Python 2 and scipy did, without scipy."""
    rows, columns = np.nonzero(dense)
    state = {
        "_shape": dense.shape,
        "maxprint": 50,
        "data": dense[rows, columns].astype(np.float32),
        "indices": columns.astype(np.int32),
        "indptr": np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))]).astype(np.int32),
    }
    return b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81" + pickle.dumps(state, 2)[2:-1] + b"b."


def cora(symmetric=True):
    """Make the eight files by name, and the edges in them as drawn."""
    rng = np.random.default_rng(3)
    nodes, columns, classes = CORA_SIZES
    train, _, test = CORA_SPLIT
    known = nodes - test
    features = (rng.random((nodes, columns)) < 0.2).astype(np.float32)
    features[7] = 0  # a node without words stays a row of zeros
    labels = rng.integers(0, classes, nodes)
    one_hot = np.eye(classes, dtype=np.int32)[labels]
    order = rng.permutation(np.arange(known, nodes))
    edges = rng.integers(0, nodes, (2, 1500))
    edges[:, :20] = edges[0, :20]  # self loops
    edges[:, 20:40] = edges[:, 40:60]  # duplicates
    if symmetric:
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    graph: dict[int, list[int]] = {node: [] for node in range(nodes)}
    for a, b in edges.T.tolist():
        graph[a].append(b)
    files = {
        "x": csr_pickle(features[:train]),
        "allx": csr_pickle(features[:known]),
        "tx": csr_pickle(features[order]),
        "y": pickle.dumps(one_hot[:train], 2),
        "ally": pickle.dumps(one_hot[:known], 2),
        "ty": pickle.dumps(one_hot[order], 2),
        "graph": b"\x80\x02ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R" + pickle.dumps(graph, 2)[3:],
        "test.index": "".join(f"{node}\n" for node in order).encode(),
    }
    # pickle.dumps(graph) starts with PROTO 2 and EMPTY_DICT: the default dictionary takes the place of the latter.
    return {f"ind.cora.{part}": content for part, content in files.items()}, edges


def put(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def gzipped(files):
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in files.items()}


def official(files):
    return {name: f"sha256:{sha256(content)}" for name, content in files.items()}


def read_mnist(root, official):
    return mnist_reader.read_folder(source.Folder(root, "mnist", official), *MNIST_COUNTS)


def read_cifar(root, official):
    return cifar10.read_folder(source.Folder(root, "cifar10", official), CIFAR_BATCH)


def read_cora(root, official):
    return cora_reader.read_folder(source.Folder(root, "cora", official), CORA_SIZES, CORA_SPLIT)


def flip(path, place=-1):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def write_manifest(folder, provenance="made for a test"):
    files = {p.relative_to(folder).as_posix(): sha256(p.read_bytes()) for p in folder.rglob("*") if p.is_file()}
    source.write_manifest(folder / "manifest.json", source.DataManifest(provenance, files))
