"""Read ResNet-20 and ResNet-56, trained on CIFAR-10, as arrays; convert the checkpoints of their author."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from experiments.core.task import DataInfo
from experiments.data import manifest
from experiments.data.errors import DataError
from experiments.data.source import Folder

NAME = "resnets"
SOURCE = "akamaster/pytorch_resnet_cifar10"
Shapes = dict[str, tuple[int, ...]]
_NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Network:
    """A residual network of three stages and where its weights come from.

    Attributes:
        checkpoint, digest: file of the author, and its sha256, the start of which is in its name.
        blocks: residual blocks of each stage.
        widths: channels of each stage.
    """

    checkpoint: str
    digest: str
    blocks: int
    widths: tuple[int, ...] = (16, 32, 64)
    classes: int = 10

    def shapes(self) -> Shapes:
        """Return the shape of every tensor, by its name."""
        found = _convolution("conv1", "bn1", 3, self.widths[0])
        before = self.widths[0]
        for stage, width in enumerate(self.widths, start=1):
            for block in range(self.blocks):
                place = f"layer{stage}.{block}"
                found |= _convolution(f"{place}.conv1", f"{place}.bn1", before, width)
                found |= _convolution(f"{place}.conv2", f"{place}.bn2", width, width)
                before = width
        return found | {"linear.weight": (self.classes, before), "linear.bias": (self.classes,)}


def _convolution(conv: str, norm: str, channels: int, out: int) -> Shapes:
    """Shapes of a 3 x 3 convolution without bias and of its normalisation."""
    return {f"{conv}.weight": (out, channels, 3, 3)} | {f"{norm}.{part}": (out,) for part in _NORM}


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


def read_folder(folder: Folder, networks: Mapping[str, Network] = NETWORKS) -> TrainedNetworks:
    """Read the networks; see :func:`load_data`."""
    files = [file_of(name) for name in networks]
    paths = folder.choose([[(base / file,) for file in files] for base in (folder.path, folder.root / "models")])
    weights = {
        name: _checked(folder.read(path), path, networks[name]) for name, path in zip(networks, paths, strict=True)
    }
    return TrainedNetworks(weights, folder.info())


def load_data(root: Path) -> TrainedNetworks:
    """Read both networks below a data root. ``experiments.models.cifar_resnet`` makes modules of them.

    Source: Idelbayev, "Proper ResNet implementation for CIFAR10/CIFAR100 in PyTorch", 2018; BSD-2-Clause.

    Raises:
        DataError: if a file is missing or damaged, or its tensors are not those of the network.
    """
    return read_folder(Folder(root, NAME, OFFICIAL))


def _checked(content: np.ndarray, path: Path, network: Network) -> dict[str, np.ndarray]:
    """Return the tensors of a file, which are those of the network and finite."""
    try:
        arrays: dict[str, np.ndarray] = safetensors.numpy.load(content.tobytes())
    except (SafetensorError, KeyError, ValueError) as fault:  # KeyError: a number type that numpy lacks
        raise DataError(f"{path}: cannot be read as safetensors ({type(fault).__name__}: {fault})") from None
    wanted = network.shapes()
    for name in sorted(wanted.keys() ^ arrays.keys()):
        wrong = "lacks the tensor" if name in wanted else "has an unknown tensor"
        raise DataError(f"{path}: {wrong} {name}; {len(wanted)} tensors were expected")
    for name, shape in wanted.items():
        array = arrays[name]
        if array.shape != shape or array.dtype != np.float32:
            raise DataError(f"{path}: {name} is {array.dtype} {array.shape}; float32 {shape} was expected")
        if not np.isfinite(array).all():
            raise DataError(f"{path}: {name} has values that are not finite")
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


def install_checkpoints(working: Path, folder: Path, networks: Mapping[str, Network] = NETWORKS) -> None:
    """Convert the fetched checkpoints, bit by bit the same weights, to safetensors with a manifest.

    Raises:
        DataError: if a checkpoint is damaged.
    """
    new = working / "converted"
    new.mkdir(exist_ok=True)
    for name, network in networks.items():
        packed = safetensors.numpy.save(read_checkpoint(working / network.checkpoint))
        (new / file_of(name)).write_bytes(packed)
    given = " and ".join(network.checkpoint for network in networks.values())
    manifest.install_with_manifest(new, manifest.manifest_of(new, f"{given} of {SOURCE}, converted"), folder)
