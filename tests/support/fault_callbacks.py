"""Kill the trainers of transformers and Lightning inside of a save, or anywhere. ``faults.py`` runs this."""

from __future__ import annotations

import importlib
import json
import logging
import resource
import signal
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faulty import KILL, Count, Hook, child
from torch import nn

import ngn

STEPS = 12
QUIET = Path("/dev/null")


class _Model(nn.Module):
    """A model that returns loss and output, as transformers' ``Trainer`` expects."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mlp = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        output = self.mlp(x)
        return {"loss": nn.functional.mse_loss(output, y), "output": output}


def _learner() -> tuple[Any, torch.Tensor]:
    warnings.simplefilter("ignore")  # of the trainers
    logging.disable(logging.CRITICAL)
    x = torch.linspace(-2, 2, 64).unsqueeze(-1)
    sizes = {"mlp": ngn.Width(12)}
    return ngn.learn_sizes(_Model(), sizes, example={"x": x, "y": x.sin()}, lambda0=1.0, t0=8.0), x


def _limit_files(size: int) -> None:
    """From now on, a write beyond this size kills the process, and leaves a part of the file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _note(learner: Any, place: Path) -> None:
    state = {name: value.tolist() for name, value in learner.state().items()}
    (place / "learned").write_text(json.dumps(state))


def _at_step(learner: Any, hook: Hook) -> None:
    """Call the hook after each step of the learner, before the trainer saves."""
    real = learner.step

    def step(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        hook()

    learner.step = step


def _transformers(place: Path, start: Path | None, hook: Hook) -> None:
    import transformers

    from ngn.integrations.transformers import SizesCallback

    learner, x = _learner()
    _at_step(learner, hook)
    settings = transformers.TrainingArguments(
        str(place / "saved"), max_steps=STEPS, save_steps=1, per_device_train_batch_size=16, report_to=[],
        train_sampling_strategy="sequential", learning_rate=1e-3, disable_tqdm=True, use_cpu=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    data = [{"x": one, "y": one.sin()} for one in x]
    trainer = transformers.Trainer(learner.model, settings, train_dataset=data, callbacks=[SizesCallback(learner)])
    trainer.train(resume_from_checkpoint=None if start is None else str(start))
    _note(learner, place)


def _lightning(place: Path, start: Path | None, hook: Hook) -> None:
    import lightning.pytorch as lightning

    from ngn.integrations.lightning import SizesCallback

    class Module(lightning.LightningModule):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
            return self.model(*batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    learner, x = _learner()
    _at_step(learner, hook)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sin()), batch_size=64)  # a step an epoch
    kept = lightning.callbacks.ModelCheckpoint(place / "saved", "{step:02d}", every_n_train_steps=1, save_top_k=-1)
    trainer = lightning.Trainer(
        max_steps=STEPS, callbacks=[SizesCallback(learner), kept], logger=False, enable_progress_bar=False,
        accelerator="cpu", enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(learner.model), loader, ckpt_path=None if start is None else str(start))
    _note(learner, place)


def _saved(place: Path) -> list[Path]:
    """The checkpoints, newest first."""
    return sorted((place / "saved").glob("*"), key=lambda path: -int("".join(filter(str.isdigit, path.name))))


def kill_callbacks(folder: Path, count: int, inside: bool = True) -> Count:
    """Kill inside of a save, or anywhere; then resume from the newest checkpoint that its trainer accepts."""
    result = Count("a cut checkpoint is refused; resumed from the one before; sizes and weights bit-equal")
    trainers: list[Callable[[Path, Path | None, Hook], None]] = [_transformers, _lightning]
    for name in ("transformers", "lightning"):  # the children need not import them again
        importlib.import_module(f"ngn.integrations.{name}")
    random, calm = np.random.default_rng(count), {}
    for number in range(count):
        train, place, at = trainers[number % 2], folder / str(number), int(random.integers(2, STEPS + 1))
        place.mkdir()

        def run(start: Path | None, hook: Hook, train: Any = train, place: Path = place) -> int:
            return child(lambda: train(place, start, hook), QUIET)

        if train not in calm:
            status = run(None, Hook(0, lambda: None))
            files = [path for path in (place / "saved").rglob("*") if path.is_file()]
            calm[train] = (place / "learned").read_text(), sorted({path.stat().st_size for path in files})
            place.rename(place.with_suffix(".calm"))
            place.mkdir()
            if status:
                raise RuntimeError(f"the undisturbed training ended with status {status}")
        expected, sizes = calm[train]
        limit, call = int(random.integers(1, random.choice(sizes))), int(random.integers(1, 3000))

        def dies(limit: int = limit, call: int = call) -> None:
            _limit_files(limit) if inside else Hook(call, KILL).at_calls()

        first = run(None, Hook(at if inside else at - 1, dies))
        refused = 0
        for start in [*_saved(place), None]:
            if (again := run(start, Hook(0, lambda: None))) == 0:
                break
            refused += 1
        same = again == 0 and (place / "learned").read_text() == expected
        good = (first, same, refused <= 1) == (-signal.SIGXFSZ if inside else -signal.SIGKILL, True, True)
        where = f"files of at most {limit}" if inside else f"call {call} after it"
        told = f"{train.__name__} at {at}, {where}: {first}, {again}, {refused} refused, equal: {same}"
        result.add(int(not same), good, told)
    return result
