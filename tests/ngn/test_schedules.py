"""Schedules against their closed forms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngn.schedules import CONSTANT, COSINE, DELAYED_LINEAR, LINEAR, POWER_DECAY, Shape, shape_at, warmed_up

P = st.floats(0, 1)


@given(P)
def test_closed_forms(p):
    assert shape_at(CONSTANT, p) == 1.0
    assert shape_at(LINEAR, p) == p
    assert shape_at(POWER_DECAY, p) == 1 - p
    assert shape_at(Shape(kind="power", power=3), p) == pytest.approx((1 - p) ** 3)
    assert shape_at(COSINE, p) == pytest.approx(math.cos(math.pi * p / 2) ** 2, abs=1e-12)
    assert shape_at(DELAYED_LINEAR, p) == pytest.approx(max(0.0, 2 * p - 1), abs=1e-12)


@given(P, st.floats(0, 0.9), st.floats(0.01, 0.1))
def test_a_ramp_is_zero_before_and_one_after(p, start, width):
    value = shape_at(Shape(kind="delayed_linear", start=start, full=start + width), p)
    assert value == pytest.approx(0.0 if p <= start else 1.0 if p >= start + width else (p - start) / width, abs=1e-9)


@pytest.mark.parametrize("shape", [CONSTANT, POWER_DECAY, COSINE])
def test_a_warm_up_is_a_line_and_then_the_whole_shape(shape):
    assert [warmed_up(shape, p, 0.25) for p in (0.0, 0.125, 0.25)] == [0.0, 0.5, 1.0]
    assert [warmed_up(shape, p, 0.25) for p in (0.625, 1.0)] == [shape_at(shape, 0.5), shape_at(shape, 1.0)]
    assert [warmed_up(shape, p, 0.0) for p in (0.0, 0.3, 1.0)] == [shape_at(shape, p) for p in (0.0, 0.3, 1.0)]


@pytest.mark.parametrize("p", [-0.01, 1.01])
def test_progress_outside_training_is_an_error(p):
    with pytest.raises(ValueError, match="progress"):
        shape_at(LINEAR, p)
