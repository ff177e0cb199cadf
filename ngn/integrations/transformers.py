"""Models of transformers: learn sizes in the ``Trainer``; folders that ``from_pretrained`` opens."""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel, TrainerCallback
from transformers.trainer_callback import ExportableState

import ngn
from ngn.checks import FAULTS
from ngn.comparison import check_equal
from ngn.components.low_rank import LowRankLinear
from ngn.contract import Learner
from ngn.cutting import Choice, TensorCuts, by_dimension, kept_entries
from ngn.integrations import BoundaryOptimizer
from ngn.shapes import check_deployed
from ngn.tracing.found import listed
from ngn.tracing.groups import find_sizes

SIZES = "ngn_sizes"
"""Key of ``config.json`` for the sizes that a configuration of transformers cannot express."""
REFUSAL = "{}, with sizes of its own for each layer: open this folder with ngn.integrations.transformers.load(folder)"
"""The type of such a model. Stock classes do not know it, and say so."""
COUNTED = re.compile("head(?!.*dim)|inter|inner|hidden_dim|ff|kv|expert")
"""Settings of configurations that may count heads, hidden units or experts."""


def save(small: PreTrainedModel, folder: str | Path, example: Any = None, padded: bool = False) -> None:
    """Write a deployed model of transformers as a folder of ``config.json`` and ``model.safetensors``.

    If one size of each kind stands for all layers, and the configuration can express it, the folder is a stock one:
    ``from_pretrained`` opens it without ngn. Otherwise :func:`load` opens it, and ``from_pretrained`` refuses it.

    The folder is read back and compared before it gets its name. A model that it held is replaced.

    Args:
        example: an input to compare on, as for ``deploy``. Default: random images, or the model's ``dummy_inputs``.
        padded: fill layers up with zeros to the size of the largest, or of the original, so that the folder is a stock
            one. It has more parameters than ``small``.

    Raises:
        TypeError, ValueError: if ``small`` is no deployed model of transformers, holds other modules than its class, or
            differs from what is read back. Nothing is written then.
    """
    check_deployed(small, "save")
    if not isinstance(small, PreTrainedModel):
        raise TypeError(f"save takes a model of transformers, not a {type(small).__name__}; for others use ngn.save")
    kind, whole = type(small), _on_meta(type(small), small.config)
    kinds = {path: type(module) for path, module in whole.named_modules()}
    if strange := [path for path, part in small.named_modules() if kinds.get(path) is not type(part)]:
        raise ValueError(
            f"a stock {kind.__name__} does not hold {listed(strange)} as it is: merge learned ranks with ngn.merge, or "
            "write them with ngn.to_peft"
        )
    example = _example(small) if example is None else example
    configs = [_fitted(small, max if padded else _only)]
    if not padded and configs[0] is not None and _shapes(_on_meta(kind, configs[0])) != _shapes(small):
        configs = []
    configs = [each for each in configs if each is not None] + [small.config if padded else None]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for config in configs:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as place:
            written = Path(place)
            try:
                if config is None:
                    _write_own(small, whole, written)
                else:
                    _write(small, config, example, written)
                check_equal(small, load(written).to(small.device), example)
            except (ValueError, RuntimeError) as fault:
                if config is not configs[-1]:
                    continue
                raise ValueError(f"{folder}: nothing was written. {fault}") from fault
            for old in [*Path(folder).glob("model*.safetensors*"), *Path(folder).glob("pytorch_model*")]:
                old.unlink()
            for file in sorted(written.iterdir(), key=lambda file: file.suffix == ".json"):
                os.replace(file, Path(folder) / file.name)
        return


