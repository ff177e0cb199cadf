"""The sizes that ``task=sine`` learns, by method: runs, a table, a figure and a statement."""

from __future__ import annotations

from experiments.analysis.claims import ABOVE, Claims, Estimate, Outcome
from experiments.analysis.collect import Reader
from experiments.analysis.estimates import mean
from experiments.analysis.evidence import Evidence
from experiments.analysis.figures import Data, Panel, Spec
from experiments.analysis.gather import gather, points_of
from experiments.analysis.selection import Selection
from experiments.analysis.tables import MEAN_T, MEDIAN_MSE, OwnTable, column, row
from experiments.studies.model import Study, selections_of

SEEDS = range(2)


def runs(method: str) -> Selection:
    return Selection.of({"task": "sine", "gate": "waves", "method": method}, seeds=SEEDS)


SINE_SIZES = OwnTable(
    "sine_sizes",
    "Learned sizes on a sine",
    (column("t", "mean t", "grown.t", MEAN_T), column("truncated", "trunc. MSE", "grown.truncated.mse", MEDIAN_MSE)),
    (
        row("ngn", "NGN", seeds=len(SEEDS), runs=runs("ngn")),
        row("urgent", "NGN at twice its price", seeds=len(SEEDS), runs=runs("urgent")),
    ),
    text="How many waves are learned for two sines, and the error that is left.",
)

SINE = Study("sine", "learned sizes on a sine, two methods, two seeds", lambda: selections_of(SINE_SIZES))


def _points(reader: Reader) -> Data:
    """Take t and the error of every run of the table; a series per row."""
    gathered = gather(reader, SINE_SIZES.runs, ["grown.t", "grown.truncated.mse"])
    points = [
        point
        for key, group in gathered.groups.items()
        for point in points_of(group, SINE_SIZES.row(key).labels[0], "grown.t", "grown.truncated.mse")
    ]
    return gathered.data(points)


PANELS = {"": Panel("learned size t", "truncated MSE", ylog=True)}
SINE_ERROR = Spec("sine_error", "Error against learned size on a sine", PANELS, _points)

claim = Claims()


@claim("sine_price", "study sine")
def _smaller(evidence: Evidence) -> Outcome:
    """At twice the price fewer waves are learned, same seed, in the mean."""
    plain, urgent = evidence.pairs(runs("ngn"), runs("urgent"), "grown.t", "both prices")
    return Outcome([Estimate("t at the price minus t at twice the price", mean(plain - urgent), ABOVE)])
