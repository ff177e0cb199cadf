"""What a file of curves must hold. Imports no torch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

MAX_CURVE_POINTS = 300
STEPS, NUMBERS = (np.int32, np.int64), (np.float32, np.float64)
MAX_CURVE_BYTES = 2**24
"""Size limit of unpacked curves; 50 KiB are usual."""


def unpacked(content: bytes, phases: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the arrays in the content of a file of curves.

    Args:
        phases: the phases in the record of the run.

    Raises:
        ValueError: if the curves are too large, or not those of such phases (docs/records.md lists them).
        Exception: almost any other, if the file is garbled.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as members:
        names = members.namelist()
        if len(set(names)) != len(names) or sum(one.file_size for one in members.infolist()) > MAX_CURVE_BYTES:
            raise ValueError("repeated names, or too large")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        curves: dict[str, np.ndarray] = {name: stored[name] for name in stored.files}
    named = {name.rpartition(".")[0] for name in curves}
    if not named or not named <= phases.keys():
        raise ValueError(f"they are of {', '.join(sorted(named)) or 'nothing'}, the record is of {', '.join(phases)}")
    for name in named:
        _check(name, {k.rpartition(".")[2]: v for k, v in curves.items() if k.startswith(f"{name}.")}, phases[name])
    return curves


def _check(name: str, curves: Mapping[str, np.ndarray], phase: Mapping[str, Any]) -> None:
    """Raise a ValueError unless the curves, by their short names, are those of a phase of a record."""
    wanted = {"step", "loss", "task", *(("t",) if "t" in phase else ())}
    if not wanted <= curves.keys() <= {*wanted, "t", "held", "held_step"}:
        raise ValueError(f"{name} has {', '.join(curves)}, but needs {', '.join(sorted(wanted))}")
    for key, curve in curves.items():
        steps = curves.get("held_step" if key.startswith("held") else "step", np.empty(0))
        shape = (len(steps), len(phase.get("t", curve[0]))) if key == "t" else (len(steps),)
        of_steps = key.endswith("step")
        if len(steps) > MAX_CURVE_POINTS or curve.shape != shape or curve.dtype not in (STEPS if of_steps else NUMBERS):
            raise ValueError(f"{name}.{key} has shape {curve.shape} and type {curve.dtype}, but must have {shape}")
        if of_steps and ((np.diff(curve) <= 0).any() or curve.min(initial=0) < 0):
            raise ValueError(f"{name}.{key} does not rise from step to step")
        if phase["status"] == "complete" and not np.isfinite(curve).all():
            raise ValueError(f"{name}.{key} has NaN or infinity, but the training did not diverge")
        if key == "t" and (curve < 0).any():
            raise ValueError(f"{name}.t is negative")
