"""Statistics over seeds, by the names in formats. Each reduces the last axis, so a bootstrap is one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

NO, PARTIAL, YES = 0.0, 1.0, 2.0


def _one(samples: Array) -> Any:
    """Return the number that all samples share, such as a setting."""
    if samples.shape[-1] != 1 and not (samples == samples[..., :1]).all():
        raise ValueError("a single value was asked for, but the runs differ")
    return samples[..., 0]


def _aggregate(samples: Array) -> Any:
    """Return yes or no if every seed has that outcome, else partial (caption of the paper's table 8)."""
    return np.where((samples == YES).all(axis=-1), YES, np.where((samples == NO).all(axis=-1), NO, PARTIAL))


STATISTICS: dict[str, Callable[[Array], Any]] = {
    "value": _one,
    "median": lambda samples: np.median(samples, axis=-1),
    "mean": lambda samples: samples.mean(axis=-1),
    "sd": lambda samples: samples.std(axis=-1, ddof=0),  # the paper's tables give the population's
    "min": lambda samples: samples.min(axis=-1),
    "max": lambda samples: samples.max(axis=-1),
    "rate": lambda samples: 100.0 * samples.mean(axis=-1),  # percent
    "aggregate": _aggregate,
    "yes": lambda samples: (samples == YES).sum(axis=-1),
    "partial": lambda samples: (samples == PARTIAL).sum(axis=-1),
    "no": lambda samples: (samples == NO).sum(axis=-1),
}


def statistic(name: str, samples: Array) -> Any:
    """Reduce the last axis of ``samples``.

    Raises:
        ValueError: on an unknown statistic, no samples, or samples that are not finite.
    """
    if name not in STATISTICS:
        raise ValueError(f"unknown statistic '{name}'; there are: {', '.join(STATISTICS)}")
    if samples.shape[-1] == 0 or not np.isfinite(samples).all():
        raise ValueError(f"{name} of samples that are missing or not finite")
    return STATISTICS[name](samples)