def load(folder: str | Path, **options: Any) -> PreTrainedModel:
    """Open a folder of :func:`save`: the class that was saved, in eval mode.

    Args:
        options: those of ``from_pretrained``, such as ``dtype`` and ``device_map``.

    Raises:
        ValueError: if the folder holds no model of a class of transformers.
    """
    said = json.loads((Path(folder) / "config.json").read_bytes())
    name, sizes = (said.get("architectures") or [""])[0], said.pop(SIZES, None)
    kind = getattr(transformers, name, None)
    if not (isinstance(kind, type) and issubclass(kind, PreTrainedModel)):
        raise ValueError(f"{folder} holds a {name or 'model without a name'}, which is no class of transformers")
    if sizes is None:
        return kind.from_pretrained(folder, **options)

    def init(self: Any, config: Any, *args: Any, **named: Any) -> None:
        kind.__init__(self, config, *args, **named)  # type: ignore[misc]
        _resize(self, sizes)

    # a class of this name, since from_pretrained makes the model, and reads tensors into the shapes that it then has
    sized = type(kind.__name__, (kind,), {"__init__": init, "__module__": kind.__module__})
    config = kind.config_class.from_dict(said | {"model_type": sizes["type"]})
    model: PreTrainedModel = sized.from_pretrained(folder, config=config, **options)
    model.__class__ = kind
    return model


def _on_meta(kind: type[PreTrainedModel], config: Any) -> PreTrainedModel:
    with torch.device("meta"):
        return kind(type(config).from_dict(config.to_dict()))


def _shapes(model: nn.Module) -> dict[str, list[int]]:
    return {name: [*value.shape] for name, value in model.state_dict().items()}


def _example(small: PreTrainedModel) -> dict[str, Tensor]:
    if small.main_input_name == "pixel_values":
        size, channels = small.config.image_size, getattr(small.config, "num_channels", 3)
        sides = (size, size) if isinstance(size, int) else size
        given = {"pixel_values": torch.randn(2, channels, *sides, generator=torch.Generator().manual_seed(0))}
        return {name: value.to(small.device, small.dtype) for name, value in given.items()}
    return {name: value.to(small.device) for name, value in small.dummy_inputs.items()}


def _only(values: set[int]) -> int | None:
    return values.pop() if len(values) == 1 else None


def _fitted(small: PreTrainedModel, choose: Callable[[set[int]], int | None]) -> Any:
    """The configuration with the numbers of heads, hidden units and experts that ``choose`` takes from all layers.

    Lengths of tensors are affine in each number. Models of one and of two say how.
    """
    kind, known, wanted, headed = type(small), small.config.to_dict(), _shapes(small), False
    heads, hidden = (getattr(small.config, name, None) for name in ("num_attention_heads", "hidden_size"))
    given = {"head_dim": known["head_dim"]} if "head_dim" in known else {}
    if known.get("head_dim") is None and isinstance(heads, int) and isinstance(hidden, int):
        known["head_dim"] = hidden // heads  # many classes derive it from the number of heads, unless it is given

    def shapes(**numbers: int) -> dict[str, list[int]]:
        return _shapes(_on_meta(kind, type(small.config).from_dict(known | numbers)))

    for key in sorted((key for key in known if COUNTED.search(key)), key=lambda key: "head" not in key):
        if type(known[key]) is not int and known[key] is not None:
            continue
        try:
            one, two = shapes(**{key: 1}), shapes(**{key: 2})
        except FAULTS:  # no such model
            continue
        if not one.keys() == two.keys() == wanted.keys():  # it counts modules
            continue
        lengths = [
            (length, a, b)
            for name in wanted
            for length, a, b in zip(wanted[name], one[name], two[name], strict=True)
            if a != b
        ]
        found = {1 + (length - a) / (b - a) for length, a, b in lengths}
        number = choose({int(each) for each in found}) if all(each.is_integer() for each in found) and found else None
        if number is not None and number > 0:
            headed, known[key] = headed or ("head" in key and number != known[key]), number
    if not headed:  # then it says nothing new
        known = {key: value for key, value in known.items() if key != "head_dim"} | given
    try:
        config = type(small.config).from_dict(known)
        _on_meta(kind, config)
    except FAULTS:  # such as three heads where the hidden size is no multiple of three
        return None
    return config


def _write(small: PreTrainedModel, config: Any, example: Any, folder: Path) -> None:
    """Write the tensors of ``small`` as a stock model of another configuration, with zeros where it is larger."""
    fits = _shapes(_on_meta(type(small), config)) == _shapes(small)
    small.save_pretrained(folder, state_dict=small.state_dict() if fits else _padded(small, config, example))
    config.architectures, config.dtype = small.config.architectures, small.config.dtype
    config.save_pretrained(folder)


