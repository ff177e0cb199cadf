"""How long the runs of a command take, by the committed records. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from experiments.config.run_files import Run
from experiments.core.config import Config
from experiments.core.paths import RESULTS
from experiments.runs.sweeps.status import ENGINES, duration_text, seconds_per_step
from experiments.store.records import RecordError, Store, read_record

Found = Mapping[str, Any]
"""A record."""
SAMPLE = 8
"""Most records that are read to estimate the time of one kind of run."""
SHORT = 10.0
"""Seconds. Of a shorter training no time is told before it."""


def _alike(config: Config, store: Store) -> list[tuple[float, Found]]:
    """Return (seconds per step and phase, record) of a few runs of the same task, gate, method, model and profile.

    Only engines of today count, and the engine and the kind of device that the command asks for, if it does.
    """
    stem = f"{config.task.name}-{config.gate.component}-{config.method.name}*-s*.json"
    paths = sorted((store.root / config.task.name).glob(stem))
    model = None if config.model is None else config.model.name
    found: list[tuple[float, Found]] = []
    for path in paths[:: max(1, len(paths) // SAMPLE)]:
        try:
            record = read_record(path)
        except RecordError:
            continue
        then, how = record["config"], record["execution"]
        engines, device = {*how["engine"].split("+")}, "cpu" if how["device"] == "cpu" else "cuda"
        kind = (then["method"]["name"], then["profile"], (then.get("model") or {}).get("name"))
        fits = engines <= ENGINES and config.engine in ("auto", *engines)
        if fits and config.device in ("auto", device) and kind == (config.method.name, config.profile, model):
            found.append((seconds_per_step(record, config.task), record))
    return found


def forecast(runs: Sequence[Run]) -> str:
    """Say how long runs take, by the committed records of their task, gate and method.

    Returns:
        two lines; empty if no record tells, or if it is less than :data:`SHORT` seconds.
    """
    store, each = Store(RESULTS), list[float]()
    kinds: dict[tuple[str, ...], list[tuple[float, Found]]] = {}
    for config in (run.config for run in runs):
        parts = (config.gate.component, config.model, config.profile, config.engine, config.device)
        kind = (config.task.name, config.method.name, *map(str, parts))
        if kind not in kinds:
            kinds[kind] = _alike(config, store)
        if alike := kinds[kind]:
            steps = config.train.steps_on(config.task.usual_samples)
            each.append(median(seconds for seconds, _ in alike) * steps * config.trainings)
    if sum(each) < SHORT:
        return ""
    time = f"about {duration_text(median(each))}"
    if len(runs) > 1:
        time += f" each, {duration_text(sum(each))} in all"
    lacking = len(runs) - len(each)
    unknown = f"; of {counted(lacking, 'run')} no record tells" if lacking else ""
    how = _how(record for alike in kinds.values() for _, record in alike)
    return f"{counted(len(runs), 'run')} to train: {time}{unknown}\n  by records of this task and method: {how}"


def _how(records: Iterable[Found]) -> str:
    """Return how many runs were trained together, and on which devices."""
    together, devices = set(), dict[str, None]()
    for record in records:
        together.add(record["execution"]["replicas"])
        device = record["execution"]["device"]
        devices[record["hardware"].get("cpu", device) if device == "cpu" else device] = None
    span = "one" if together == {1} else f"up to {max(together)}"
    return f"{span} at a time, on {' or '.join(devices)}"


def counted(number: int, word: str) -> str:
    """A number with its word: 1 run, 2,000 runs."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
