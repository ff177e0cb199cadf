"""Models of transformers: learn sizes in the ``Trainer``; folders that ``from_pretrained`` opens."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel, TrainerCallback
from transformers.trainer_callback import ExportableState

from ngn.comparison import check_equal
from ngn.components.low_rank import LowRankLinear
from ngn.cut.modules import guard_folders
from ngn.differences import check_deployed, own_sizes, resize
from ngn.integrations import BoundaryOptimizer
from ngn.integrations.peft import to_peft
from ngn.integrations.stock import fits, fitted, on_meta, only, padded_to
from ngn.losses import Taught, told
from ngn.tracing.found import listed

SIZES = "ngn_sizes"
"""Key of ``config.json`` for the sizes that a configuration of transformers cannot express."""
REFUSAL = "{}, with sizes of its own for each layer: open this folder with ngn.integrations.transformers.load(folder)"
"""The type of such a model. Stock classes do not know it, and say so."""


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
    kind = type(small)
    kinds = {path: type(module) for path, module in on_meta(kind, small.config).named_modules()}
    if strange := [path for path, part in small.named_modules() if kinds.get(path) is not type(part)]:
        raise ValueError(
            f"a stock {kind.__name__} does not hold {listed(strange)} as it is: merge learned ranks with "
            "ngn.components.low_rank.merge, or write them with ngn.to_peft"
        )
    example = _example(small) if example is None else example
    best = fitted(small, max if padded else only)
    configs = [best] if best is not None and (padded or fits(small, best)) else []
    configs.append(small.config if padded else None)  # None: with sizes of its own
    Path(folder).mkdir(parents=True, exist_ok=True)
    for config in configs:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as place:
            written = Path(place)
            try:
                _write(small, config, example, written)
                again: nn.Module = load(written)
                check_equal(small, again.to(small.device), example)
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

    The ``options`` are those of ``from_pretrained``, such as ``dtype`` and ``device_map``. It is a ValueError if the
    folder holds no model of a class of transformers.
    """
    described = json.loads((Path(folder) / "config.json").read_bytes())
    name, sizes = (described.get("architectures") or [""])[0], described.pop(SIZES, None)
    kind: Any = getattr(transformers, name, None)
    if not (isinstance(kind, type) and issubclass(kind, PreTrainedModel)):
        raise ValueError(f"{folder} holds a {name or 'model without a name'}, which is no class of transformers")
    if sizes is None:
        stock: PreTrainedModel = kind.from_pretrained(folder, **options)
        return stock

    def init(self: Any, config: Any, *args: Any, **named: Any) -> None:
        kind.__init__(self, config, *args, **named)
        resize(self, sizes)

    # a class of this name, since from_pretrained makes the model, and reads tensors into the shapes that it then has
    sized: Any = type(kind.__name__, (kind,), {"__init__": init, "__module__": kind.__module__})
    config_class: Any = kind.config_class
    config = config_class.from_dict(described | {"model_type": sizes.pop("type")})
    model: PreTrainedModel = sized.from_pretrained(folder, config=config, **options)
    model.__class__ = kind
    return model


def _example(small: PreTrainedModel) -> dict[str, Tensor]:
    if small.main_input_name == "pixel_values":
        size, channels = small.config.image_size, getattr(small.config, "num_channels", 3)
        sides = (size, size) if isinstance(size, int) else size
        given = {"pixel_values": torch.randn(2, channels, *sides, generator=torch.Generator().manual_seed(0))}
        return {name: value.to(small.device, small.dtype) for name, value in given.items()}
    return {name: value.to(small.device) for name, value in small.dummy_inputs.items()}