def _write_own(small: PreTrainedModel, whole: nn.Module, folder: Path) -> None:
    """Write ``small``, and how it differs from the ``whole`` model of its configuration."""
    small.save_pretrained(folder)
    usual, parts = _shapes(whole), dict(whole.named_modules())
    attributes = {
        path: {
            name: value
            for name, value in vars(part).items()
            if isinstance(value, (int, tuple)) and not isinstance(value, bool) and not name.startswith("_")
            if vars(parts[path]).get(name, value) != value
        }
        for path, part in small.named_modules()
    }
    sizes = {
        "type": small.config.model_type,  # not "model_type": from_pretrained would take these sizes for a configuration
        "shapes": {name: shape for name, shape in _shapes(small).items() if usual.get(name) != shape},
        "attributes": {path: changed for path, changed in attributes.items() if changed},
    }
    path = folder / "config.json"
    said = json.loads(path.read_bytes()) | {"model_type": REFUSAL.format(small.config.model_type), SIZES: sizes}
    path.write_text(json.dumps(said, indent=2) + "\n")


def _resize(model: nn.Module, sizes: Mapping[str, Any]) -> None:
    """Give ``model`` the shapes and the integers of :func:`_write_own`."""
    for path, attributes in sizes["attributes"].items():
        part = model.get_submodule(path)
        for name, value in attributes.items():
            setattr(part, name, tuple(value) if isinstance(value, list) else value)
    for name, shape in sizes["shapes"].items():
        path, _, key = name.rpartition(".")
        part = model.get_submodule(path)
        held = part._parameters if key in part._parameters else part._buffers
        old: Any = held[key]
        new = torch.empty(shape, dtype=old.dtype, device=old.device)
        held[key] = nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new


