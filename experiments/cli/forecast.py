"""How long the runs of a command take, by the committed records. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from experiments.config.run_files import Run
from experiments.core.config import Config
from experiments.core.paths import RESULTS
from experiments.core.training import Train
from experiments.runs.sweeps.status import ENGINES, duration_text
from experiments.store.records import RecordError, Store

Found = Mapping[str, Any]
"""A record."""
SAMPLE = 8
"""Most records of other settings that are read to estimate a time."""
MOST_READ = 64
"""Most runs of a command whose own records are read for it."""
SHORT = 10.0
"""Seconds. Of a shorter training no time is told before it."""


def record_of(name: str, store: Store) -> Found | None:
    """Return the record of a run; None if there is none, or if it is damaged."""
    try:
        return store.get(name)
    except RecordError:
        return None


def _seconds(record: Found) -> float:
    """Return a run's share of the wall time; the time of a resumed run covers only its last part."""
    trained = sum(phase["seconds"] for phase in record["phases"].values()) / record["execution"]["replicas"]
    return float(max(trained, record["time"]["seconds"]))


def _fits(record: Found, config: Config) -> bool:
    """Return whether a record is of the engine and the kind of device that a command asks for, if it does."""
    engines, device = record["execution"]["engine"].split("+"), record["execution"]["device"]
    return config.engine in ("auto", *engines) and config.device in ("auto", "cpu" if device == "cpu" else "cuda")


def _alike(config: Config, store: Store) -> list[Found]:
    """Return a few records of a run's task, gate, method, model and profile, with other settings."""
    stem = f"{config.task.name}-{config.gate.component}-{config.method.name}*-s*.json"
    paths = sorted((store.root / config.task.name).glob(stem))
    found = []
    for path in paths[:: max(1, len(paths) // SAMPLE)]:
        record = record_of(path.stem, store)
        if record is not None and _fits(record, config):
            then, model = record["config"], None if config.model is None else config.model.name
            if (then["method"]["name"], then["profile"]) == (config.method.name, config.profile):
                found += [record] if (then.get("model") or {}).get("name") == model else []
    return found


def _per_step(record: Found, config: Config) -> float:
    steps = Train.model_validate(record["config"]["train"]).steps_on(config.task.usual_samples)
    return _seconds(record) / steps / len(record["phases"])


def forecast(runs: Sequence[Run]) -> str:
    """Say how long runs take by the committed records: of the same runs, else of their task, gate and method.

    Returns:
        two lines; empty if no record tells, or if it is less than :data:`SHORT` seconds.
    """
    store, looked_at = Store(RESULTS), runs[:: max(1, len(runs) // MOST_READ)]
    each: list[float] = []
    used: dict[str, Found] = {}
    same, speeds = True, dict[tuple[str, ...], tuple[float, list[Found]] | None]()
    for run in looked_at:
        if (record := record_of(run.id, store)) is not None and _fits(record, run.config):
            each.append(_seconds(record))
            used[record["run_id"]] = record
            continue
        config, same = run.config, False
        parts = (config.gate.component, config.model, config.profile, config.engine, config.device)
        kind = (config.task.name, config.method.name, *map(str, parts))
        if kind not in speeds:
            alike = _alike(config, store)
            speeds[kind] = (median(_per_step(record, config) for record in alike), alike) if alike else None
        if (known := speeds[kind]) is not None:
            plain = config.method.sizes(config.gate) is not None
            phases = 1 if plain else len(config.phases) + len(config.continue_with)
            each.append(known[0] * config.train.steps_on(config.task.usual_samples) * phases)
            used |= {record["run_id"]: record for record in known[1]}
    times = len(runs) / len(looked_at)
    if times * sum(each) < SHORT:
        return ""
    time = f"about {duration_text(median(each))}"
    if len(runs) > 1:
        time += f" each, {duration_text(times * sum(each))} in all"
    lacking = round(times * (len(looked_at) - len(each)))
    unknown = f"; of {counted(lacking, 'run')} no record tells" if lacking else ""
    whose = "the same runs" if same else "this task and method"
    return f"{counted(len(runs), 'run')} to train: {time}{unknown}\n  by records of {whose}: {_how(used.values())}"


def _how(records: Iterable[Found]) -> str:
    """Return how and on which hardware records were trained, as far as this decides their time."""
    records = list(records)

    def span(numbers: Iterable[int]) -> str:
        low, *_, high = sorted([*numbers] * 2)
        return str(low) if low == high else f"{low} to {high}"

    together = span(record["execution"]["replicas"] for record in records)
    devices = dict.fromkeys(
        record["hardware"].get("cpu", device) if (device := record["execution"]["device"]) == "cpu" else device
        for record in records
    )
    threads = span(record["execution"].get("threads", 1) for record in records)
    engines = {engine for record in records for engine in record["execution"]["engine"].split("+")}
    gone = sorted(engines - ENGINES)
    how_fast = f", engine {' or '.join(sorted(engines & ENGINES))}" if engines & ENGINES else ""
    how = "one at a time" if together == "1" else f"{together} trained at once"
    how += f", on {' or '.join(devices)}, {threads} thread{'' if threads == '1' else 's'}"
    return how + how_fast + (f", by an engine that is gone ({', '.join(gone)})" if gone else "")


def counted(number: int, word: str) -> str:
    """A number with its word: 1 run, 2,000 runs."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
