"""What a phase of training found: the result of each run, and its curves."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np

from experiments.store.result import PrunesBackBlock, Result
from ngn.files import remove
from ngn.train import checkpoint

log = logging.getLogger(__name__)

CURVE_TYPES: dict[str, type[np.generic]] = {"step": np.int32, "held_step": np.int32}
"""Types of stored curves that are not float32."""
SCORES = ("truncated", "soft", "gates_kept")
"""What a learned model is scored as: its hard prefix; with its gates as trained; with the gates of the prefix alone."""


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
        return cls([Result(**result) for result in content["results"]], curves, content["resumed"], content["engine"])


def prunes_back(grown: list[int], high: list[int], t: list[float], starts: list[float]) -> PrunesBackBlock:
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
