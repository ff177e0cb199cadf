"""Export what a run learned on a pretrained language model to files for other tools, and check them.

    python scripts/export_model.py runs/wikisql_easy/RUN_ID.json FOLDER
    python scripts/export_model.py runs/wikisql_easy/RUN_ID.json FOLDER --merged MODEL  # ranks: also a whole model
    python scripts/export_model.py runs/wikisql_easy/RUN_ID.json FOLDER --compact  # pruned: per-layer widths

The run needs save=deployed. The format depends on the run:

- gate=lora: a peft folder; with --merged also a whole model, which is scored because its weights are rounded.
- gate=adapter: safetensors and JSON.
- gate=prune: a stock model of transformers, padded to its widest layer; with --compact, files for
  experiments.language.pruned_files.load_compact.

The script loads the files again and compares the models.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.blocks import ConfigError
from experiments.contract.config import Config
from experiments.data import DataError
from experiments.language import export, pruned_files
from experiments.runs.models import load_run
from experiments.store.records import RecordError
from experiments.tasks.language.task import AdaptationTask


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the script; return 0 if the files were written and checked, 2 if the run cannot be exported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="the run's .json file, with its saved model next to it")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--phase", help="grown, fixed, ... (the first that the record has)")
    parser.add_argument(
        "--merged", type=Path, metavar="MODEL", help="gate=lora: folder for a model with the terms merged"
    )
    parser.add_argument("--compact", action="store_true", help="gate=prune: per-layer widths instead of a stock model")
    parser.add_argument("--data-root", help="folder of the data sets")
    wanted = parser.parse_args(arguments)
    try:
        config, task, model = load_run(wanted.record, wanted.phase, wanted.data_root)
        if not isinstance(task, AdaptationTask):
            raise export.ExportError(f"task={config.task.name} adapts no pretrained model")
        component = config.gate.component
        for option, of in (("merged", "lora"), ("compact", "prune")):
            if getattr(wanted, option) and component != of:
                raise export.ExportError(f"--{option} is of gate={of}; this run has gate={component}")
        {"lora": _ranks, "adapter": _adapters, "prune": _pruned}[component](config, task, model, wanted)
    except (ConfigError, DataError, RecordError, export.ExportError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


def _name(config: Config) -> str:
    base = config.model
    return "tiny" if base is None else base.path or base.source or base.name


def _adapters(config: Config, task: AdaptationTask, model: Any, wanted: argparse.Namespace) -> None:
    units = export.write_adapters(model, wanted.folder, _name(config))
    again, ids = export.load_adapters(task.fresh(), wanted.folder), torch.tensor([task.held[0][0]])
    with torch.no_grad():
        if not torch.equal(again(input_ids=ids).logits, model(input_ids=ids).logits):
            raise export.ExportError(f"{wanted.folder}: what is read back differs")
    print(f"{wanted.folder}: {sum(units.values())} units behind {len(units)} layers, read back and equal")


def _ranks(config: Config, task: AdaptationTask, model: Any, wanted: argparse.Namespace) -> None:
    ranks = export.write_peft(model, wanted.folder, _name(config))
    difference = export.check_peft(wanted.folder, task.fresh(), model, torch.tensor([task.held[0][0]]))
    print(f"{wanted.folder}: {sum(ranks.values())} terms beside {len(ranks)} maps; with peft logits differ by "
          f"{difference:.1e}")  # fmt: skip
    if wanted.merged is None:
        return
    whole = export.merge_terms(model)
    with torch.no_grad():
        scores = {key: (task.evaluate(model)[key], value) for key, value in task.evaluate(whole).items()}
    whole.save_pretrained(wanted.merged)  # type: ignore[operator]
    task.base.tokenizer.save_pretrained(wanted.merged)
    for key, (apart, together) in scores.items():
        print(f"  {key:20} {float(apart):10.4f} beside the weights, {float(together):10.4f} merged")


def _pruned(config: Config, task: AdaptationTask, model: Any, wanted: argparse.Namespace) -> None:
    if wanted.compact:
        pruned_files.write_compact(model, wanted.folder)
        again = pruned_files.load_compact(wanted.folder)
    else:
        from transformers import AutoModelForCausalLM

        pruned_files.pad_layers(model).save_pretrained(wanted.folder)
        again = AutoModelForCausalLM.from_pretrained(wanted.folder, dtype=next(model.parameters()).dtype).eval()
    task.base.tokenizer.save_pretrained(wanted.folder)
    difference = export.logit_difference(again, model, torch.tensor([task.held[0][0]]))
    count, dense = (sum(p.numel() for p in each.parameters()) for each in (again, task.base.model))
    print(f"{wanted.folder}: {count:,} parameters of {dense:,}; read back, logits differ by {difference:.1e}")


if __name__ == "__main__":
    sys.exit(main())