def _write(small: PreTrainedModel, config: Any, example: Any, folder: Path) -> None:
    """Write the tensors of ``small`` as a stock model of another configuration, with zeros where it is larger.

    None writes ``small``, and how it differs from the model of its configuration.
    """
    if config is not None:
        tensors = small.state_dict() if fits(small, config) else padded_to(small, config, example)
        small.save_pretrained(folder, state_dict=tensors)
        config.architectures, config.dtype = small.config.architectures, small.config.dtype
        config.save_pretrained(folder)
        return
    small.save_pretrained(folder)
    path, kind = folder / "config.json", small.config.model_type
    # the key is not "model_type": from_pretrained would take these sizes for a configuration of that type
    sizes = {name: own_sizes(small).get(name, {}) for name in ("shapes", "attributes")}  # its configuration has depths
    described = {"model_type": REFUSAL.format(kind), SIZES: {"type": kind, **sizes}}
    path.write_text(json.dumps(json.loads(path.read_bytes()) | described, indent=2) + "\n")


class SizesCallback(BoundaryOptimizer, TrainerCallback, ExportableState):
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

    Fixed sizes are cut in place (:meth:`~ngn.learner.Learner.shrink`). With several processes, DeepSpeed, FSDP,
    ``torch_compile`` or ``load_best_model_at_end`` they stay masked until ``deploy``.

    Arguments and errors are those of :class:`BoundaryOptimizer`. The shown loss includes that of a teacher; with one, a
    loss that is not that of the model's output is a TypeError.
    """

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": self.moments()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if args.load_best_model_at_end:
            warnings.warn(
                "load_best_model_at_end may load a checkpoint from before the sizes were fixed, with a larger model: "
                "evaluate only checkpoints after the commit",
                stacklevel=2,
            )
        if state.global_step and type(self).__name__ in state.stateful_callbacks:
            self.restore(state.stateful_callbacks[type(self).__name__]["attributes"])
        self.begin(others["model"], state.global_step, others["train_dataloader"])
        guard_folders(self.learner.model, False)  # the Trainer's checkpoints are resumed by this callback
        self.learner.resume(state.global_step, self._progress(state))
        if self.both is not None:
            self._teach(others["model"], self.both, args)

    def _teach(self, trained: nn.Module, both: Taught, args: Any) -> None:
        """Let the outputs of ``trained`` in train mode have the loss of ``both``."""
        parts = args.gradient_accumulation_steps * (args.world_size if args.average_tokens_across_devices else 1)

        def hook(model: nn.Module, given: Any, named: Any, output: Any) -> None:
            if model.training:
                if not isinstance(output, dict) or output.get("loss") is None:
                    raise TypeError(
                        f"teacher= adds to the loss of the model's output, but {told(output)} has none: leave "
                        "compute_loss_func and label_smoothing_factor out, or leave teacher= out"
                    )
                share = 1.0 if named.get("num_items_in_batch") is None else 1.0 / parts  # the loss is of a part then
                output["loss"] = both.beside(output["loss"], given, named, output, share)

        self.taught.enter_context(trained.register_forward_hook(hook, with_kwargs=True))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.step()

    def on_log(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        logs = others.get("logs") or {}
        if "loss" in logs or "train_loss" in logs:  # an evaluation's logs must hold numbers only
            logs["sizes"] = self.learner.standing()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        masked = args.deepspeed or args.fsdp or args.torch_compile or args.load_best_model_at_end
        optimizer = others["optimizer"] if self.shrink and not masked else None
        self.learner.step(self._progress(state), optimizer)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.taught.close()
        model = self.learner.model
        guard_folders(model)
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
                small = self.learner.deploy()
            write: Any = to_peft if ranks else save
            write(small, folder)
        except (ValueError, ImportError) as fault:  # a finished training does not fail
            warnings.warn(f"{folder} was not written: {fault}. learner.deploy() gives the model", stacklevel=2)

    @staticmethod
    def _progress(state: Any) -> float:
        """Training progress in [0, 1]: resumed from its last checkpoint, a Trainer takes one step beyond the last."""
        return min(1.0, state.global_step / state.max_steps)
