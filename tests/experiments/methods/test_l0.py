"""Hard-concrete gates against their equations."""

import math

import pytest
import torch

from experiments.methods.gates.l0 import LIMIT, HardConcrete
from ngn.streams import generator

K = 6


def test_l0_initial_gates_and_penalty():
    gate = HardConcrete(32, 0)
    a = gate.log_alpha.detach()
    assert float(a.mean()) == pytest.approx(math.log(9), abs=0.01)
    assert 0.003 < float(a.std()) < 0.03
    assert float(gate.gates("hard").detach().mean()) == pytest.approx(0.98, abs=1e-3)
    assert float(gate.penalty().detach()) == pytest.approx(1e-2 * 32 * 0.978, rel=2e-3)
    assert torch.equal(HardConcrete(5, 0).log_alpha, gate.log_alpha[:5])


def test_l0_gate_is_the_hard_concrete_and_its_probability_is_right():
    gate = HardConcrete(K, 7)
    with torch.no_grad():
        gate.log_alpha.copy_(torch.tensor([2.4, 2.0, 0.5, -0.5, -1.5, -2.4]))
    deterministic = gate.coefficients("soft").detach()
    assert deterministic[0] == 1
    assert deterministic[5] == 0
    assert float(deterministic[2]) == pytest.approx(1.2 / (1 + math.exp(-0.5)) - 0.1, rel=1e-6)
    open_, steps = torch.zeros(K), 4000
    for step in range(steps):
        gate.before_step(step)
        z = gate.coefficients("soft").detach()
        if step == 5:
            u = torch.rand(K, dtype=torch.float64, generator=generator(7, "noise", 5, 0))
            s = torch.sigmoid((torch.log(u) - torch.log(1 - u) + gate.log_alpha.detach()) / (2 / 3))
            assert torch.allclose(z, (1.2 * s - 0.1).clamp(0, 1), atol=1e-4)
        open_ += z > 0
    P = torch.sigmoid(gate.log_alpha.detach() + 2 / 3 * math.log(11)).float()
    assert torch.allclose(gate.open_probabilities().detach().float(), P)
    assert torch.allclose(open_ / steps, P, atol=4 * float((P * (1 - P) / steps).sqrt().max()))
    gate.before_step(None)
    assert torch.equal(gate.coefficients("soft"), deterministic)


def test_l0_noise_depends_on_seed_and_step_and_closed_gates_can_reopen():
    stack, alone = HardConcrete(K, [4, 9]), HardConcrete(K, 9)
    for gate in (stack, alone):
        gate.before_step(11)
    assert torch.equal(stack.coefficients("soft")[1], alone.coefficients("soft"))
    before = alone.coefficients("soft").detach()
    alone.before_step(12)
    assert not torch.equal(before, alone.coefficients("soft"))
    for gate, limit in ((alone, LIMIT), (HardConcrete(K, 9, limit=20.0), 20.0)):
        with torch.no_grad():
            gate.log_alpha.fill_(-50.0)
        gate.after_step()
        assert gate.log_alpha.detach().tolist() == [-limit] * K
