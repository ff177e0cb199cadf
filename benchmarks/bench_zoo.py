"""Hold sizes that are found without names against the models of torchvision, timm and transformers.

    python benchmarks/bench_zoo.py [--collection torchvision timm transformers] [--models resnet18 ...] [--part 0 2]
    python benchmarks/bench_zoo.py --table

For every model: all sizes are found, cut to half, and compared with the model in which the same units are zeroed. Then
they are trained for twenty steps under a budget, cut in place on the way, deployed, saved, loaded in a fresh process by
a model from another seed, and exported. All is compared on another batch, in eval and in train mode. Torch-Pruning cuts
to half and trains a step. Each runs in processes of its own, with limits of time and memory. Every model writes a file
when it ends. Models with a file are skipped, so the program can be stopped and started again. It prints where a check
fails, and then ends with status 1. It needs the extras `suite` and `zoo`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from zoo import checks, rival, table
from zoo.comparing import said
from zoo.models import COLLECTIONS, TOO_LARGE, missing

import ngn.sizes.attach  # noqa: F401  before the processes divide
from experiments.store import provenance
from ngn.files import write_atomically

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "models.md"
SECONDS = {"torchvision": 900, "timm": 900, "transformers": 60}
RIVAL_SECONDS, BYTES = {"torchvision": 300, "timm": 300, "transformers": 8}, 7 << 30
"""Limits of a process: seconds of a processor, by collection, and memory; Torch-Pruning trains a single step."""
Row = dict[str, Any]


def _seconds(job: Callable[..., None], collection: str) -> int:
    return (RIVAL_SECONDS if job is rival.check else SECONDS)[collection]


def _run(job: Callable[..., None], collection: str, name: str, given: tuple[Any, ...], to: Any) -> None:
    """Do a job of one model in a process of its own."""
    resource.setrlimit(resource.RLIMIT_CPU, (_seconds(job, collection),) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
    warnings.simplefilter("ignore")
    row: Row = {}
    try:
        job(COLLECTIONS[collection]()[name](), row, *given)
    except Exception as fault:
        if job is not rival.check:
            traceback.print_exc()
        row["fault"] = said(fault)
    to.send(row | {"processor_seconds": round(time.process_time(), 1)})


def apart(job: Callable[..., None], collection: str, name: str, *given: Any) -> Row:
    """The row that ``job`` notes in a process of its own, or why it ended without one."""
    processes = multiprocessing.get_context("fork")  # this process has imported all, and has built no model
    receive, send = processes.Pipe(duplex=False)
    process = processes.Process(target=_run, args=(job, collection, name, given, send))
    process.start()
    send.close()
    try:
        row: Row = receive.recv()
    except EOFError:
        process.join()
        many = f"more than {_seconds(job, collection)} seconds of a processor"
        row = {"fault": many if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL) else "the process died"}
    process.join()
    return row


def unit(collection: str, name: str, origin: Row) -> Row:
    """All of one model."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        own = apart(checks.check, collection, name, Path(folder))
        if own.get("saved") == "yes":
            loaded = apart(checks.check_loaded, collection, name, Path(folder))
            own.get("differences", {}).update(loaded.pop("differences", {}))
            loaded["processor_seconds"] = round(own["processor_seconds"] + loaded.get("processor_seconds", 0.0), 1)
            own |= loaded
        other = apart(rival.check, collection, name, own.get("last", []))
    seconds = round(time.perf_counter() - began, 1)
    return {"collection": collection, "name": name, "ngn": own, "torch_pruning": other, "seconds": seconds} | origin


def write_table(text: str) -> None:
    """Print the table, and write it between the marks of the page.

    Raises:
        ValueError: if the page has no such marks.
    """
    print(text)
    begin, end = "<!-- models: begin -->", "<!-- models: end -->"
    page, found = re.subn(f"{begin}.*{end}", lambda _: f"{begin}\n\n{text}\n\n{end}", PAGE.read_text(), flags=re.DOTALL)
    if not found:
        raise ValueError(f"{PAGE} has no marks {begin}, {end}")
    PAGE.write_text(page)


def committed() -> bool:
    """Return whether the library and the benchmarks are committed."""
    changed = subprocess.run(["git", "-C", HERE, "status", "--porcelain", "--", "*.py"], capture_output=True, text=True)
    return provenance.code().clean and changed.returncode == 0 and not changed.stdout


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collection", nargs="+", choices=[*COLLECTIONS], default=[*COLLECTIONS])
    parser.add_argument("--models", nargs="+", help="only these")
    parser.add_argument("--part", nargs=2, type=int, default=(0, 1), metavar=("I", "N"), help="part I of N, from 0")
    parser.add_argument("--folder", type=Path, help="of the files (default: benchmarks/results/models)")
    parser.add_argument("--table", action="store_true", help="print the table and write it to docs/models.md")
    given = parser.parse_args(arguments)
    folder = given.folder or HERE / "results" / "models"
    if absent := [package for package in (*COLLECTIONS, "torch_pruning") if missing(package)]:
        parser.error(f"install {', '.join(absent)}: pip install -e '.[suite,zoo]'")
    if given.table:
        write_table(table.table(table.read(folder), {name: [*models()] for name, models in COLLECTIONS.items()}))
        return
    if given.folder is None and not committed():
        parser.error("type --folder FOLDER: the default folder is for committed code only")
    torch.set_num_threads(1)
    origin = {
        "commit": provenance.code().commit,
        "packages": {p: version(p) for p in ("torch", "torchvision", "timm", "transformers", "torch-pruning")},
        "machine": provenance.machine(),
    }
    part, parts = given.part
    failing: list[str] = []
    for collection in given.collection:
        for number, name in enumerate(COLLECTIONS[collection]()):
            path = folder / f"{collection}-{name}.json"
            if path.exists() or (given.models and name not in given.models) or number % parts != part:
                continue
            if collection == "torchvision" and name in TOO_LARGE:
                done: Row = {"collection": collection, "name": name, "not_run": TOO_LARGE[name]}
            else:
                done = unit(collection, name, origin)
            failing += [path.stem] if table.failing(done.get("ngn", {})) else []
            write_atomically(path, (json.dumps(done, indent=1, ensure_ascii=False) + "\n").encode(), replace=True)
            print(f"{path.stem}: {said_of(done)}", flush=True)
    if failing:
        parser.exit(1, f"checks fail for {', '.join(failing)}\n")


def said_of(row: Row) -> str:
    """One line on a model."""
    if "not_run" in row:
        return f"not run, {row['not_run']}"
    own = row["ngn"]
    fails = ", ".join(table.failing(own)) or "nothing"
    return (
        f"{own.get('kept')} of {own.get('groups')} sizes, fails at {fails}; "
        f"Torch-Pruning {table.judged(row)}; {row['seconds']} s"
    )


if __name__ == "__main__":
    main()
