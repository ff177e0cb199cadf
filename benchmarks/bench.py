"""Run all benchmarks (``make bench``). Close other programs first; docs/benchmarks.md keeps the results.

python benchmarks/bench.py [--quick]
"""

from __future__ import annotations

import sys

import bench_1d
import bench_kernels
import bench_models

from experiments.store.provenance import machine, packages


def main(arguments: list[str]) -> None:
    """Print the machine and every table."""
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, {here['system']}, torch {packages()['torch']}\n", flush=True)
    bench_1d.main(arguments)
    print(flush=True)
    bench_models.main(arguments)
    bench_kernels.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
