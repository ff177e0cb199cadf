"""Write the pruned model of a run as a folder of transformers, or in compact form, and read it back.

    python scripts/export_pruned.py runs/wikisql_easy/RUN_ID.json FOLDER              # stock, padded to the widest
    python scripts/export_pruned.py runs/wikisql_easy/RUN_ID.json FOLDER --compact    # per-layer widths, for ngn.load

The run must have been made with save=deployed. What was written is loaded again, by stock transformers or by ngn.load,
and its logits are compared with those of the hard model. benchmarks/bench_pruned.py says what it costs.
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
from experiments.language import pruned_files
from experiments.language.export import ExportError
from experiments.runs.models import restored
from experiments.store.records import RecordError
from experiments.tasks.language.task import AdaptationTask


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 for a folder that was checked, 2 for what cannot be exported."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path, help="the run's .json file, its model beside it")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--phase", default="grown", help="grown (default) or fixed")
    parser.add_argument("--compact", action="store_true", help="per-layer widths in place of a stock model")
    parser.add_argument("--data-root", help="folder of the data sets")
    given = parser.parse_args(arguments)
    try:
        config, task, model = restored(given.record, given.phase, given.data_root)
        if not isinstance(task, AdaptationTask) or config.gate.component != "prune":
            raise ExportError(f"{given.record}: gate={config.gate.component} prunes no pretrained model")
        if given.compact:
            pruned_files.write_compact(model, given.folder)
            again = pruned_files.load_compact(given.folder)
        else:
            from transformers import AutoModelForCausalLM

            pruned_files.padded(model).save_pretrained(given.folder)
            dtype = next(model.parameters()).dtype
            again = AutoModelForCausalLM.from_pretrained(given.folder, dtype=dtype).eval()
        task.base.tokenizer.save_pretrained(given.folder)
        found = pruned_files.difference(again, model, torch.tensor([task.held[0][0]]))
        count, dense = (sum(p.numel() for p in each.parameters()) for each in (again, task.base.model))
        print(f"{given.folder}: {count:,} parameters of {dense:,}; read back, logits differ by {found:.1e}")
    except (ConfigError, DataError, RecordError, ExportError, ValueError, OSError) as fault:
        print(fault, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
