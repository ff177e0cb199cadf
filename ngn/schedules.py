"""Schedules: factors of an amplitude that change with training progress p = step / steps, in [0, 1]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

GATE_CUTOFF = 1e-15
"""Smaller gates are skipped: they change nothing in float32. Over 25,000 steps, training with this cutoff was identical
to training the full bank; with 1e-13 it was not."""
ShapeKind = Literal["constant", "linear", "power", "delayed_linear", "cosine"]


@dataclass(frozen=True)
class Shape:
    """Choose how a value changes with training progress p in [0, 1]; see :func:`shape_at`.

    Attributes:
        kind: the shape.
        start, full: progress at which a delayed ramp begins and reaches 1.
        power: exponent of the shape "power".

    Raises:
        ValueError: if the kind is unknown, ``start`` is not below ``full`` (both in [0, 1]), or the power is not
            positive.

    >>> import ngn
    >>> from ngn.schedules import Shape
    >>> gate = ngn.CountGate(8, alpha_shape=Shape("delayed_linear", start=0.7))
    """

    kind: ShapeKind
    start: float = 0.0
    full: float = 1.0
    power: float = 1.0

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}
    """Refuse unknown keys when a configuration is read into it."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(ShapeKind):
            raise ValueError(f"a shape must be one of {', '.join(get_args(ShapeKind))}, not {self.kind!r}")
        if not 0.0 <= self.start <= 1.0 or not 0.0 <= self.full <= 1.0:
            raise ValueError(f"a ramp must lie in [0, 1], not run from {self.start:g} to {self.full:g}")
        if self.start >= self.full:
            raise ValueError(f"a ramp must start before its end, not at {self.start:g} with the end at {self.full:g}")
        if not 0.0 < self.power < math.inf:
            raise ValueError(f"the power of a shape must be positive, not {self.power:g}")


def require_shapes(**values: object) -> None:
    """Raise a TypeError that names the first argument that is not a :class:`Shape`."""
    for name, value in values.items():
        if not isinstance(value, Shape):
            raise TypeError(f"{name} must be a shape, such as ngn.schedules.Shape('linear'), not {value!r}")


CONSTANT = Shape(kind="constant")
POWER_DECAY = Shape(kind="power")
"""(1 - p)^power: the paper's "decreases with power one"."""
LINEAR = Shape(kind="linear")
DELAYED_LINEAR = Shape(kind="delayed_linear", start=0.5)
"""0 for the first half of training, then linear to 1 at its end: the paper's standard schedule of alpha."""
COSINE = Shape(kind="cosine")


def shape_at(shape: Shape, progress: float) -> float:
    """The value of a shape at ``progress`` in [0, 1]; a ValueError outside of it.

    constant: 1. linear: p. power: (1 - p)^power. cosine: (1 + cos(pi p)) / 2.
    delayed_linear: clip((p - start) / (full - start), 0, 1).
    """
    if not 0.0 <= progress <= 1.0:
        raise ValueError(f"progress must lie in [0, 1], not {progress}")
    if shape.kind == "constant":
        return 1.0
    if shape.kind == "linear":
        return progress
    if shape.kind == "power":
        return float((1.0 - progress) ** shape.power)
    if shape.kind == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return min(1.0, max(0.0, (progress - shape.start) / (shape.full - shape.start)))


def warmed_up(shape: Shape, progress: float, warmup: float) -> float:
    """The value of a shape that follows a linear warm-up over the first fraction ``warmup`` of training, in [0, 1).

    (p / warmup) shape(0) for p < warmup; then shape((p - warmup) / (1 - warmup)).
    """
    if progress < warmup:
        return progress / warmup * shape_at(shape, 0.0)
    return shape_at(shape, (progress - warmup) / (1.0 - warmup))
