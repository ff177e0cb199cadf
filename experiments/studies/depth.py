"""Learned depth: tables 9 and 10, over more seeds, and what each layer keeps."""

from __future__ import annotations

import statistics

from experiments.analysis.claims import Claims, Estimate, Outcome
from experiments.analysis.collect import Reader, RecordedRun
from experiments.analysis.estimates import median, share
from experiments.analysis.evidence import Evidence
from experiments.analysis.figures import EACH, Data, Panel, Point, Spec
from experiments.analysis.gather import gather, spread
from experiments.analysis.selection import Selection
from experiments.analysis.tables import MEDIAN_MSE, PM, OwnTable, Row, Table, column, row
from experiments.studies.model import Study, study_of


def _depth(gate: str, schedule: str = "paper") -> Selection:
    """Select seed 0, because the published rows have one run."""
    choices = {"task": "twist", "gate": gate, "method": "ngn", "schedule": schedule}
    return Selection.of(choices, seeds=[0])


def _layers(key: str, label: str, schedule: str) -> Row:
    return row(key, f"per-layer: {label}", seeds=1, runs=_depth("layers", schedule))


_MSE = "<value:.2e>"
_DEPTH_AND_ERRORS = (
    column("depth", "depth", "grown.depth", "<value:d>"),
    column("soft", "soft MSE", "grown.soft.mse", _MSE),
    column("truncated", "trunc. MSE", "grown.truncated.mse", _MSE),
    column("fixed", "fixed MSE", "fixed.truncated.mse", _MSE),
)

NINE = Table(
    "dataninebody",
    "Table 9: depth, one boundary per layer",
    (column("t", "learned t", "grown.t", r"\texttt{[<value:.0f*,>]}"), *_DEPTH_AND_ERRORS),
    (
        _layers("const-const", r"const-$\lambda$, const-$r$", "paper"),
        _layers("const-inc", r"const-$\lambda$, inc-$r$", "inc_r"),
        _layers("dec-const", r"dec-$\lambda$, const-$r$", "dec_lambda"),
        _layers("dec-inc", r"dec-$\lambda$, inc-$r$", "dec_lambda_inc_r"),
    ),
    note="A boundary may end past K - 1, such as t = 10 with K = 10. The count is at most K, so all ten are kept.",
)

TEN = Table(
    "datatenbody",
    "Table 9: depth, one boundary over a chain",
    (column("t", "learned t", "grown.t", "<value:.2f>"), *_DEPTH_AND_ERRORS),
    (row("recursive", "recursive", seeds=1, runs=_depth("chain")),),
)

DEPTH = OwnTable(
    "depth",
    "Learned depth over ten seeds",
    (
        column("depth", "learned depth", "grown.depth", f"<mean:.1f>{PM}<sd:.1f> (<min:d> to <max:d>)"),
        column("soft", "soft MSE", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "trunc. MSE", "grown.truncated.mse", "<median:.2e> (<min:.1e> to <max:.1e>)"),
        column("fixed", "fixed MSE", "fixed.truncated.mse", MEDIAN_MSE),
    ),
    tuple(
        row(key, *table.row(key).labels, seeds=10, runs=runs.with_seeds(range(10)))
        for table in (NINE, TEN)
        for key, runs in table.runs.items()
    ),
    text="The paper's tables of depth show one run per row; these rows are ten runs. Depth is the number of layers "
    "that keep more than the identity, or of the links of the chain: mean, standard deviation and range over seeds. "
    "Errors are medians; the truncated error also has its range.",
    rank=2,
)

DEPTH_STUDY = study_of(DEPTH, "tables 9 and 10: depth by layers (four settings) and by a chain, ten seeds", 206)

SEEDS_OF_DEPTH = 39
"""Seeds of the depth rows in all; each beyond the ten of the study that came first counts as soon as it is there."""
DEPTH_SEEDS = Study(
    "depth_seeds",
    "tables 9 and 10 with 39 seeds: enough for ranks to decide a single run",
    lambda: [runs.with_seeds(range(SEEDS_OF_DEPTH)) for runs in DEPTH.runs.values()],
    rank=207,
)

_TITLES = {
    "const-const": "λ constant, r constant",
    "const-inc": "λ constant, r rising",
    "dec-const": "λ falling, r constant",
    "dec-inc": "λ falling, r rising",
}

PANELS = {key: Panel("layer", "tanh components kept", title) for key, title in _TITLES.items()}
"""Panels by the key of the table's row."""


def kept(run: RecordedRun) -> list[int]:
    """Return how many components a run keeps in each layer, without the identity. The last layer has no identity."""
    *inner, last = run.record["phases"]["grown"]["count"]
    return [*(count - 1 for count in inner), last]


