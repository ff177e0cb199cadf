"""Ten seeds of the 1D study at full length, trained here and now, beside the published values.

    python scripts/demo.py [--seeds 0..9] [--steps 25000] [--output scratch/demo]

Everything goes to a folder of its own, which is emptied first: records, figures and a ``data_generated.tex``. The
records of the suite in ``results/`` are neither read nor written.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "scripts"))

from experiments.blocks import ConfigError  # noqa: E402
from experiments.config.compose import compose  # noqa: E402
from experiments.config.seeds import parse_seeds  # noqa: E402
from experiments.store.records import Store  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Train, print, draw; the exit status is 1 if a run diverged and 2 for impossible arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0..9")
    parser.add_argument("--steps", type=int, default=25_000, help="fewer than 25,000 is a stand-in, and named so")
    parser.add_argument("--output", type=Path, default=ROOT / "scratch" / "demo")
    arguments = parser.parse_args(argv)
    results = arguments.output / "results"
    overrides = {"results": str(results)}
    if arguments.steps != compose().train.steps:
        overrides["train.steps"] = arguments.steps
    try:
        seeds = parse_seeds(arguments.seeds)
        configs = [compose({}, {**overrides, "seed.value": seed}) for seed in seeds]
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2

    import build_figures
    import build_paper_data

    from experiments.runs.launch import launch
    from experiments.sweeps.terminal import show

    shutil.rmtree(results, ignore_errors=True)
    print(f"Training {len(seeds)} seeds of the 1D regression, {arguments.steps:,} steps each ...", flush=True)
    began = time.monotonic()
    outcomes = launch(configs)
    seconds = time.monotonic() - began
    total = len(seeds) * arguments.steps
    print(f"{total:,} training steps in {seconds:.0f} s: {total / seconds:,.0f} a second\n")
    run_overrides = {key: value for key, value in overrides.items() if key != "results"}
    show(Store(results), {}, run_overrides, seeds)
    tex = arguments.output / "data_generated.tex"
    build_paper_data.main(["--results", str(results), "--output", str(tex)])
    shown = ["--dirty", "--results", str(results), "--output", str(arguments.output / "figures")]
    stand_ins = [part for key, value in run_overrides.items() for part in ("--stand-in", f"{key}={value}")]
    build_figures.main([*shown, *stand_ins, "--only", "figure1"])
    print(f"\nrecords: {results}\ntables:  {tex}\nfigures: {arguments.output / 'figures'}")
    return 1 if any(outcome.status == "diverged" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
