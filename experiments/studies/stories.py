"""TinyStories: a slice of the text in place of the whole for table 8, fixed models, and smaller prefixes."""

from __future__ import annotations

from experiments.analysis.claims import Claims, Estimate, Outcome
from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.estimates import single
from experiments.analysis.evidence import Evidence
from experiments.analysis.figures import Data, Panel, Point, Spec
from experiments.analysis.gather import gather
from experiments.analysis.selection import Selection
from experiments.studies.model import Study

RUNS = {
    gate: Selection.of({"task": "tinystories", "gate": gate}, seeds=range(seeds))
    for gate, seeds in (("heads", 3), ("slices", 3), ("heads_slices", 1), ("states", 1))
}
"""Gate → runs on a slice of the text, whose first seeds stand in for the rows of table 8."""


def _stories_frontier() -> list[Selection]:
    return [
        Selection.of({"task": "tinystories", "gate": gate, "method": "fixed"}, {"method.count": (count, count)}, [0])
        for gate, most in (("heads", 8), ("slices", 16))
        for count in range(1, most + 1)
    ]


TINYSTORIES = Study(
    "tinystories",
    "heads, slices, both, and Mamba states on TinyStories",
    lambda: [*(runs.with_seeds([0]) for runs in RUNS.values()), *RUNS.values()],  # seed 0 of every row first
    rank=203,
    curves=1,
)

TINYSTORIES_FRONTIER = Study(
    "tinystories_frontier", "fixed models of 1 to 8 heads and 1 to 16 slices, seed 0", _stories_frontier, rank=204
)

_LABEL = "validation bits per character"
_SCORE = "truncated.bits_per_character"
_TITLES = {"heads": "attention heads", "slices": "FFN slices", "heads_slices": "heads and slices"}
"""The structures that keep more than one component."""
FIXED = "fixed, layers alike"
_PHASES = {"grown": "grown", "fixed": "fixed as grown", "from_high": "from high"}
FRONTIERS = {
    gate: Panel("components kept, both layers", _LABEL, _TITLES[gate], series=(FIXED, *_PHASES.values()))
    for gate in ("heads", "slices")
}

PREFIX, LEARNED = "smaller prefix", "learned counts"
PREFIXES = {
    gate: Panel("components kept, both layers", _LABEL, title, series=(PREFIX, LEARNED))
    for gate, title in _TITLES.items()
}

_NOTE = "two layers of 128 entries, 2,500 steps; no number is to be compared with the paper's"


def _point(series: str, run: RecordedRun, phase: str, gate: str) -> Point:
    """Return the retained count over all layers of a phase, and the bits of the truncated model."""
    result = run.record["phases"][phase]
    return Point(series, sum(result["count"]), result["truncated"]["bits_per_character"], (run.run_id,), gate)


def _frontier(reader: Reader) -> Data:
    learned = {(gate, 0): RUNS[gate] for gate in FRONTIERS}
    alone = {
        (dict(chosen.choices)["gate"], dict(chosen.overrides)["method.count"][0]): chosen
        for chosen in TINYSTORIES_FRONTIER.make()
    }
    series = {key: _PHASES if key in learned else {"fixed": FIXED} for key in (*learned, *alone)}
    quantities = {key: [f"{phase}.{_SCORE}" for phase in phases] for key, phases in series.items()}
    gathered = gather(reader, learned | alone, quantities)
    points = [
        _point(name, run, phase, key[0])
        for key, group in gathered.groups.items()
        for run in group.runs
        for phase, name in series[key].items()
    ]
    bits = {(point.runs, point.series): point.y for point in points}
    grown = [runs for runs, series in bits if series == "grown"]
    worse = sum(bits[runs, "grown"] > bits[runs, "fixed as grown"] for runs in grown)
    said = f"lower is better: {worse} of {len(grown)} grown models are worse than fixed ones of their counts"
    return gathered.data(points, notes=[said, _NOTE, "learned models truncated; fixed, layers alike: seed 0"])


def _prefixes(reader: Reader) -> Data:
    gathered = gather(reader, {gate: RUNS[gate] for gate in PREFIXES}, [f"grown.{_SCORE}"])
    points: list[Point] = []
    for gate, group in gathered.groups.items():
        for run in group.runs:
            grown = run.record["phases"]["grown"]
            for most, bits in enumerate(grown["prefixes"], 1):
                kept = sum(min(most, count) for count in grown["count"])
                points.append(Point(PREFIX, kept, bits, (run.run_id,), gate))
            points.append(_point(LEARNED, run, "grown", gate))
    notes = [_NOTE, "one grown model per seed, cut to at most 1, 2, … components per layer, without retraining"]
    return gathered.data(points, notes=notes)


FIGURES = tuple(
    Spec(name, f"TinyStories slice: {title}", panels, make, height, len(panels), section="transfer", rank=rank)
    for rank, name, title, panels, make, height in (
        (21, "stories_frontier", "bits against components kept", FRONTIERS, _frontier, 3.2),
        (22, "stories_prefixes", "every smaller prefix of a grown model", PREFIXES, _prefixes, 3.0),
    )
)

claim = Claims(900)
_STORIES = ("stories-heads", "stories-ffn", "stories-joint", "stories-mamba")


@claim("stories_truncation", "table 8")
def _truncation(evidence: Evidence) -> Outcome:
    """Truncation costs at most 5 % in bits per character on TinyStories."""
    parts = []
    for row in _STORIES:
        truncated, soft = (evidence.cell(f"dataeightbody.{row}.{column}") for column in ("truncated", "soft"))
        parts.append(Estimate(f"truncated over soft, {row}", single(truncated / soft), most=1.05, spec=".3f"))
    return Outcome(parts)
