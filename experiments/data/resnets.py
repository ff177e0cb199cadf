"""Read ResNet-20 and ResNet-56, trained on CIFAR-10, as arrays; convert the checkpoints of their author."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from experiments.core.task import DataInfo
from experiments.data.source import DataError, Folder, install_with_manifest

NAME = "resnets"
SOURCE = "akamaster/pytorch_resnet_cifar10"


@dataclass(frozen=True)
class Network:
    """A residual network of three stages and where its weights come from.

    Attributes:
        checkpoint, digest: file of the author, and its sha256, the start of which is in its name.
        blocks: residual blocks of each stage.
    """

    checkpoint: str
    digest: str
    blocks: int


NETWORKS = {
    "resnet20": Network(
        "resnet20-12fca82f.th", "sha256:12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8", 3
    ),
    "resnet56": Network(
        "resnet56-4bfd9763.th", "sha256:4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367", 9
    ),
}
OFFICIAL = {
    "resnet20_cifar10.safetensors": "sha256:02926273efb1deadb6dc654c7087baea932ef2026d9f854680d6858146d85838",
    "resnet56_cifar10.safetensors": "sha256:cf29b05e3acebb9dc28868ebd84a604ff452971bb6770f22beaff48708079aee",
}
"""Digests of what :func:`install_checkpoints` writes. Another safetensors may order the bytes in another way; then the
manifest that it writes beside them counts."""


class TrainedNetworks(NamedTuple):
    """The weights of each network, float32 arrays by the names of their tensors, and the identity of the files."""

    weights: dict[str, dict[str, np.ndarray]]
    info: DataInfo


def file_of(name: str) -> str:
    """Return the file of a network's weights."""
    return f"{name}_cifar10.safetensors"


def read_folder(folder: Folder) -> TrainedNetworks:
    """Read the networks; see :func:`load_data`."""
    files = [file_of(name) for name in NETWORKS]
    paths = folder.choose([[(base / file,) for file in files] for base in (folder.path, folder.root / "models")])
    weights = {name: _checked(folder.read(path), path) for name, path in zip(NETWORKS, paths, strict=True)}
    return TrainedNetworks(weights, folder.info())


def load_data(root: Path) -> TrainedNetworks:
    """Read both networks below a data root. ``experiments.models.cifar_resnet`` makes modules of them.

    Source: Idelbayev, "Proper ResNet implementation for CIFAR10/CIFAR100 in PyTorch", 2018; BSD-2-Clause.

    Raises:
        DataError: if a file is missing or damaged.
    """
    return read_folder(Folder(root, NAME, OFFICIAL))


def _checked(content: np.ndarray, path: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a file, which are finite. The module checks their names and shapes."""
    try:
        arrays: dict[str, np.ndarray] = safetensors.numpy.load(content.tobytes())
    except (SafetensorError, KeyError, ValueError) as fault:  # KeyError: a number type that numpy lacks
        raise DataError(f"{path}: cannot be read as safetensors ({type(fault).__name__}: {fault})") from None
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise DataError(f"{path}: {name} has values that are no finite float32")
    return arrays


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Return the tensors in a checkpoint of the author, without running code that it names.

    Raises:
        DataError: if the file is damaged, or holds more than tensors and numbers.
    """
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        # They were trained with DataParallel, which puts this before every name.
        return {name.removeprefix("module."): tensor.numpy() for name, tensor in state.items()}
    except Exception as fault:  # a damaged file can make the reader fail in any way
        raise DataError(f"{path}: refused as a checkpoint ({type(fault).__name__}: {fault})".splitlines()[0]) from None


def install_checkpoints(working: Path, folder: Path) -> None:
    """Convert the fetched checkpoints, bit by bit the same weights, to safetensors with a manifest.

    Raises:
        DataError: if a checkpoint is damaged.
    """
    new = working / "converted"
    new.mkdir(exist_ok=True)
    for name, network in NETWORKS.items():
        packed = safetensors.numpy.save(read_checkpoint(working / network.checkpoint))
        (new / file_of(name)).write_bytes(packed)
    given = " and ".join(network.checkpoint for network in NETWORKS.values())
    install_with_manifest(f"{given} of {SOURCE}, converted", new, folder)
