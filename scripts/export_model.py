"""Export what a run learned on a pretrained language model to files for other tools, and check them.

    python scripts/export_model.py runs/wikisql_easy/RUN_ID.json FOLDER

The run needs save=deployed. The format depends on the run:

- gate=lora: a peft folder.
- gate=adapter: safetensors and JSON.
- gate=prune: a stock model of transformers, padded to its widest layer.

The script loads the files again and compares the models. It writes all files of a folder or none, and only to folders
that are empty or not there.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if __name__ == "__main__":  # first, so that Ctrl-C ends it without a traceback
    from experiments.cli.pipes import until_main

    until_main()

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from experiments.cli.pipes import exit_with
from experiments.core.blocks import ConfigError
from experiments.core.config import Config
from experiments.data import DataError
from experiments.runs.models import load_run
from experiments.tasks.language import export
from experiments.tasks.language.export import ExportError, new_folder
from experiments.tasks.language.task import AdaptationTask
from ngn.files import FileError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return 0 if the files were written and checked, 2 if the run cannot be exported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="the run's .json file, with its saved model next to it")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--phase", help="grown, fixed, ... (the first that the record has)")
    parser.add_argument("--data-root", help="folder of the data sets")
    wanted = parser.parse_args(arguments)
    try:
        config, task, model = load_run(wanted.record, wanted.phase, wanted.data_root)
        if not isinstance(task, AdaptationTask):
            raise ExportError(f"task={config.task.name} adapts no pretrained model")
        write = {"lora": _ranks, "adapter": _adapters, "prune": _pruned}[config.gate.component]
        with new_folder(wanted.folder) as folder:
            message = write(config, task, model, folder)
    except (ConfigError, DataError, FileError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2
    print(f"{wanted.folder}: {message}")
    return 0


def _name(config: Config) -> str:
    base = config.model
    return "tiny" if base is None else base.path or base.source or base.name


def _adapters(config: Config, task: AdaptationTask, model: Any, folder: Path) -> str:
    units = export.write_adapters(model, folder, _name(config))
    again, ids = export.load_adapters(task.fresh(), folder), torch.tensor([task.held[0][0]])
    with torch.no_grad():
        if not torch.equal(again(input_ids=ids).logits, model(input_ids=ids).logits):
            raise ExportError("the adapters that are read back differ from the model")
    return f"{sum(units.values())} units behind {len(units)} layers, read back and equal"


def _ranks(config: Config, task: AdaptationTask, model: Any, folder: Path) -> str:
    ranks = export.write_peft(model, folder, _name(config))
    difference = export.check_peft(folder, task.fresh(), model, torch.tensor([task.held[0][0]]))
    return f"{sum(ranks.values())} terms beside {len(ranks)} maps; with peft logits differ by {difference:.1e}"


def _pruned(config: Config, task: AdaptationTask, model: Any, folder: Path) -> str:
    from transformers import AutoModelForCausalLM

    from ngn.integrations.transformers import save

    try:
        save(model, folder, padded=True)
    except ValueError as fault:
        raise ExportError(str(fault)) from fault
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=next(model.parameters()).dtype).eval()
    task.base.tokenizer.save_pretrained(folder)
    difference = export.logit_difference(again, model, torch.tensor([task.held[0][0]]))
    count, dense = (sum(p.numel() for p in each.parameters()) for each in (again, task.base.model))
    return f"{count:,} parameters of {dense:,}; read back, logits differ by {difference:.1e}"


if __name__ == "__main__":
    exit_with(main)
