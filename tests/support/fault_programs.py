"""Other programs of the kill-anywhere campaign: trainers of other libraries, and scripts. ``faults.py`` runs this."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import data_samples
import page_samples
import record_samples as samples
import torch
from data_server import CONTENT, origin_of, serving
from fault_kills import Program, done, kill_anywhere
from faulty import Count, child
from torch import nn

import ngn
from experiments.cli import app
from experiments.config import run_files
from experiments.core import paths
from experiments.core.task import DataInfo
from experiments.data import cifar10, mnist, sets
from experiments.data.fetch import DataOrigin, Remote
from experiments.data.source import Folder
from experiments.store.records import Store
from experiments.studies.one_d import BASELINE
from experiments.tasks.language.folders import check_sums
from ngn.files import write_atomically

STEPS = 12


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


def _transformers(place: Path, start: str | None) -> Any:
    import transformers

    from ngn.integrations.transformers import SizesCallback

    learner, x = _learner()
    settings = transformers.TrainingArguments(
        str(place / "saved"), max_steps=STEPS, save_steps=1, per_device_train_batch_size=16, report_to=[],
        train_sampling_strategy="sequential", learning_rate=1e-3, disable_tqdm=True, use_cpu=True,
        dataloader_pin_memory=False,
    )  # fmt: skip
    data = [{"x": one, "y": one.sin()} for one in x]
    trainer = transformers.Trainer(learner.model, settings, train_dataset=data, callbacks=[SizesCallback(learner)])
    trainer.train(resume_from_checkpoint=start)
    return learner


def _lightning(place: Path, start: str | None) -> Any:
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
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sin()), batch_size=64)  # a step an epoch
    kept = lightning.callbacks.ModelCheckpoint(place / "saved", "{step:02d}", every_n_train_steps=1, save_top_k=-1)
    trainer = lightning.Trainer(
        max_steps=STEPS, callbacks=[SizesCallback(learner), kept], logger=False, enable_progress_bar=False,
        accelerator="cpu", enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(learner.model), loader, ckpt_path=start)
    return learner


def kill_trainers(folder: Path, count: int) -> Count:
    """Kill transformers' and Lightning's trainer; resume from the newest checkpoint, or the one before if it is cut."""

    def program(name: str, train: Callable[[Path, str | None], Any]) -> Program:
        def work(place: Path, start: str | None = None) -> None:
            learned = train(place, start).state()
            text = json.dumps({name: value.tolist() for name, value in learned.items()})
            write_atomically(place / "learned", text.encode())

        def again(place: Path, number: int) -> None:
            saved = sorted((place / "saved").glob("*"), key=lambda p: -int("".join(filter(str.isdigit, p.name))))
            starts = [*map(str, saved[:2]), None, None]
            if child(lambda: work(place, starts[0])) and child(lambda: work(place, starts[1])):
                raise SystemExit(1)

        def read(place: Path) -> dict[str, Any]:
            file = place / "learned"
            return {"learned": file.read_text()} if file.exists() else {}

        return Program(name, work, again=again, read=read, kinds=("halves", "calls"))

    programs = [program("transformers", _transformers), program("lightning", _lightning)]
    for each in programs:  # the children need not import them again
        __import__(f"ngn.integrations.{each.name}")
    means = "a cut checkpoint is refused; resumed from the one before; sizes and weights bit-equal"
    return kill_anywhere(folder, count, programs, means)


RUNS = {"lora": ["gate=lora"], "adapter": ["gate=adapter"], "prune": ["gate=prune", "gate.target=both"]}
"""Exports of three formats: overrides of their runs."""


def _export_of(name: str, folder: Path) -> Program:
    from scripts import export_model

    run = RUNS[name] + ["gate.t0=2.2"] * (name != "prune")

    def ready(place: Path) -> None:
        run_files.SCRATCH = paths.SCRATCH = folder / name
        line = ["task=wikisql_easy", "profile=smoke", "progress=never", "save=deployed", "phases=[grown]"]
        raise SystemExit(app.main([*line, *run, "threads=1", f"results={place / 'results'}"]))

    def work(place: Path) -> None:
        if (place / "out").exists():
            check_sums(place / "out")
            shutil.rmtree(place / "out")
        (record,) = (place / "results").rglob("*.json")
        raise SystemExit(export_model.main([str(record), str(place / "out")]))

    return Program(f"export of {name}", work, ready)


def _paper(folder: Path) -> list[Program]:
    """The scripts of ``make paper``, which replace the output of other records."""
    from matplotlib import pyplot  # noqa: F401  # the children need not import it again

    from experiments.report.drawing import style, svg  # noqa: F401
    from scripts import build_figures, build_paper_data, build_report

    mains: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
        "build_paper_data.py": (build_paper_data.main, ["--output={}/paper/data.tex"]),
        "build_figures.py": (build_figures.main, ["--output={}/figures", "--only", "figure1", "figure2"]),
        "build_report.py": (build_report.main, ["--output={}/paper"]),
    }  # fmt: skip

    def program(name: str) -> Program:
        def work(place: Path) -> None:
            main, words = mains[name]
            raise SystemExit(main([f"--results={place / 'results'}", *(word.format(place) for word in words)]))

        def ready(place: Path) -> None:
            store = Store(place / "results")
            page_samples.fill(store)
            done(partial(work, place), folder / "log of the old output")
            phases = {"grown": {**samples.grown([9.0], 1e-3, 2e-3), "norms": [1.0, 0.5, 0.25]}}
            samples.put(store, BASELINE, 0, phases, curves=samples.curves(100))

        return Program(name, work, ready)

    return [program(name) for name in mains]


def kill_scripts(folder: Path, count: int) -> Count:
    """Kill the scripts: those that download, unpack and install data sets, of ``make paper``, and exports."""
    from scripts import fetch_data

    digits, cifar = data_samples.mnist()[0], data_samples.tar_gz("cifar-10-batches-bin", data_samples.cifar()[0])
    with serving() as server:
        server.files = {"one.bin": CONTENT, cifar10.BINARY_ARCHIVE: cifar, **data_samples.gzipped(digits)}

        def remote(name: str) -> Remote:
            return Remote(name, f"sha256:{hashlib.sha256(server.files[name]).hexdigest()}", (server.url(name),))

        def read_digits(root: Path) -> DataInfo:
            return mnist.read_folder(
                Folder(root, "mnist", data_samples.official(digits)), *data_samples.MNIST_COUNTS
            ).info

        def read_pictures(root: Path) -> DataInfo:
            return cifar10.read_folder(Folder(root, "cifar10", {}), data_samples.CIFAR_BATCH).info

        of_mnist = tuple(remote(name) for name in data_samples.gzipped(digits))
        origins = {
            "tiny": origin_of(server.url("one.bin")),
            "mnist": DataOrigin(of_mnist, read_digits, sets.install_mnist),
            "cifar10": DataOrigin((remote(cifar10.BINARY_ARCHIVE),), read_pictures, sets.ORIGINS["cifar10"].install),
        }

        def fetch(place: Path) -> None:
            sets.ORIGINS, sets.NAMES = origins, tuple(origins)  # type: ignore[assignment]
            raise SystemExit(fetch_data.main([*origins, "--data-root", str(place)]))

        programs = [Program("fetch_data.py", fetch), *_paper(folder), *(_export_of(name, folder) for name in RUNS)]
        means = "every output the old or the new one, whole; the next call wrote the same bytes, nothing else left"
        return kill_anywhere(folder, count, programs, means)
