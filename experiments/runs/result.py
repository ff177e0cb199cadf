"""What a phase of training found: of each run a result, which is a ``phase`` of the record's schema, and its curves."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import numpy as np

from ngn.files import remove
from ngn.train import checkpoint

log = logging.getLogger(__name__)

CURVE_TYPES: dict[str, type[np.generic]] = {"step": np.int32, "held_step": np.int32}
"""Types of stored curves that are not float32."""
SCORES = ("truncated", "soft", "gates_kept")
"""What a learned model is scored as: its hard prefix; with its gates as trained; with the gates of the prefix alone."""


@dataclasses.dataclass(kw_only=True)
class Result:
    """One run's phase, in the order in which a record has it; what is None is left out.

    Attributes:
        status: "complete" or "diverged"; what a diverged model would score is no result.
        count: retained components per gate.
        diverged_at: first step seen with a non-finite loss.
        t: boundary per gate, or the continuous size that stands in its place.
        integer: whether t is within 0.01 of an integer.
        r: learned ratio of the ordering weights.
        scores: "truncated", "soft", "gates_kept" → name → score.
        description: what else the task says of the truncated model.
        n: name of a score → how many examples or tokens it is a mean over.
        sizes: sums of the counts over all groups, or parts of them.
        parameters: "candidate": before truncation, "deployed": what is left.
        seconds: wall time of the training that held this run; run_steps_per_second: steps times replicas over seconds.
        cost: of a forward pass (``cost.py``).
        budget: of a model learned under one: its "kind", the "limit", and the "cost" of what is deployed.
        prefixes: score of the model truncated to at most 1, 2, ... leading components of every gate, below its count.
        samples: "soft", "truncated" → text that the model has written.
        norms: L2 norm of each f_k over the training inputs.
        prunes_back: see :func:`prunes_back`.
        lambda0: capacity price, where it is not the configured one.
        taken_from: run id of the ``method=fixed`` record that this phase was read from.
    """

    status: str
    count: list[int]
    diverged_at: int | None = None
    t: list[float] | None = None
    integer: list[bool] | None = None
    r: list[float] | None = None
    scores: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    description: dict[str, Any] = dataclasses.field(default_factory=dict)
    n: dict[str, int] = dataclasses.field(default_factory=dict)
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    parameters: dict[str, int]
    steps: int
    seconds: float
    run_steps_per_second: float | None = None
    peak_memory_mib: float | None = None
    cost: dict[str, Any] | None = None
    norms: list[float] | None = None
    budget: dict[str, Any] | None = None
    prefixes: list[float] | None = None
    samples: dict[str, str] | None = None
    prunes_back: dict[str, Any] | None = None
    lambda0: float | None = None
    taken_from: str | None = None

    @property
    def complete(self) -> bool:
        """Whether it has scores."""
        return self.status == "complete"

    def json(self) -> dict[str, Any]:
        """The phase as a record holds it."""
        content: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("scores", "description"):
                content |= value
            elif value is not None and (value or field.name not in ("n", "sizes")):
                content[field.name] = value
        return content

    @classmethod
    def of(cls, content: dict[str, Any]) -> Result:
        """The result that :meth:`json` wrote."""
        names = {field.name for field in dataclasses.fields(cls)}
        known = {key: value for key, value in content.items() if key in names}
        scores = {name: content[name] for name in SCORES if name in content}
        rest = {key: value for key, value in content.items() if key not in names and key not in scores}
        return cls(**known, scores=scores, description=rest)


@dataclasses.dataclass
class Phase:
    """One phase of a stack: the result and the curves of each run, how often it was resumed, and what trained it."""

    results: list[Result]
    curves: list[dict[str, np.ndarray]]
    resumed: int
    engine: str

    def save(self, path: Path, identity: checkpoint.Identity) -> None:
        """Keep a phase that has finished, for when a later one is interrupted."""
        content = {
            "results": [result.json() for result in self.results],
            "curves": [{name: curve.tolist() for name, curve in curves.items()} for curves in self.curves],
            "resumed": self.resumed,
            "engine": self.engine,
        }
        checkpoint.write_sealed(path, content, identity)

    @classmethod
    def load(cls, path: Path, identity: checkpoint.Identity) -> Phase | None:
        """The phase that was kept; None if there is none, and, with a warning, if it is damaged or of other code."""
        try:
            content = checkpoint.read_sealed(path, identity)
        except FileNotFoundError:
            return None
        except (checkpoint.OtherIdentityError, *checkpoint.DAMAGE) as fault:
            log.warning("%s cannot be used (%s); its phase is trained again", path, fault)
            remove(path)
            return None
        curves = [
            {name: np.asarray(curve, dtype=CURVE_TYPES.get(name, np.float32)) for name, curve in stored.items()}
            for stored in content["curves"]
        ]
        return cls([Result.of(result) for result in content["results"]], curves, content["resumed"], content["engine"])


def prunes_back(grown: list[int], high: list[int], t: list[float], starts: list[float]) -> dict[str, Any]:
    """The paper's verdict on a run started at high capacity.

    yes: every rounded count is within one block of the grown one. partial: not so, but every boundary ended more than
    one block below its start. no: the rest.

    Args:
        grown, high: counts per gate, grown from low and started at high capacity.
        t: boundaries of the latter; starts: where they began.
    """
    returned = all(abs(a - b) <= 1 for a, b in zip(grown, high, strict=True))
    moved = all(boundary < start - 1 for boundary, start in zip(t, starts, strict=True))
    return {"outcome": "yes" if returned else "partial" if moved else "no", "returned": returned, "moved": moved}
