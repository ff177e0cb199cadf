"""``python run.py --list``: the studies with their runs, cost, tables and figures. Imports no torch."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from textwrap import fill

from experiments.analysis.collect import Reader
from experiments.analysis.selection import selected_runs
from experiments.core.config import Config
from experiments.core.paths import RESULTS
from experiments.runs.sweeps.status import Speeds, duration_text
from experiments.store.records import Store
from experiments.studies import FIGURES, STUDIES, macros

NOTES = """\
time: of all runs, also those that follow from records, on one worker, from the speed in the records. Of Llama-3-8B and
Pythia: on one A100, from measured steps (docs/language.md)    memory: of the largest process    ?: unknown
python scripts/sweep.py run STUDY                  trains the missing runs; `status` shows the progress
python scripts/build_paper_data.py --table TABLE   prints a table; scripts/build_figures.py --only FIGURE draws one"""


def show() -> None:
    """Print every study: its runs, records, time and memory; its title; its tables and figures."""
    gc.disable()  # the configurations of thousands of runs stay to the end
    store, speeds = Store(RESULTS), Speeds(RESULTS)
    store.get = cache(store.get)  # type: ignore[method-assign]
    records = {path.stem for path in store.paths()}
    whole = {name: {run.id: run.config for run in study.runs(store, foreseen=True)} for name, study in STUDIES.items()}
    runs = {  # where all have records, none is foreseen
        name: every.keys() if every.keys() <= records else {run.id for run in STUDIES[name].runs(store)}
        for name, every in whole.items()
    }
    outputs = outputs_of(runs)
    print(f"{'study':22}{'runs':>7}{'records':>9}{'time':>12}{'memory':>10}")
    for name, study in STUDIES.items():
        time, memory = _time_and_memory(whole[name].values(), speeds)
        print(f"{name:22}{len(runs[name]):>7,}{len(runs[name] & records):>9,}{time:>12}{memory:>10}")
        needs = f", needs {study.needs}" if str(study.needs) else ""
        for text in (f"{study.title}{needs}", *([f"→ {', '.join(outputs[name])}"] if outputs[name] else [])):
            print(fill(text, 112, initial_indent="    ", subsequent_indent="      "))
    print(NOTES)
    gc.freeze()  # nor does the end of the program look at them
    gc.enable()


def _time_and_memory(configs: Iterable[Config], speeds: Speeds) -> tuple[str, str]:
    """Return time and memory of runs as text, as far as records tell."""
    alike: dict[tuple[int, ...], list[Config]] = {}
    for config in configs:  # the configurations of one selection share their blocks, and differ in their seed
        blocks = (config.task, config.gate, config.method, config.train, config.schedule, config.model, config.phases)
        alike.setdefault(tuple(map(id, blocks)), []).append(config)
    each = [(len(some), speeds.seconds(some[0]), speeds.memory(some[0])) for some in alike.values()]
    seconds, peaks = [n * s for n, s, _ in each if s is not None], [peak for _, _, peak in each if peak is not None]
    more = "> " if len(seconds) < len(each) else ""
    return more + duration_text(sum(seconds)) if seconds else "?", f"{max(peaks) / 1024:.1f} GiB" if peaks else "?"


def outputs_of(runs: Mapping[str, Set[str]]) -> dict[str, list[str]]:
    """Return study → the names of the tables and figures made from its runs.

    A table or figure belongs to the smallest study that has all of its runs. If no study has all, it belongs to each
    study that has some.
    """
    outputs: dict[str, list[str]] = {name: [] for name in runs}
    for name, ids in _tables_and_figures():
        complete = [study for study in runs if ids <= runs[study]]
        smallest = sorted(complete, key=lambda study: len(runs[study]))[:1]
        for study in smallest or [study for study in runs if ids & runs[study]]:
            outputs[study].append(name)
    return outputs


def _tables_and_figures() -> Iterator[tuple[str, set[str]]]:
    """Yield (name, run ids) of every table and figure."""
    for table in macros():
        yield table.name, {run.id for runs in table.runs.values() for run in selected_runs(runs)}
    empty = Reader(Store(RESULTS / "none"))  # the runs of a figure do not depend on records
    for name, figure in FIGURES.items():
        yield name, set(figure.data(empty).runs)
