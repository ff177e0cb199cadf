"""MNIST and CIFAR-10; on CIFAR-10, residual networks and models of torchvision and timm to make smaller.

The uint8 images stay on the device; each batch is converted to floats.
"""

from __future__ import annotations

import copy
import difflib
import importlib
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import ngn
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.packages import missing, sentence
from experiments.core.pretrained import BaseModel
from experiments.core.task import CapacityOf, DataInfo, ModuleTask, Seeds
from experiments.core.training import Train
from experiments.data import DataError, cifar10, data_root, mnist, synthetic
from experiments.models.cifar_resnet import CifarResNet, load_trained, standardised
from experiments.models.conv import ConvBank
from experiments.models.mlp import MLPBank
from experiments.models.parallel import ParallelModel, StackedLinear
from experiments.tasks.base import Classification, MiniBatches
from experiments.tasks.images import ChannelsComponent, Cifar10, ConvComponent, Mnist
from experiments.tasks.settings import MLPComponent
from ngn.components.base import OrderedSum
from ngn.cuts import Cut
from ngn.train.batches import Batches, Split

CLASSES = 10
STATISTICS = {
    "mnist": ([0.1307], [0.3081]),
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
}
"""Mean and standard deviation of the training pixels per channel, after division by 255."""


class ImageTask(Classification[MLPComponent | ConvComponent]):
    """Ten classes. MLP blocks take pixels / 255 and share a linear head; convolutions take standardised images."""

    def __init__(self, settings: Mnist | Cifar10, config: Config, device: torch.device) -> None:
        smoke, self.shape = config.profile == "smoke", settings.inputs
        read = mnist.load_data if settings.name == "mnist" else cifar10.load_data
        data = synthetic.images(self.shape) if smoke else read(data_root(config.data_root))
        self.info = data.info
        train = (torch.from_numpy(data.train_images), torch.from_numpy(data.train_labels))
        held = (torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels))
        if settings.split == "validation":
            keep = len(train[1]) - (len(train[1]) // 4 if smoke else settings.held_out)
            train, held = (train[0][:keep], train[1][:keep]), (train[0][keep:], train[1][keep:])
        self.train = Split(train[0].to(device), train[1].to(device))
        self.held = Split(held[0].to(device), held[1].to(device))
        self.flat = isinstance(config.gate, MLPComponent)
        self.mean, self.deviation = (torch.tensor(s, device=device).view(-1, 1, 1) for s in STATISTICS[settings.name])

    def prepare(self, inputs: Tensor) -> Tensor:
        """Convert uint8 [*R, N, C, H, W] to float32.

        The result is [*R, N, pixels] in [0, 1] for MLP blocks, else standardised [*R, N, C, H, W].
        """
        scaled = inputs.float() / 255.0
        return scaled.flatten(-3) if self.flat else (scaled - self.mean) / self.deviation

    def model(self, gate: MLPComponent | ConvComponent, seeds: Seeds, capacity: CapacityOf) -> nn.Module:
        size = capacity(0)
        if isinstance(gate, MLPComponent):
            pixels = self.shape[0] * self.shape[1] * self.shape[2]
            out = gate.features or CLASSES
            bank = MLPBank([pixels, *[gate.width] * gate.hidden_layers, out], size.K, seeds)
            head = None if gate.features is None else StackedLinear(out, CLASSES, seeds)
            return ParallelModel(OrderedSum(bank, size), head)
        return ParallelModel(OrderedSum(ConvBank(self.shape, gate.channels, CLASSES, size.K, seeds), size))


WIDTHS = (16, 32, 64)


class ResNetTask(ModuleTask[ChannelsComponent], ImageTask):  # type: ignore[misc]
    """Ten classes; images are moved and mirrored in training.

    The last tenth of the training images is never trained on, whatever the split: settings are chosen on it.
    """

    prefix_score = None

    def __init__(self, settings: Cifar10, config: Config, device: torch.device) -> None:
        assert isinstance(config.gate, ChannelsComponent)
        super().__init__(settings, config, device)
        if settings.split == "test":
            kept = len(self.train) * 9 // 10
            self.train = Split(self.train.inputs[:kept], self.train.targets[:kept])
        self.build(config)

    def build(self, config: Config) -> None:
        """Make or read the network, and name what is cut."""
        assert isinstance(config.gate, ChannelsComponent)
        self.maps = config.gate.shortcuts == "maps"
        smoke = config.profile == "smoke"
        self.blocks, self.widths = config.gate.blocks, (16, 16, 16) if smoke else WIDTHS
        self.trained: nn.Module | None = None
        if config.model is not None:
            self.by_importance, path = "magnitude", config.model.path
            if path is None:
                self.trained, self.base_info = load_trained(config.model.name, data_root(config.data_root))
            else:
                named = f"a network with gate.blocks={self.blocks}"
                self.trained, self.base_info = with_given_weights(CifarResNet(self.blocks).eval(), path, named)
        whole = self.module(0)
        self.inside = [name for name, _ in whole.named_modules() if name.endswith(".conv1")]
        convolutions = [name for name, part in whole.named_modules() if isinstance(part, nn.Conv2d)]
        self.uncut = (*(name for name in convolutions if name not in self.inside), "linear")

    def prepare(self, inputs: Tensor) -> Tensor:
        """Standardise uint8 [N, 3, H, W] as the trained networks expect; channels last, which are computed faster."""
        return standardised(inputs).contiguous(memory_format=torch.channels_last)

    def batches(self, train: Train, seeds: Seeds) -> Batches:
        assert train.batch is not None
        return MiniBatches(self.train, train.batch, seeds, lambda pixels: mirrored(self.prepare(shifted(pixels))))

    def evaluate(self, model: nn.Module) -> dict[str, Tensor]:
        with torch.autocast(self.mean.device.type, enabled=False):  # steps may be in bfloat16, scores are in float32
            return super().evaluate(model)

    def module(self, seed: int, width: float = 1.0) -> nn.Module:
        if self.trained is not None:
            return copy.deepcopy(self.trained)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            widths = [max(1, int(width * channels)) for channels in self.widths]
            return CifarResNet(self.blocks, widths, maps=self.maps)

    def sizes(self, module: nn.Module, K: int | None, order: Any = None) -> Any:
        return {name: ngn.Channels(K, order) for name in self.inside}

    def counts(self, module: nn.Module) -> list[int]:
        return [len(module.get_submodule(name).weight) for name in self.inside]  # type: ignore[arg-type]


def with_given_weights(whole: nn.Module, path: str, named: str) -> tuple[nn.Module, DataInfo]:
    """Put the weights of ``model.path``, a file, into a module; return it, and what the file is.

    Raises:
        DataError: if the file is missing, or holds no weights of the module, which the message calls ``named``.
    """
    file = Path(path).expanduser()
    try:
        whole.load_state_dict(load_file(file))
    except Exception as fault:  # a damaged file can make the reader fail in any way
        reason = str(fault).splitlines()[0]
        raise DataError(f"model.path={file}: does not hold weights of {named}, as safetensors ({reason})") from None
    return whole, DataInfo(file.stem, sha256(file.read_bytes()).hexdigest(), "a file that was given")


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


SIDE = {"torchvision": "image_size", "timm": "img_size"}
"""Package → argument for the side of an image, which transformers have and other networks do not."""


def maker_of(model: BaseModel) -> Any:
    """Return the function of a package that makes a model by name.

    Raises:
        ConfigError: if the package is missing or cannot be imported, or has no classifier of images with this name.
    """
    package, name = str(model.package), str(model.constructor)
    if missing(package) is not None:
        raise ConfigError(str(sentence(f"model={package}", package)))
    try:
        library: Any = importlib.import_module(package)
    except (ImportError, RuntimeError, OSError) as fault:  # built for another torch
        raise ConfigError(
            f"model={package}: install a {package} for this torch; it cannot be imported ({fault})"
        ) from None
    known: Sequence[str]
    if package == "torchvision":
        known, make = library.models.list_models(module=library.models), library.models.get_model
    else:
        known, make = library.list_models(), library.create_model
    if name not in known:
        near = ", ".join(difflib.get_close_matches(name, known, n=3)) or ", ".join(known[:3])
        raise ConfigError(f"model.constructor={name}: {package} has no such classifier of images; near names: {near}")
    return make


class ConstructedTask(ResNetTask):
    """A module of ``model.package``; new weights, or those of the file ``model.path``."""

    def build(self, config: Config) -> None:
        assert config.model is not None
        self.constructor, self.make = config.model, maker_of(config.model)
        self.trained = None
        whole = self.module(0)
        if config.model.path is not None:
            named = f"{self.constructor.constructor} with {CLASSES} classes"
            self.trained, self.base_info = with_given_weights(whole, config.model.path, named)
            self.by_importance = "magnitude"
        self.example = self.timed_batch()[0][:2].float().cpu()
        self._refuse_unfit(whole)
        names = {module: name for name, module in whole.named_modules()}
        self.uncut = tuple(
            name
            for name, part in whole.named_modules()
            if isinstance(part, nn.Linear | nn.Conv2d) and len(part.weight) == CLASSES
        )
        self.places = []
        for group in self.sizes(whole, None):
            whole_of = [cut for cut in group.cuts if _spans(cut, group.length)]
            self.places += [(names[cut.module], cut.name, cut.dim, cut.width) for cut in whole_of[:1]]

    def _refuse_unfit(self, whole: nn.Module) -> None:
        """Raise a ConfigError for a module that does not map images to scores of the classes, [N, 10]."""
        message = f"model.constructor={self.constructor.constructor}: cannot classify images of 32 x 32 pixels"
        tried = copy.deepcopy(whole)
        for training in (True, False):
            try:
                with torch.no_grad(), torch.random.fork_rng():
                    scores: Any = tried.train(training)(self.example)
            except Exception as fault:  # another package's module can fail in any way
                raise ConfigError(f"{message} ({str(fault).splitlines()[0]}); choose another") from None
            if not isinstance(scores, Tensor) or scores.shape != (len(self.example), CLASSES):
                raise ConfigError(f"{message} (its output is no tensor [N, {CLASSES}]); choose another")

    def module(self, seed: int, width: float = 1.0) -> nn.Module:
        if self.trained is not None:
            return copy.deepcopy(self.trained)
        package, name = str(self.constructor.package), self.constructor.constructor
        usual = {"num_classes": CLASSES} | ({"weights": None} if package == "torchvision" else {})
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            try:
                made: nn.Module = self.make(name, **usual, **{SIDE[package]: self.shape[-1]})
            except TypeError:  # a network without this argument takes images of any side
                torch.manual_seed(seed)
                made = self.make(name, **usual)
        return made

    def sizes(self, module: nn.Module, K: int | None, order: Any = None) -> Any:
        found = ngn.find_sizes(module, self.example.to(next(module.parameters()).device))
        groups = [group for group in found if group.unit != "heads"]  # shapes of tensors do not tell a number of heads
        orders = {group.name: order and order(group.name, group.length) for group in groups}
        return found.chosen({group.name: replace(group, order=orders[group.name]) for group in groups})

    def counts(self, module: nn.Module) -> list[int]:
        return [
            getattr(module.get_submodule(name), tensor).shape[dim] // width for name, tensor, dim, width in self.places
        ]


def _spans(cut: Cut, length: int) -> bool:
    """Whether the units of a cut are all that its tensor has along the dimension."""
    return cut.start == 0 and getattr(cut.module, cut.name).shape[cut.dim] == length * cut.width
