"""Write the learned low-rank terms of a run as a PEFT folder, or its adapters as safetensors and JSON.

    python scripts/export_peft.py runs/wikisql_easy/RUN_ID.json FOLDER
    python scripts/export_peft.py runs/wikisql_easy/RUN_ID.json FOLDER --merged MODEL   # also a model with the sums

The run must have been made with save=deployed. What was written is loaded again, by stock peft, and compared. A merged
model is scored by itself: its weights are rounded to the type of the pretrained ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from experiments.blocks import ConfigError
from experiments.data import DataError
from experiments.language import export
from experiments.runs.models import restored
from experiments.store.records import RecordError
from experiments.tasks.language.task import AdaptationTask


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 for a folder that was checked, 2 for what cannot be exported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="the run's .json file, its model beside it")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--phase", default="grown", help="grown (default) or fixed")
    parser.add_argument("--merged", type=Path, metavar="MODEL", help="folder for a model with the terms added")
    parser.add_argument("--data-root", help="folder of the data sets")
    given = parser.parse_args(arguments)
    try:
        config, task, model = restored(given.record, given.phase, given.data_root)
        if not isinstance(task, AdaptationTask):
            raise export.ExportError(f"task={config.task.name} adapts no pretrained model")
        base = config.model
        name = "tiny" if base is None else base.path or base.source or base.name
        ids = torch.tensor([task.held[0][0]])
        if config.gate.component == "adapter":
            units = export.write_adapters(model, given.folder, name)
            again = export.load_adapters(task.fresh(config), given.folder)
            with torch.no_grad():
                if not torch.equal(again(input_ids=ids).logits, model(input_ids=ids).logits):
                    raise export.ExportError(f"{given.folder}: what is read back differs")
            print(f"{given.folder}: {sum(units.values())} units behind {len(units)} layers, read back and equal")
            return 0
        ranks = export.write_peft(model, given.folder, name)
        difference = export.check_peft(given.folder, task.fresh(config), model, ids)
        print(f"{given.folder}: {sum(ranks.values())} terms beside {len(ranks)} maps; with peft logits differ by "
              f"{difference:.1e}")  # fmt: skip
        if given.merged is not None:
            whole = export.merged(model)
            with torch.no_grad():
                scores = {key: (task.evaluate(model)[key], value) for key, value in task.evaluate(whole).items()}
            whole.save_pretrained(given.merged)  # type: ignore[operator]
            task.base.tokenizer.save_pretrained(given.merged)
            for key, (apart, together) in scores.items():
                print(f"  {key:20} {float(apart):10.4f} beside the weights, {float(together):10.4f} merged")
    except (ConfigError, DataError, RecordError, export.ExportError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
