"""Collect the usable records of a selection, or of what takes its place, and the problems of all others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from experiments.analysis.selection import MOST_SEEDS, Selection, keys_of, selected_runs
from experiments.config.identity import Run
from experiments.runs.same import fault_of
from experiments.store.records import RecordError, Store


@dataclass(frozen=True)
class Problem:
    """Why a number is not printed.

    Attributes:
        kind: missing, damaged, foreign, dirty, numerics, data, engine, diverged or unmeasured.
        where: the run.
    """

    kind: str
    where: str
    text: str

    @property
    def refused(self) -> bool:
        """Whether a record exists but must not be used."""
        return self.kind in ("damaged", "foreign", "dirty", "numerics", "data", "engine", "unmeasured")

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class RecordedRun:
    """One usable record with its companions; ``phase`` selects one phase of it."""

    seed: int
    run_id: str
    record: Mapping[str, Any]
    companions: Mapping[str, RecordedRun] = field(default_factory=dict)
    phase: str = ""


@dataclass(frozen=True)
class Collected:
    """The usable runs of a selection in the order of its seeds, and the problems of the others.

    ``companion_problems`` affect only the numbers that need that companion.
    """

    runs: tuple[RecordedRun, ...]
    problems: tuple[Problem, ...]
    companion_problems: Mapping[str, tuple[Problem, ...]]


_THAN = "than the other seeds (another sha256)"
_ENGINE = "was trained by another engine than the other seeds; run all of them again with force=true"
_ALIKE = (
    ("data", "sha256", "data", f"was trained on other data {_THAN}"),
    ("base", "sha256", "data", f"adapts other weights {_THAN}"),
    # engines round differently, and a long training can turn the difference into another count
    ("execution", "engine", "engine", _ENGINE),
    ("execution", "scan", "engine", _ENGINE),
)
"""Block and key of what the seeds of a row must share; kind and text of the problem if one does not."""


def alike(runs: list[RecordedRun], *kinds: str) -> tuple[list[RecordedRun], list[Problem]]:
    """Return the runs with the most common data and weights, or engine and kernels, and the problems of the others.

    Args:
        kinds: of what must be alike: "data", "engine".
    """
    problems = []
    for block, key, kind, text in _ALIKE:
        if runs and kind in kinds:
            values = [run.record.get(block, {}).get(key) for run in runs]
            common = Counter(values).most_common(1)[0][0]
            odd = [run for run, value in zip(runs, values, strict=True) if value != common]
            problems += [Problem(kind, run.run_id, text) for run in odd]
            runs = [run for run, value in zip(runs, values, strict=True) if value == common]
    return runs, problems


DIFFER = "data differ from the published files: "
_AS_PUBLISHED = re.compile(
    r"official files, (digests checked|unpacked from [^;|]*)|generated: .*|"
    r"[^;|]*, revision \w+|[^;|]* official bfloat16 weights"
)


def unofficial_parts(provenance: str) -> list[str]:
    """Return the parts of a provenance that are neither official files nor generated as in the paper.

    In a provenance, processing of official files follows after ";" or ","; other data follow after " | ".
    """
    return [part for part in provenance.split(" | ") if not _AS_PUBLISHED.fullmatch(part)]


class Reader:
    """Reads each record of a store at most once.

    Args:
        allow_dirty: also accept records of uncommitted code, to inspect your own runs. The paper's file never does.
    """

    def __init__(self, store: Store, allow_dirty: bool = False) -> None:
        self.store = store
        self.allow_dirty = allow_dirty
        self.seen: dict[str, RecordedRun | Problem] = {}
        """Run id → the run, or why it does not count, for all runs requested so far."""
        self.chosen: Callable[[Selection], Selection] = lambda selection: selection
        """Selection → the runs that are read where it is asked for: its own."""
        self._collected: dict[Selection, Collected] = {}

    def data_differences(self, run_ids: Iterable[str]) -> dict[str, dict[str, None]]:
        """Return how the data and pretrained weights of these runs differ from the published files → their names.

        Each difference is given once, in the words of the longest provenance of that data.
        """
        records = [run.record for run in map(self.seen.get, run_ids) if isinstance(run, RecordedRun)]
        provenances: dict[tuple[str, str], str] = {}
        for block in (record[part] for record in records for part in ("data", "base") if record.get(part)):
            key = block["name"], block["sha256"]
            provenances[key] = max(provenances.get(key, ""), block["provenance"], key=len)
        names: dict[str, dict[str, None]] = {}
        for (name, _), provenance in provenances.items():
            for part in unofficial_parts(provenance):
                names.setdefault(part, {})[name] = None
        return names

    def data_notes(self, run_ids: Iterable[str]) -> tuple[str, ...]:
        """Say how the data and pretrained weights of these runs differ from the published files, a sentence each."""
        return tuple(f"{DIFFER}{', '.join(sets)}, {how}" for how, sets in self.data_differences(run_ids).items())

    def origin_note(self, selection: Selection) -> str:
        """Say which of the kernels that trained a row are gone, and which processors did if there are several."""
        records = [run.record for run in self.collect(selection.with_seeds(range(MOST_SEEDS))).runs]
        gone = {(one["execution"]["engine"], one["code"]["commit"]) for one in records}
        gone = {(engine, commit) for engine, commit in gone if "fused-" in engine}
        kernels = " and ".join(sorted({engine for engine, _ in gone}))
        notes = [f"kernel that is gone ({kernels}{f', {len(gone)} commits' if len(gone) > 1 else ''})"] if gone else []
        processors = Counter(one["hardware"].get("cpu", "unknown processor") for one in records)
        if len(processors) > 1:
            notes += [f"seeds by processor: {', '.join(f'{n} {name}' for name, n in processors.most_common())}"]
        return ", ".join(notes)

    def _read(self, selection: Selection, run: Run) -> RecordedRun | Problem:
        seed = run.config.seed.value
        try:
            record = self.store.get(run.id)
        except RecordError as error:
            where = self.store.path(run.id)
            return Problem("damaged", run.id, str(error).removeprefix(f"{where}: "))
        if record is None:
            return Problem("missing", run.id, "not run")
        fault = fault_of(record, run.config, None, self.allow_dirty, keys_of(selection, seed))
        if fault is None:
            return RecordedRun(seed, run.id, record)
        again = "; run it again with force=true" if fault.kind in ("numerics", "dirty") else ""
        return Problem(fault.kind, run.id, f"{fault.text}{again}")

    def collect(self, selection: Selection) -> Collected:
        """Collect the records of a selection. A missing or damaged record becomes a problem, never an error."""
        if selection not in self._collected:
            self._collected[selection] = self._about(selection) if selection.about else self._collect(selection)
        return self._collected[selection]

    def _about(self, selection: Selection) -> Collected:
        """Return the companions that a selection is about, each with its run's other companions; or a phase."""
        name, found = selection.about, self.collect(replace(selection, about=""))
        if name not in found.companion_problems:
            return replace(found, runs=tuple(replace(run, phase=name) for run in found.runs))
        runs = tuple(replace(r.companions[name], companions=r.companions) for r in found.runs if name in r.companions)
        problems = (*found.problems, *found.companion_problems[name])
        return Collected(runs, problems, found.companion_problems)

    def _collect(self, selection: Selection) -> Collected:
        runs: list[RecordedRun] = []
        problems: list[Problem] = []
        beside: dict[str, list[Problem]] = {name: [] for name, _ in selection.companions}
        for run in selected_runs(selection):
            if run.id not in self.seen:
                self.seen[run.id] = self._read(selection, run)
            seed, found = run.config.seed.value, self.seen[run.id]
            if isinstance(found, Problem):
                problems.append(found)
                continue
            companions: dict[str, RecordedRun] = {}
            for name, find in selection.companions:
                if found.record["status"] != "complete":
                    beside[name].append(Problem("diverged", run.id, "training diverged, so nothing follows from it"))
                    continue
                beyond = self.collect(find(selection, seed, found.record))
                if not beyond.runs:
                    beside[name] += beyond.problems
                elif alike([found, beyond.runs[0]], "data")[1]:
                    text = "is of other data or weights than the run that it belongs to (another sha256)"
                    beside[name].append(Problem("data", beyond.runs[0].run_id, text))
                else:
                    companions[name] = beyond.runs[0]
            runs.append(RecordedRun(seed, run.id, found.record, companions))
        runs, strangers = alike(runs, "data", "engine")
        lacking = {name: tuple(found) for name, found in beside.items()}
        return Collected(tuple(runs), tuple(problems + strangers), lacking)


