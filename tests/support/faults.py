"""Inject faults and count the work that survives each.

    python tests/support/faults.py NAME,... FOLDER [KILLS]    # these faults, with KILLS kills (20); prints counts

``test_faults.py`` asserts on the counts; ``scripts/fault_table.py`` writes them to docs/reliability.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

import fault_damage as damage  # noqa: E402
import fault_kills as kills  # noqa: E402
import fault_places as places  # noqa: E402
import fault_programs as programs  # noqa: E402
from faulty import LEARNERS, Count, configs, train  # noqa: E402

KILLS = 20
"""Default number of random moments for each kind of SIGKILL."""


class Fault(NamedTuple):
    """A kind of fault: its description in docs/reliability.md, and what injects it into a folder.

    ``inject`` also takes the number of kills where ``times`` is set, in multiples of :data:`KILLS`. Runs of the kinds
    ``warm`` are trained once before the children are forked, so that no child repeats imports.
    """

    title: str
    inject: Callable[..., Count]
    times: float | None = None
    warm: tuple[str, ...] = ("1d",)

    def inflict(self, folder: Path, kills: int) -> Count:
        return self.inject(folder) if self.times is None else self.inject(folder, max(1, int(self.times * kills)))


ALL = ("1d", "cora", "kernel", *LEARNERS)
FAULTS = {
    "kill_runs": Fault("SIGKILL of a training anywhere, every kind of run", kills.kill_runs, 6, ALL),
    "kill_library": Fault("SIGKILL of `ngn.save`, `ngn.fit` or an export, anywhere", kills.kill_library, 4),
    "kill_trainers": Fault("SIGKILL of transformers' or Lightning's trainer, anywhere", programs.kill_trainers, 1),
    "kill_scripts": Fault(
        "SIGKILL of `fetch_data.py`, `export_model.py` or a script of `make paper`, anywhere", programs.kill_scripts, 2
    ),
    "kill_otherwise": Fault(
        "SIGKILL, then a member's fixed model first, or `force=true`", kills.kill_and_ask_otherwise, 2
    ),
    "signals": Fault("SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 at five steps each", places.signals),
    "damaged_files": Fault(
        "SIGKILL, then any file that is left damaged or the code changed, every kind", damage.damaged_files, 12, ALL
    ),
    "damaged_records": Fault("a record or its curves damaged, then the same command", damage.damaged_records, 2),
    "damaged_beside": Fault("records, curves, plans, ledgers, leases damaged, every script", damage.damaged_beside, 13),
    "damaged_models": Fault("a kept model damaged, then loaded", damage.damaged_models, 1),
    "damaged_saves": Fault(
        "a file of `ngn.save` or of an exported folder damaged, then loaded", damage.damaged_saves, 10
    ),
    "two_hosts": Fault(
        "two processes on the same runs: one alive, killed, or suspended and then resumed or killed",
        places.two_hosts,
        1,
    ),
    "disk_full": Fault("disk full at a checkpoint, at a record", places.disk_full),
    "read_only_results": Fault("folder of records not writable", places.read_only_results),
    "read_only_mount": Fault("commands on a read-only mount", places.read_only_mount),
    "nan_in_a_replica": Fault("NaN in one replica of a stack", places.nan_in_a_replica),
    "one_run_many_processes": Fault("sixteen processes on one run", places.one_run_many_processes),
}


def main() -> int:
    """Inject kinds of faults; print the counts of each."""
    names, folder = sys.argv[1].split(","), Path(sys.argv[2])
    each = int(sys.argv[3]) if len(sys.argv) > 3 else KILLS
    for kind in dict.fromkeys(kind for name in names for kind in FAULTS[name].warm):
        train(folder / "warm", configs(folder / "warm", kind, 2))
    counts = {}
    for name in names:
        (folder / name).mkdir(parents=True)
        counts[name] = asdict(FAULTS[name].inflict(folder / name, each))
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
