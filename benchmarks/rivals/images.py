"""Works on images: three ResNets on CIFAR-10."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rivals.models import ResNet20
from rivals.work import FOR_LANGUAGE, Settings, Workload, computing
from safetensors.torch import load_file
from torch import Tensor, nn

import ngn
from experiments.data import cifar10, synthetic
from experiments.data.source import DataInfo, ImageData
from experiments.models.cifar_resnet import CifarResNet, load_trained
from experiments.models.cifar_resnet import standardised as as_trained
from experiments.tasks.base import MiniBatches
from ngn.sizes.base import ByImportance, Size
from ngn.train.batches import Batches, Split


def images(scale: str, root: Path, **changes: Any) -> Workload:
    """ResNet-20 on CIFAR-10; the last tenth of the training images is the validation set."""
    settings = {
        "tiny": Settings(steps=4, batch=8, held=8),
        "small": Settings(steps=400, batch=64, held=5_000),
        "full": Settings(steps=10_500, batch=128, held=10_000),
    }[scale]
    settings = replace(settings, **changes)

    def sizes(K: int | None, order: ByImportance) -> dict[str, Size]:
        return {"blocks.*.conv1": ngn.Channels(K, order)}

    def standardised(pixels: Tensor) -> Tensor:
        return (pixels.float() - 121.0) / 63.0

    def prepared(pixels: Tensor) -> Tensor:
        return mirrored(standardised(pixels))

    return of_images(
        "resnet20", pictures(scale, root), settings, standardised, prepared, model=ResNet20, sizes=sizes, uncut=("fc",)
    )


def trained(
    name: str, network: str, epochs: int, scale: str, root: Path, base: Path | None = None, **changes: Any
) -> Workload:
    """A trained ``network``, "resnet20" or "resnet56", cut to a share of its multiply-adds and fine-tuned.

    Its author trained it on all training images. So settings are chosen on a ResNet-20 that has not seen the validation
    set: ``base``, a file of its weights.
    """
    settings = {
        "tiny": Settings(steps=4, batch=8, held=8, before=0.0, K=8),
        "small": Settings(steps=351, batch=128, held=5_000, lr=1e-3, before=0.0),
        "full": Settings(steps=epochs * 351, batch=128, held=10_000, lr=1e-3, before=0.0, autocast="bf16"),
    }[scale]
    settings = replace(settings, **changes)
    torch.manual_seed(0)  # for the tiny one
    if scale == "tiny":
        whole, info = CifarResNet(1, (16, 16, 16)), None
    elif base is not None:
        whole, info = CifarResNet(3), DataInfo(base.stem, sha256(base.read_bytes()).hexdigest(), "trained here")
        whole.load_state_dict(load_file(base))
    else:
        whole, info = load_trained(network, root)

    def model(width: float) -> nn.Module:
        if width != 1:
            raise ValueError("trained weights are of the whole width")
        return copy.deepcopy(whole)

    return of_images(
        name, pictures(scale, root), settings, expected, cropped, model=model,
        limited="macs", order="magnitude", base=info,
        meaningless=("uniform width", "even sizes", *FOR_LANGUAGE), **inside(whole),
    )  # fmt: skip


def scratch(scale: str, root: Path, **changes: Any) -> Workload:
    """The same ResNet-20, not trained, with a share of its multiply-adds, cropped and mirrored images."""
    settings = {
        "tiny": Settings(steps=4, batch=8, held=8, K=8),
        "small": Settings(steps=351, batch=128, held=5_000),
        "full": Settings(steps=20 * 351, batch=128, held=10_000, lr=1e-2, weight_decay=0.05, autocast="bf16"),
    }[scale]
    blocks, widths = (1, (16, 16, 16)) if scale == "tiny" else (3, (16, 32, 64))

    def model(width: float) -> nn.Module:
        return CifarResNet(blocks, [max(1, int(width * channels)) for channels in widths])

    return of_images(
        "scratch20", pictures(scale, root), replace(settings, **changes), expected, cropped, model=model,
        limited="macs", **inside(model(1.0)),
    )  # fmt: skip


def inside(whole: nn.Module) -> dict[str, Any]:
    """Cut the channels inside the blocks: those between blocks are padded with zeros by index."""
    within = [name for name, _ in whole.named_modules() if name.endswith(".conv1")]
    uncut = [name for name, part in whole.named_modules() if isinstance(part, nn.Conv2d) and name not in within]

    def sizes(K: int | None, order: ByImportance) -> dict[str, Size]:
        return {name: ngn.Channels(K, order) for name in within}

    return {"sizes": sizes, "uncut": (*uncut, "linear")}


def expected(pixels: Tensor) -> Tensor:
    """Standardise as the trained networks expect; channels last, which convolutions compute faster."""
    return as_trained(pixels).contiguous(memory_format=torch.channels_last)


def cropped(pixels: Tensor) -> Tensor:
    """The inputs of a training batch: moved, mirrored and standardised."""
    return mirrored(expected(shifted(pixels)))


def pictures(scale: str, root: Path) -> ImageData:
    """CIFAR-10, or images made for the tiny scale."""
    return synthetic.images((3, 32, 32)) if scale == "tiny" else cifar10.load_data(root)


def of_images(
    name: str,
    data: ImageData,
    settings: Settings,
    standardised: Callable[[Tensor], Tensor],
    prepared: Callable[[Tensor], Tensor],
    **more: Any,
) -> Workload:
    """Classify images: ``standardised`` makes inputs of pixels, ``prepared`` those of a training batch."""
    first = len(data.train_images) * 9 // 10
    x, y = torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels)
    test = torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels)
    validation = x[first:], y[first:]

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        with computing(settings):
            logits = model(batch[0])
        return F.cross_entropy(logits.float(), batch[1])

    def score(model: nn.Module, final: bool) -> float:
        pixels, labels = (part[: settings.held] for part in (test if final else validation))
        parts = [model(standardised(part)).argmax(1) for part in pixels.split(100)]
        return 100 * float((torch.cat(parts) == labels).double().mean())

    def batches(seed: int) -> Batches:
        return MiniBatches(Split(x[:first], y[:first]), settings.batch, seed, prepared)

    return Workload(
        name=name, unit="accuracy, %", better=1, settings=settings, info=data.info, batches=batches, loss=loss,
        score=score, example=standardised(validation[0][: settings.batch]), **more,
    )  # fmt: skip


def mirrored(x: Tensor) -> Tensor:
    """Mirror every other image of a randomly ordered batch, in place."""
    x[1::2] = x[1::2].flip(-1)
    return x


def shifted(pixels: Tensor) -> Tensor:
    """Move each image, [N, C, H, W], by up to four pixels both ways; what enters is black.

    Each place of a batch has one draw for ever: batches are in random order, so images meet all of them.
    """
    rows, columns = torch.randint(0, 9, (2, len(pixels), 1), generator=torch.Generator().manual_seed(0))
    padded = F.pad(pixels, (4, 4, 4, 4))
    at = torch.arange(len(pixels))[:, None, None]
    down, right = rows + torch.arange(pixels.shape[2]), columns + torch.arange(pixels.shape[3])
    return padded.permute(0, 2, 3, 1)[at, down[:, :, None], right[:, None]].permute(0, 3, 1, 2).contiguous()