Phases = Mapping[str, Any]
"""Name of a phase → what a record holds of it."""


@dataclass(frozen=True)
class Alternative:
    """A setting beside the one that tables and claims are stated for.

    Attributes:
        title, stated: what this setting and the stated one are called above a column.
        text: what it changes and why, as plain text; backticks mark code.
        runs: runs under the stated setting → the runs under this one. It returns unrelated runs unchanged.
        reading: phases of a record → the phases as this setting reads them; None reads them as they are.
        found_by: rows (``macro.row``) whose published values suggested the setting. Their agreement is no evidence.
        test: rows (``macro.row``) and places of statements (``figure 2``) that its plan names as the test.
        unmoved: rows of the test that lack what the setting changes, so that they cannot decide on it.
    """

    title: str
    stated: str
    text: str
    runs: Callable[[Selection], Selection] = lambda selection: selection
    reading: Callable[[Phases], Phases] | None = None
    found_by: frozenset[str] = frozenset()
    test: frozenset[str] = frozenset()
    unmoved: frozenset[str] = frozenset()


class AlternativeReader(Reader):
    """Reads the records of an alternative setting, or of stand-ins, wherever those of the stated one are asked for.

    Tables, claims and figures need not know of it: they give this reader their usual selections.

    Args:
        stated: the reader of the stated setting. Both share every record that either has read.
        chosen, reading: ``runs`` and ``reading`` of an :class:`Alternative`.
    """

    def __init__(
        self,
        stated: Reader,
        chosen: Callable[[Selection], Selection],
        reading: Callable[[Phases], Phases] | None = None,
    ) -> None:
        super().__init__(stated.store, stated.allow_dirty)
        self.seen, self.chosen = stated.seen, chosen
        self._stated, self._reading = stated, reading

    def collect(self, selection: Selection) -> Collected:
        """Collect the records that take the place of a selection's own."""
        found, read = self._stated.collect(self.chosen(selection)), self._reading
        if read is None:
            return found
        runs = (replace(r, record={**r.record, "phases": read(r.record["phases"])}) for r in found.runs)
        return replace(found, runs=tuple(runs))
