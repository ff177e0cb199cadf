"""Heads, slices and state coordinates: initial values, cost, sums in bf16, and the selective scan."""

import pytest
import torch

import ngn
from experiments.models import state_space
from experiments.models.state_space import MambaBlock, StateBank, selective_scan
from experiments.models.transformer import HeadBank, SliceBank

BANKS = {
    "heads": lambda K, seed=0: HeadBank(16, 4, K, seed),
    "slices": lambda K, seed=0: SliceBank(16, 4, K, seed),
    "states": lambda K, seed=0: StateBank(16, K, seed),
}


def loop(u, delta, A, B, C):
    """Compute the recurrence directly from its definition."""
    h, ys = u.new_zeros(len(u), *A.shape), []
    for t in range(u.shape[1]):
        h = torch.exp(delta[:, t, None] * A) * h + (delta[:, t] * u[:, t])[:, None] * B[:, t, :, None]
        ys.append((h * C[:, t, :, None]).sum(1))
    return torch.stack(ys, 1)


def scan_arguments(N, dtype=torch.float64, L=7):
    source = torch.Generator().manual_seed(2)

    def drawn(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64).to(dtype)

    values = [drawn(2, L, 5), drawn(2, L, 5).exp(), -drawn(N, 5).exp(), drawn(2, L, N), drawn(2, L, N)]
    return [value.requires_grad_() for value in values]


@pytest.mark.parametrize("N", [0, 1, 3])
def test_the_scan_and_its_gradients_equal_a_loop_in_float64(N):
    arguments = scan_arguments(N)
    y, wanted = selective_scan(*arguments), loop(*arguments)
    torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-13)
    weights = torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view_as(y)
    got, naive = (torch.autograd.grad((weights * out).sum(), arguments, allow_unused=True) for out in (y, wanted))
    for one, other in zip(got, naive, strict=True):
        torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other, rtol=1e-11, atol=1e-12)
    assert torch.autograd.gradcheck(selective_scan, scan_arguments(N, L=4))
    torch.testing.assert_close(selective_scan(*scan_arguments(N, L=1)), loop(*scan_arguments(N, L=1)))


def test_the_scan_uses_float32_under_autocast():
    exact = loop(*scan_arguments(3))
    with torch.autocast("cpu", torch.bfloat16):
        y = selective_scan(*scan_arguments(3, torch.float32))
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-5)


def test_a_package_that_cannot_be_imported_computes_no_scan(tmp_path, monkeypatch, caplog):
    package = tmp_path / "mamba_ssm"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(state_space, "mamba_scan", state_space.mamba_scan.__wrapped__)
    assert state_space.scan_package(torch.device("cuda")) is None
    assert "undefined symbol" in caplog.text


@pytest.mark.gpu
def test_the_kernel_of_mamba_ssm_equals_the_scan():
    if state_space.mamba_scan() is None:
        pytest.skip("needs mamba-ssm")
    arguments = [x.detach().cuda().requires_grad_() for x in scan_arguments(3, torch.float32, L=64)]
    exact = loop(*(x.double() for x in arguments))
    torch.testing.assert_close(selective_scan(*arguments).double(), exact, rtol=1e-3, atol=1e-4)
    got, naive = (torch.autograd.grad(out.sum(), arguments) for out in (selective_scan(*arguments), exact))
    for one, other in zip(got, naive, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", BANKS)
def test_the_start_of_a_component_does_not_depend_on_K(kind):
    small, large, other = BANKS[kind](3), BANKS[kind](5), BANKS[kind](5, seed=1)
    for name, p in small.named_parameters():
        assert torch.equal(p, large.get_parameter(name)[:3])
    assert not any(p.any() for name, p in small.named_parameters() if name in small.last)
    assert any(not torch.equal(p, q) for p, q in zip(large.parameters(), other.parameters(), strict=True))
    with pytest.raises(ValueError, match="no replica axis"):
        BANKS[kind](3, seed=[0, 1])


def test_the_block_is_causal():
    block = MambaBlock(16, ngn.CountGate(4, t0=2.0), seed=0)
    torch.nn.init.normal_(block.states.bank.C)
    x = torch.randn(1, 9, 16, generator=torch.Generator().manual_seed(0))
    later = x.clone()
    later[:, 6:] += 1
    before, after = block(x), block(later)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6], after[:, 6])


@pytest.mark.parametrize("kind", ["heads", "slices"])
def test_bf16_keeps_terms_of_small_weight(kind):
    """The term 0.5^12 f_12 is lost if terms are added one by one in bf16, but not in one product."""
    bank, x = BANKS[kind](13), torch.randn(64, 32, 16, generator=torch.Generator().manual_seed(3))
    last = bank.get_parameter(bank.last[0])
    torch.nn.init.normal_(last, generator=torch.Generator().manual_seed(4))
    c = 0.5 ** torch.arange(13, dtype=torch.float64)
    term = (bank.double().components(x.double())[12] * c[12]).detach()
    bank.float()

    def share(added):
        return float((added.detach().double() * term).sum() / term.square().sum())

    with torch.autocast("cpu", torch.bfloat16):
        together = bank(x, c)
        f = [part * c[k] for k, part in enumerate(bank.components(x).bfloat16())]
    before = sum(f[1:12], f[0])
    with torch.no_grad():
        last[12] = 0
    with torch.autocast("cpu", torch.bfloat16):
        assert share(together - bank(x, c)) == pytest.approx(1.0, abs=0.15)
    assert f[0].dtype == torch.bfloat16
    assert share(before + f[12] - before) < 0.3
