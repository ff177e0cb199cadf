"""Other programs of the kill-anywhere campaign: trainers of other libraries, and scripts. ``faults.py`` runs this."""

import hashlib
import json
import logging
import shutil
import warnings
from functools import partial

import data_samples
import page_samples
import record_samples as samples
import trainers
from data_server import CONTENT, origin_of, serving
from fault_kills import Program, done, kill_anywhere
from faulty import child

import ngn
from experiments.cli import app
from experiments.config import identity
from experiments.core import paths
from experiments.data import cifar10, mnist, sets
from experiments.data.fetch import DataOrigin, Remote
from experiments.data.source import Folder
from experiments.store.records import Store
from experiments.studies.one_d import BASELINE
from experiments.tasks.language.export import check_sums
from ngn.files import write_atomically


def kill_trainers(folder, count):
    """Kill transformers' and Lightning's trainer; resume from the newest checkpoint, or the one before if it is cut."""

    def program(name, train):
        __import__(f"ngn.integrations.{name}")  # the children need not import it again

        def work(place, at=None):
            warnings.simplefilter("ignore")  # of the trainers
            logging.disable(logging.CRITICAL)
            learner = ngn.learn_sizes(trainers.Model(), trainers.SIZES, example=trainers.X, lambda0=1.0, t0=8.0)
            train(learner, place / "saved", 12, at=at)
            learned = {name: value.tolist() for name, value in learner.state().items()}
            write_atomically(place / "learned", json.dumps(learned).encode())

        def again(place, number):
            saved = {int("".join(filter(str.isdigit, path.name))) for path in (place / "saved").glob("*")}
            newest, before, *_ = [*sorted(saved, reverse=True), None, None]
            if child(lambda: work(place, newest)) and child(lambda: work(place, before)):
                raise SystemExit(1)

        def read(place):
            return {file.name: file.read_text() for file in place.glob("learned")}

        return Program(name, work, again=again, read=read, kinds=("halves", "calls"))

    programs = [program("transformers", trainers.in_transformers), program("lightning", trainers.in_lightning)]
    means = "a cut checkpoint is refused; resumed from the one before; sizes and weights bit-equal"
    return kill_anywhere(folder, count, programs, means)


RUNS = {"lora": ["gate=lora"], "adapter": ["gate=adapter"], "prune": ["gate=prune", "gate.target=both"]}
"""Exports of three formats: overrides of their runs."""


def _export_of(name, folder):
    from scripts import export_model

    run = RUNS[name] + ["gate.t0=2.2"] * (name != "prune")

    def ready(place):
        identity.SCRATCH = paths.SCRATCH = folder / name
        line = ["task=wikisql_easy", "profile=smoke", "progress=never", "save=deployed", "phases=[grown]"]
        raise SystemExit(app.main([*line, *run, "threads=1", f"results={place / 'results'}"]))

    def work(place):
        if (place / "out").exists():
            check_sums(place / "out")
            shutil.rmtree(place / "out")
        (record,) = (place / "results").rglob("*.json")
        raise SystemExit(export_model.main([str(record), str(place / "out")]))

    return Program(f"export of {name}", work, ready)


def _paper(folder):
    """The scripts of ``make paper``, which replace the output of other records."""
    from matplotlib import pyplot  # noqa: F401  # the children need not import it again

    from experiments.report.drawing import style  # noqa: F401
    from scripts import build_figures, build_paper_data, build_report

    mains = {
        "build_paper_data.py": (build_paper_data.main, ["--output={}/paper/data.tex"]),
        "build_figures.py": (build_figures.main, ["--output={}/figures", "--only", "figure1", "figure2"]),
        "build_report.py": (build_report.main, ["--output={}/paper"]),
    }  # fmt: skip

    def program(name):
        def work(place):
            main, words = mains[name]
            raise SystemExit(main([f"--results={place / 'results'}", *(word.format(place) for word in words)]))

        def ready(place):
            store = Store(place / "results")
            page_samples.fill(store)
            done(partial(work, place), folder / "log of the old output")
            phases = {"grown": {**samples.grown([9.0], 1e-3, 2e-3), "norms": [1.0, 0.5, 0.25]}}
            samples.put(store, BASELINE, 0, phases, curves=samples.curves(100))

        return Program(name, work, ready)

    return [program(name) for name in mains]


def kill_scripts(folder, count):
    """Kill the scripts: those that download, unpack and install data sets, of ``make paper``, and exports."""
    from scripts import fetch_data

    digits, cifar = data_samples.mnist()[0], data_samples.tar_gz("cifar-10-batches-bin", data_samples.cifar()[0])
    with serving() as server:
        server.files = {"one.bin": CONTENT, cifar10.BINARY_ARCHIVE: cifar, **data_samples.gzipped(digits)}

        def remote(name):
            return Remote(name, f"sha256:{hashlib.sha256(server.files[name]).hexdigest()}", (server.url(name),))

        def read_digits(root):
            return mnist.read_folder(
                Folder(root, "mnist", data_samples.official(digits)), *data_samples.MNIST_COUNTS
            ).info

        def read_pictures(root):
            return cifar10.read_folder(Folder(root, "cifar10", {}), data_samples.CIFAR_BATCH).info

        of_mnist = tuple(remote(name) for name in data_samples.gzipped(digits))
        origins = {
            "tiny": origin_of(server.url("one.bin")),
            "mnist": DataOrigin(of_mnist, read_digits, sets.install_mnist),
            "cifar10": DataOrigin((remote(cifar10.BINARY_ARCHIVE),), read_pictures, sets.ORIGINS["cifar10"].install),
        }

        def fetch(place):
            sets.ORIGINS, sets.NAMES = origins, tuple(origins)
            raise SystemExit(fetch_data.main([*origins, "--data-root", str(place)]))

        programs = [Program("fetch_data.py", fetch), *_paper(folder), *(_export_of(name, folder) for name in RUNS)]
        means = "every output the old or the new one, whole; the next call wrote the same bytes, nothing else left"
        return kill_anywhere(folder, count, programs, means)
