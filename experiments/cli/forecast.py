"""How long the runs of a command take, by the committed records. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from experiments.config.run_files import Run
from experiments.core.paths import RESULTS
from experiments.runs.sweeps.status import Sample, Speeds, duration_text

SHORT = 10.0
"""Seconds. Of a shorter training no time is told before it."""


def forecast(runs: Sequence[Run]) -> str:
    """Say how long runs take, by the committed records of their task, gate, model, method and profile.

    Only the engine and the kind of device count that the command asks for, if it does.

    Returns:
        two lines; empty if no record tells, or if it is less than :data:`SHORT` seconds.
    """
    speeds, each, used = Speeds(RESULTS), list[float](), dict[Sample, None]()
    for config in (run.config for run in runs):
        found = [
            sample
            for samples in speeds.samples(config, 5)
            for sample in samples
            if config.engine in ("auto", *sample.engines)
            and config.device in ("auto", "cpu" if sample.device == "cpu" else "cuda")
        ]
        if found:
            steps = config.train.steps_on(config.task.usual_samples)
            each.append(median(sample.seconds for sample in found) * steps * config.trainings)
            used |= dict.fromkeys(found)
    if sum(each) < SHORT:
        return ""
    time = f"about {duration_text(median(each))}"
    if len(runs) > 1:
        time += f" each, {duration_text(sum(each))} in all"
    lacking = len(runs) - len(each)
    unknown = f"; of {counted(lacking, 'run')} no record tells" if lacking else ""
    most, places = (
        max(sample.together for sample in used),
        dict.fromkeys(s.cpu if s.device == "cpu" else s.device for s in used),
    )
    how = f"{'one' if most == 1 else f'up to {most}'} at a time, on {' or '.join(places)}"
    return f"{counted(len(runs), 'run')} to train: {time}{unknown}\n  by records of this task and method: {how}"


def counted(number: int, word: str) -> str:
    """A number with its word: 1 run, 2,000 runs."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