def make(reader: Reader) -> Data:
    """Make the series of runs and the series of medians over the layers, in each panel."""
    seeds = DEPTH_STUDY.make()[0].seeds
    selections = {key: runs.with_seeds(seeds) for key, runs in NINE.runs.items()}
    gathered = gather(reader, selections, ["grown.depth"])
    points: list[Point] = []
    titles: dict[str, str] = {}
    for key, group in gathered.groups.items():
        rows = [(run, kept(run)) for run in group.runs]
        for layer in range(len(rows[0][1]) if rows else 0):
            counts = [counts[layer] for _, counts in rows]
            points.append(Point("median over the seeds", layer + 1, statistics.median(counts), group.run_ids, key))
            points += spread((Point(EACH, layer + 1, counts[layer], (run.run_id,), key) for run, counts in rows), 0.6)
        if rows:
            depths = sorted(sum(count > 0 for count in counts) for _, counts in rows)
            titles[key] = "depth " + " to ".join(dict.fromkeys(map(str, (depths[0], depths[-1]))))
    notes = ["a layer that keeps none is the identity and is removed; the depth is the number of the others"]
    return gathered.data(points, notes=notes, titles=titles)


SPEC = Spec(
    "depth_layers", "Learned depth (twist): what each layer keeps", PANELS, make, 3.0, len(PANELS), "depth", rank=14
)

claim = Claims(1000)


@claim("depth", "table 9", "after results, 2026-11-23; shares since 2026-11-25")
def _learned(evidence: Evidence) -> Outcome:
    """Depth is learned with both schedules only: constant λ keeps ten layers, both keep fewer (each in at least nine
    seeds of ten), and constant r fits at least twice as badly, same seed, in the median."""
    parts = []
    for key, said in {"const-const": "constant λ and r", "const-inc": "constant λ", "dec-inc": "both"}.items():
        depths = evidence.samples(DEPTH.runs[key], ["grown.depth"], key)["grown.depth"]
        wanted = depths < 10 if key == "dec-inc" else depths == 10
        kept = f"{'fewer than ' if key == 'dec-inc' else ''}ten layers, {said}, of {len(depths)} seeds"
        parts.append(Estimate(kept, share(int(wanted.sum()), len(wanted)), 0.9, spec=".0%"))
    rows = DEPTH.runs["dec-const"], DEPTH.runs["dec-inc"]
    ratio = evidence.ratios(*rows, "grown.truncated.mse", "dec-const and dec-inc")
    return Outcome([*parts, Estimate("truncated MSE with constant r over that with both", median(ratio), 2)])


@claim("recursive", "table 9", "after results, 2026-11-23")
def _recursive(evidence: Evidence) -> Outcome:
    """The recursive chain learns a depth below its limit, with truncated error within a factor of two of soft, in at
    least nine of ten seeds."""
    quantities = ["grown.depth", "grown.soft.mse", "grown.truncated.mse"]
    samples = evidence.samples(DEPTH.runs["recursive"], quantities, "recursive")
    cost = samples["grown.truncated.mse"] / samples["grown.soft.mse"]
    good = int(((samples["grown.depth"] < 16) & (cost <= 2)).sum())
    because = f"{good} of {len(cost)} seeds; truncated over soft MSE at most {cost.max():.3g}"
    return Outcome([Estimate("share of such seeds", share(good, len(cost)), 0.9, spec=".0%")], because)


_JUDGED = "after results, 2026-11-28"


@claim("identity_first", "table 9", _JUDGED)
def _identity_first(evidence: Evidence) -> Outcome:
    """With both schedules the layers that are the identity come first, without a gap, in at least nine seeds of ten."""
    found = [kept(run) for run in evidence.runs(DEPTH.runs["dec-inc"].with_seeds(range(SEEDS_OF_DEPTH)), "dec-inc")]
    first = sum(0 < counts.count(0) == next(at for at, n in enumerate(counts) if n) for counts in found)
    return Outcome([Estimate(f"of {len(found)} seeds", share(first, len(found)), 0.9, spec=".1%")])


@claim("depths", "table 9", _JUDGED)
def _depths(evidence: Evidence) -> Outcome:
    """The learned depths are the paper's, six with both schedules and seven with a falling λ alone, in most seeds."""
    parts = []
    for key in ("dec-inc", "dec-const"):
        depths = evidence.samples(DEPTH.runs[key], ["grown.depth"], key)["grown.depth"]
        wanted = evidence.published(f"{NINE.name}.{key}.depth")
        equal = share(int((depths == wanted).sum()), len(depths))
        parts.append(Estimate(f"{key}, depth {wanted:.0f}, of {len(depths)} seeds", equal, 0.5, spec=".0%"))
    return Outcome(parts)