def _padded(small: PreTrainedModel, config: Any, example: Any) -> dict[str, Tensor]:
    """The tensors of ``small`` with zeros in the places that a model of ``config`` has beside.

    A trace of that model finds the places. Those of a size that ``small`` has come first, as in a cut.

    Raises:
        ValueError: if the trace does not explain the shapes.
    """
    whole = type(small)(type(config).from_dict(config.to_dict())).to(small.device, small.dtype).eval()
    paths = {id(module): path for path, module in whole.named_modules()}
    tensors, usual, parts = small.state_dict(), whole.state_dict(), dict[str, TensorCuts]()
    for group in find_sizes(whole, example):
        places: dict[tuple[str, int], list[Any]] = {}
        for cut in group.cuts:
            name = f"{paths[id(cut.module)]}.{cut.name}".lstrip(".")
            places.setdefault((name, cut.dim % usual[name].dim()), []).append(cut)
        left = group.length
        for (name, dim), cuts in places.items():
            lost = usual[name].shape[dim] - tensors[name].shape[dim]
            left = min(left, group.length - lost // sum(cut.width for cut in cuts))
        choice = Choice(torch.arange(group.length) < left, None, None)
        for (name, _), cuts in places.items():
            parts.setdefault(name, []).extend((cut, choice) for cut in cuts)
    padded = {}
    for name, value in tensors.items():
        for dim, here in by_dimension(usual[name], parts.get(name, [])).items():
            index = kept_entries(usual[name].shape[dim], here).nonzero().flatten().to(value.device)
            if len(index) == value.shape[dim]:
                shape = [*value.shape[:dim], usual[name].shape[dim], *value.shape[dim + 1 :]]
                value = value.new_zeros(shape).index_copy_(dim, index, value)
        if value.shape != usual[name].shape:
            raise ValueError(f"{name} has shape {[*tensors[name].shape]}, which no cut of {[*usual[name].shape]} gives")
        padded[name] = value
    return padded


class SizesCallback(TrainerCallback, ExportableState):
    """Learn the sizes of ``learner.model`` while a ``Trainer`` trains its weights. ::

        learner = ngn.learn_sizes(model, {"model.layers.*.mlp": ngn.Width(16)}, lambda0=1e-2)
        trainer = transformers.Trainer(model=learner.model, ..., callbacks=[SizesCallback(learner)])
        trainer.train()
        small = learner.deploy()  # also in the folder "small" of output_dir

    The callback adds the penalty to the gradients; the shown loss is without it. The logs also get ``sizes``: the mean
    t and, under a budget, the cost. The boundaries have their own optimiser. The learning rate, schedule and weight
    decay of the ``Trainer`` do not apply to them.

    A training resumed from a checkpoint continues exactly. Do not set ``restore_callback_states_from_checkpoint``: it
    is not needed, and transformers cannot create this callback, because the checkpoint does not contain the learner.

    At the end the deployed model is written to ``output_dir/small``, as :func:`save` or :func:`ngn.to_peft` do, unless
    ``save_strategy`` is "no". This takes memory for two copies.

    Fixed sizes are cut in place (:meth:`~ngn.contract.Learner.shrink`). With several processes, DeepSpeed, FSDP,
    ``torch_compile`` or ``load_best_model_at_end`` they stay masked until ``deploy``.

    Args:
        learner: the learner of the trained model.
        lr: learning rate of the boundaries.
        shrink: False keeps fixed sizes masked. For an optimiser that cannot be cut (Adafactor) it silences the warning.
        by_importance: sort the units before the first step by this score (:mod:`ngn.importance`), from the first 32
            batches of the training data.
        loss: ``loss(model, batch)`` for the scores; None: that of the model's output.

    Raises:
        ValueError: in training, if the trained model does not contain the learner's model.
    """

    def __init__(
        self, learner: Learner, lr: float = 5e-2, shrink: bool = True, by_importance: Any = None, loss: Any = None
    ) -> None:
        self.boundaries, self.shrink = BoundaryOptimizer(learner, lr), shrink
        self.by_importance, self.loss = by_importance, loss

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": self.boundaries.state()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.boundaries.check_model(others["model"])
        if args.load_best_model_at_end:
            warnings.warn(
                "load_best_model_at_end may load a checkpoint from before the sizes were fixed, with a larger model: "
                "evaluate only checkpoints after the commit",
                stacklevel=2,
            )
        if state.global_step and type(self).__name__ in state.stateful_callbacks:
            self.boundaries.restore(state.stateful_callbacks[type(self).__name__]["attributes"])
        if not state.global_step:
            self.boundaries.sort(self.by_importance, others["train_dataloader"], self.loss)
        self.boundaries.learner.resume(state.global_step, self._progress(state))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.boundaries.step()

    def on_log(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        logs = others.get("logs") or {}
        if "loss" in logs or "train_loss" in logs:  # an evaluation's logs must hold numbers only
            logs["sizes"] = self.boundaries.learner.standing()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        masked = args.deepspeed or args.fsdp or args.torch_compile or args.load_best_model_at_end
        optimizer = others["optimizer"] if self.shrink and not masked else None
        self.boundaries.learner.step(self._progress(state), optimizer)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        model = self.boundaries.learner.model  # type: ignore[attr-defined]
        divided = args.deepspeed or args.fsdp  # each process holds a part
        if divided or args.save_strategy == "no" or not state.is_world_process_zero:
            return
        ranks = hasattr(model, "peft_config") or any(isinstance(part, LowRankLinear) for part in model.modules())
        if not (ranks or isinstance(model, PreTrainedModel)):
            return
        folder = Path(args.output_dir) / "small"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the caller's own deploy() warns
                small = self.boundaries.learner.deploy()
            (ngn.to_peft if ranks else save)(small, folder)  # type: ignore[arg-type]
        except (ValueError, ImportError) as fault:  # a finished training does not fail
            warnings.warn(f"{folder} was not written: {fault}. learner.deploy() gives the model", stacklevel=2)

    @staticmethod
    def _progress(state: Any) -> float:
        """Training progress in [0, 1]: resumed from its last checkpoint, a Trainer takes one step beyond the last."""
        return min(1.0, state.global_step / state.max_steps)
