"""The gate, in float64, and schedules against their closed forms."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ngn.gate import gates, retained_count, snapping, softplus_inverse
from ngn.methods.base import active_components
from ngn.methods.ngn import CountGate
from ngn.schedules import CONSTANT, COSINE, DELAYED_LINEAR, GATE_CUTOFF, LINEAR, POWER_DECAY, Shape, shape_at, warmed_up

F64 = torch.float64


@given(st.floats(1e-12, 1e4))
def test_softplus_inverse_round_trips(t):
    tau = softplus_inverse(t)
    assert math.isclose(float(torch.nn.functional.softplus(tau, threshold=700.0)), t, rel_tol=1e-9)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_no_boundary_outside_its_range(bad):
    with pytest.raises(ValueError, match="positive and finite"):
        softplus_inverse(bad)


@given(st.lists(st.floats(-3, 3), min_size=6, max_size=6), st.floats(0.05, 7), st.sampled_from([0.5, -0.5]))
def test_gradients_are_the_papers(values, t0, delta):
    """dy/dt = sum_k w_k beta g_k (1 - g_k) f_k, and dJ/dt = <dL/dy, dy/dt> + lambda + alpha pi sin(2 pi t)."""
    gate = CountGate(6, lambda0=3e-2, alpha_max=7e-2, beta=(2.0, 9.0), r=0.7, delta=delta, t0=t0)
    gate.set_progress(0.8)
    f = torch.tensor(values, dtype=F64)
    c = gate.coefficients("soft")
    y = (c * f[: len(c)]).sum()
    loss = (y - 1.5) ** 2
    (loss + gate.penalty()).backward()

    t, beta = float(gate.size()), 2.0 + 0.8 * 7.0
    g = [1 / (1 + math.exp(-beta * (t - k + delta))) for k in range(6)]
    dydt = sum(0.7**k * beta * g[k] * (1 - g[k]) * values[k] for k in range(6))
    lam, alpha = 3e-2 * 0.2, 7e-2 * 0.6
    djdt = 2 * (float(y.detach()) - 1.5) * dydt + lam + alpha * math.pi * math.sin(2 * math.pi * t)
    dtdtau = 1 / (1 + math.exp(-float(gate.tau.detach())))
    assert float(gate.tau.grad) == pytest.approx(djdt * dtdtau, rel=1e-8, abs=1e-12)


@pytest.mark.parametrize(
    ("t", "delta", "count"),
    # halves go up; 1e300 is beyond int64
    [(1e-4, 0.5, 1), (2.5, 0.5, 4), (6.99, 0.5, 8), (1e300, 0.5, 8), (1e-4, -0.5, 0), (0.5, -0.5, 1)],
)
def test_count(t, delta, count):
    assert int(retained_count(torch.tensor(t, dtype=F64), 8, delta)) == count
    assert int(CountGate(8, t0=t, delta=delta).count()) == count


@given(st.floats(0, 1000))
def test_snapping_is_the_squared_sine_with_its_derivative(t):
    x = torch.tensor(t, dtype=F64, requires_grad=True)
    value = snapping(x)
    value.backward()
    assert float(value.detach()) == pytest.approx(math.sin(math.pi * t) ** 2, abs=1e-9)
    assert float(x.grad) == pytest.approx(math.pi * math.sin(2 * math.pi * t), abs=1e-8)


def test_snapping_keeps_its_digits_in_float32():
    assert float(snapping(torch.tensor(1000.25))) == pytest.approx(0.5, abs=1e-6)


@given(st.floats(0.001, 60), st.floats(0.5, 30), st.sampled_from([0.5, -0.5]))
def test_left_out_gates_are_below_the_cutoff_and_kept_ones_reach_it(t, beta, delta):
    x, b = torch.tensor(t, dtype=F64), torch.tensor(beta, dtype=F64)
    k = active_components(x, 64, b, delta)
    g = gates(x, 64, b, delta)
    assert bool((g[k:] < GATE_CUTOFF * 1.01).all())
    assert k == 1 or float(g[k - 1]) > GATE_CUTOFF * 0.99


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
