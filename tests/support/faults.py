"""Inject faults and count the work that survives each.

    python tests/support/faults.py NAME,... FOLDER [KILLS]    # these faults, with KILLS kills (20); prints counts

``test_faults.py`` asserts on the counts; ``scripts/fault_table.py`` writes them to docs/reliability.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

import fault_damage  # noqa: E402
import fault_kills  # noqa: E402
import fault_places  # noqa: E402
import fault_programs  # noqa: E402
import faulty  # noqa: E402
from faulty import LEARNERS, Count, Hook, child, configs, found, lost, train, undisturbed  # noqa: E402

from experiments.config.identity import run_id  # noqa: E402
from experiments.core import interrupt  # noqa: E402
from experiments.runs import phases  # noqa: E402

KILLS = 20
"""Default number of random moments for each kind of SIGKILL."""


def signals(folder: Path) -> Count:
    """Send each signal at five steps: check the checkpoint's step, the exit status, and bit-equal results."""
    expected = undisturbed(folder, "1d", 2)
    result = Count("saved at that very step, left with 128 + signal, resumed bit-equal")
    for signum in interrupt.SIGNALS:
        for at in (1, 2, 6, 10, 11):
            place = folder / f"{signum}-{at}"
            wanted = configs(place, "1d", 2, checkpoint_seconds=1e9)

            def dies(at: int = at, signum: int = signum, place: Path = place, wanted: list = wanted) -> None:
                Hook(at, faulty.send(signum)).at_steps()
                train(place, wanted)

            status = child(dies)
            saved = [p.stem for p in place.rglob("step-*.json")]
            again = child(lambda place=place, wanted=wanted: train(place, wanted))
            missing = lost(expected, found(place, wanted))
            good = (status, saved, again, missing) == (128 + signum, [f"step-{at:010d}"], 0, 0)
            result.add(missing, good, f"{signum} at {at}: {status}, {saved}, {again}, {missing}")
    return result


def nan_in_a_replica(folder: Path) -> Count:
    """Make one replica's gradients NaN at some step: it is recorded as diverged, the others unchanged."""
    expected = undisturbed(folder, "1d", 4)
    result = Count("recorded as diverged without numbers, the others bit-equal")
    for victim in range(4):
        place = folder / str(victim)
        wanted = configs(place, "1d", 4)

        def poisoned(victim: int = victim, place: Path = place, wanted: list = wanted) -> None:
            real = phases.learner_of

            def learner_of(*arguments: object, **named: object) -> object:
                learner = real(*arguments, **named)  # type: ignore[arg-type]
                parameter = learner.body_parameters()[0]
                parameter.register_hook(lambda g: g.index_fill(0, g.new_tensor([victim]).long(), float("nan")))
                return learner

            phases.learner_of = learner_of  # type: ignore[assignment]
            train(place, wanted)

        status = child(poisoned)
        got = found(place, wanted)
        name = run_id(wanted[victim])
        told = json.loads(got[name][0])
        phase = told["phases"]["grown"]
        missing = lost({k: v for k, v in expected.items() if k != name}, got)
        as_diverged = told["status"] == "diverged" and not {"t", "soft", "truncated"} & set(phase)
        result.add(missing, (status, missing) == (0, 0) and as_diverged, f"{victim}: {status}, {missing}, {told}")
    return result


@dataclass(frozen=True)
class Fault:
    """A kind of fault, injected into a folder.

    Attributes:
        title: its description in docs/reliability.md.
        inject: takes the folder and, if ``times`` is set, the number of kills.
        times: number of kills, in multiples of :data:`KILLS`.
        warm: runs trained once before the children are forked, so that no child repeats imports.
    """

    title: str
    inject: Callable[..., Count]
    times: float | None = None
    warm: tuple[str, ...] = ("1d",)

    def count(self, folder: Path, kills: int) -> Count:
        return self.inject(folder) if self.times is None else self.inject(folder, max(1, int(self.times * kills)))


WARM = ("1d", "cora", "kernel", *LEARNERS)
FAULTS = {
    "kill_runs": Fault(
        "SIGKILL of a training anywhere, every kind of run",
        fault_kills.kill_runs,
        6,
        ("1d", "cora", "kernel", *LEARNERS),
    ),
    "kill_library": Fault("SIGKILL of `ngn.save`, `ngn.fit` or an export, anywhere", fault_kills.kill_library, 4),
    "kill_trainers": Fault(
        "SIGKILL of transformers' or Lightning's trainer, anywhere", fault_programs.kill_trainers, 1
    ),
    "kill_scripts": Fault(
        "SIGKILL of `fetch_data.py`, `export_model.py` or a script of `make paper`, anywhere",
        fault_programs.kill_scripts,
        2,
    ),
    "kill_otherwise": Fault(
        "SIGKILL, then a member's fixed model first, or `force=true`", fault_places.killed_and_asked_otherwise, 2
    ),
    "signals": Fault("SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 at five steps each", signals),
    "damaged_files": Fault(
        "SIGKILL, then any file that is left damaged or the code changed, every kind",
        fault_damage.killed_and_damaged,
        12,
        warm=WARM,
    ),
    "damaged_records": Fault("a record or its curves damaged, then the same command", fault_damage.damaged_records, 2),
    "damaged_beside": Fault(
        "records, curves, plans, ledgers, leases damaged, every script", fault_damage.damaged_beside, 13
    ),
    "damaged_models": Fault("a kept model damaged, then loaded", fault_damage.damaged_models, 1),
    "damaged_saves": Fault(
        "a file of `ngn.save` or of an exported folder damaged, then loaded", fault_damage.damaged_saves, 10
    ),
    "two_hosts": Fault(
        "two processes on the same runs: one alive, killed, or suspended and then resumed or killed",
        fault_places.two_hosts,
        1,
    ),
    "disk_full": Fault("disk full at a checkpoint, at a record", fault_places.disk_full),
    "read_only_results": Fault("folder of records not writable", fault_places.read_only_results),
    "read_only_mount": Fault("commands on a read-only mount", fault_places.read_only_mount),
    "nan_in_a_replica": Fault("NaN in one replica of a stack", nan_in_a_replica),
    "one_run_many_processes": Fault("sixteen processes on one run", fault_places.one_run_many_processes),
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
        counts[name] = asdict(FAULTS[name].count(folder / name, each))
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
