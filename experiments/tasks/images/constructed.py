"""Image models of torchvision and timm, made smaller on CIFAR-10: every size that the library finds, but heads."""

from __future__ import annotations

import copy
import difflib
import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import ngn
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.core.packages import missing, sentence
from experiments.core.pretrained import BaseModel
from experiments.tasks.images.task import CLASSES, ResNetTask, with_given_weights
from ngn.cuts import Cut

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
