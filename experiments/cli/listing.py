"""``python run.py --list``: the studies, what each takes, and what is printed from its runs. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import fill

from experiments.analysis.collect import Reader
from experiments.analysis.selection import keys_of
from experiments.config.identity import name_of
from experiments.contract.config import Config
from experiments.figures import FIGURES
from experiments.paths import RESULTS
from experiments.store.records import Store
from experiments.studies import STUDIES
from experiments.sweeps.status import Speeds, in_words
from experiments.tables import MACROS

NOTES = """\
time: of all runs on one worker, from the speed in the records    memory: of the largest process    ?: not known
python scripts/sweep.py run STUDY                  trains what is missing; `status` says how far it is
python scripts/build_paper_data.py --table TABLE   shows a table; scripts/build_figures.py --only FIGURE draws one"""


def show() -> None:
    """Print every study: its runs, records, time and memory; what it is; its tables and figures."""
    store = Store(RESULTS)
    runs = {study.name: {run.id: run.config for run in study.runs(store)} for study in STUDIES.values()}
    records, speeds, prints = {path.stem for path in store.paths()}, Speeds([store]), printed(runs)
    print(f"{'study':22}{'runs':>7}{'records':>9}{'time':>12}{'memory':>10}")
    for name, study in STUDIES.items():
        mine = runs[name]
        time, memory = _takes(mine.values(), speeds)
        print(f"{name:22}{len(mine):>7,}{len(mine.keys() & records):>9,}{time:>12}{memory:>10}")
        for text in (study.title, *([f"→ {', '.join(prints[name])}"] if prints[name] else [])):
            print(fill(text, 112, initial_indent="    ", subsequent_indent="      "))
    print(NOTES)


def _takes(configs: Iterable[Config], speeds: Speeds) -> tuple[str, str]:
    """Time and memory of runs, as far as records tell."""
    each = [(speeds.seconds(config), speeds.memory(config)) for config in configs]
    seconds, peaks = [s for s, _ in each if s is not None], [peak for _, peak in each if peak is not None]
    more = "> " if len(seconds) < len(each) else ""
    return more + in_words(sum(seconds)) if seconds else "?", f"{max(peaks) / 1024:.1f} GiB" if peaks else "?"


def printed(runs: Mapping[str, Mapping[str, Config]]) -> dict[str, list[str]]:
    """Study → the tables and figures that are made from its runs.

    Each stands at the smallest study that has all of its runs, or, where none has, at those that have some.
    """
    prints: dict[str, list[str]] = {name: [] for name in runs}
    for name, ids in _shown():
        complete = [study for study in runs if ids <= runs[study].keys()]
        smallest = sorted(complete, key=lambda study: len(runs[study]))[:1]
        for study in smallest or [study for study in runs if ids & runs[study].keys()]:
            prints[study].append(name)
    return prints


def _shown() -> Iterator[tuple[str, set[str]]]:
    """(name, run ids) of every table and figure; a table without a study is left out."""
    for table in MACROS:
        each = [(runs.config(seed), keys_of(runs, seed)) for runs in table.runs.values() for seed in runs.seeds]
        if each:
            yield table.name, {name_of(config, keys) for config, keys in each}
    empty = Reader(Store(RESULTS / "none"))  # which runs a figure has does not depend on their records
    for name, figure in FIGURES.items():
        yield name, set(figure.data(empty).runs)
