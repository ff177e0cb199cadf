"""The results and curves of one phase of a stack."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.core import checkpoint
from experiments.store.record import PrunesBackBlock, Result
from ngn.files import remove

log = logging.getLogger(__name__)

CURVE_TYPES: dict[str, type[np.generic]] = {"step": np.int32, "held_step": np.int32}
"""Curve → type, for stored curves that are not float32."""


@dataclass
class Phase:
    """The result of one phase of a stack.

    Attributes:
        results: one per run.
        curves: name → values, one dictionary per run.
        resumed: number of times the training was resumed.
        engine: what trained it, such as "torch" or the name of a kernel.
    """

    results: list[Result]
    curves: list[dict[str, np.ndarray]]
    resumed: int
    engine: str

    def save(self, path: Path, identity: checkpoint.Identity) -> None:
        """Save a finished phase, so that an interruption of a later phase does not lose it."""
        curves = [{name: curve.tolist() for name, curve in curves.items()} for curves in self.curves]
        checkpoint.write_sealed(path, {**vars(self), "curves": curves}, identity)

    @classmethod
    def load(cls, path: Path, identity: checkpoint.Identity) -> Phase | None:
        """Load a saved phase; None if there is none.

        If it is damaged or was trained by other code, it is removed with a warning, and None is returned.
        """
        try:
            content = checkpoint.read_sealed(path, identity)
        except FileNotFoundError:
            return None
        except (checkpoint.OtherIdentityError, *checkpoint.DAMAGE) as fault:
            log.warning("%s cannot be used (%s); its phase will be trained again", path, fault)
            remove(path)
            return None
        curves = [
            {name: np.asarray(curve, dtype=CURVE_TYPES.get(name, np.float32)) for name, curve in stored.items()}
            for stored in content["curves"]
        ]
        return cls(content["results"], curves, content["resumed"], content["engine"])


def prunes_back(grown: list[int], high: list[int], t: list[float], starts: list[float]) -> PrunesBackBlock:
    """Return the paper's verdict on a run started at high capacity.

    - yes: every rounded count is within one block of the grown one;
    - partial: not so, but every boundary ended more than one block below its start;
    - no: otherwise.

    Args:
        grown, high: counts per axis of the run grown from low, and of the one started at high capacity.
        t, starts: final and initial boundaries of the latter.
    """
    returned = all(abs(a - b) <= 1 for a, b in zip(grown, high, strict=True))
    moved = all(boundary < start - 1 for boundary, start in zip(t, starts, strict=True))
    return {"outcome": "yes" if returned else "partial" if moved else "no", "returned": returned, "moved": moved}
