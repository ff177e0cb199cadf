"""The gated posterior against the paper's equation, and the data of the manifold study."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from experiments.config.compose import compose
from experiments.models.latent import GatedBottleneck, RankOneBank, divergence
from experiments.tasks import make_task
from experiments.tasks.generated.task import RANK_THRESHOLD, rotation
from ngn.methods.ngn import CountGate

K, WIDTH, N = 5, 3, 17


def bottleneck(seeds=0, sharp=False, **gate):
    replicas = None if isinstance(seeds, int) else len(seeds)
    settings = {"t0": 1.7, "beta": (400.0, 400.0) if sharp else (4.0, 4.0), **gate}
    group = GatedBottleneck(RankOneBank(WIDTH, WIDTH, K, seeds), CountGate(K, replicas=replicas, **settings), kl=0.3)
    with torch.no_grad():
        group.bank.B.normal_(generator=torch.Generator().manual_seed(1))
        group.log_variance.normal_(generator=torch.Generator().manual_seed(2))
    return group.double()


def points(seed=4):
    return torch.randn(N, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def noise_of(group, step):
    """Return the noise that a training step draws, float64 [N, K]."""
    group.before_step(step)
    noise = group.noise(torch.empty(0, dtype=torch.float64), N)
    group.before_step(step)
    return noise


def equation(group, x, noise):
    """Compute the output and the summed divergence of every point, term by term as in the paper."""
    t = torch.nn.functional.softplus(group.capacity.tau)
    y, kl = torch.zeros(N, WIDTH, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    for k in range(K):
        g, w = torch.sigmoid(4.0 * (t - k + 0.5)), 0.5**k
        mu, ell = x @ group.bank.A[k], group.log_variance[k]
        q = Normal(g * mu, (g**2 * torch.exp(ell) + 1 - g**2).sqrt())
        z = q.mean + q.stddev * noise[:, k]
        y = y + w * z.unsqueeze(-1) * group.bank.B[k]
        kl = kl + kl_divergence(q, Normal(0.0, 1.0))
    return y, kl


def test_the_sampled_posterior_and_its_gradients_follow_the_equations():
    group, x = bottleneck(), points()
    noise = noise_of(group, 6)
    target = points(9)

    def gradients(y, kl):
        loss = (y - target).square().sum(-1).mean() + kl
        return loss.detach(), torch.autograd.grad(loss, list(group.parameters()))

    names = [name for name, _ in group.named_parameters()]
    assert {"bank.A", "bank.B", "capacity.tau", "log_variance"} == set(names)
    y, kl = equation(group, x, noise)
    ours = group(x)
    assert torch.allclose(ours, y, rtol=1e-10, atol=1e-12)
    assert torch.allclose(group.divergence(), 0.3 * kl.mean(), rtol=1e-10)
    expected = gradients(y, 0.3 * kl.mean())
    got = gradients(ours, group.divergence())
    assert torch.allclose(got[0], expected[0])
    for name, a, b in zip(names, got[1], expected[1], strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-12), name


def test_a_closed_gate_leaves_a_unit_gaussian_and_no_divergence():
    """Gates beyond t = 1.7 are closed here, so their latents are pure noise for any encoder."""
    group, x = bottleneck(sharp=True), points()
    with torch.no_grad():
        group.bank.A[3:] *= 1e6
        group.log_variance[3:] = 7.0
        group.bank.B[:3] = 0.0
    noise = noise_of(group, 0)
    mean, excess = group.posterior(x)
    assert torch.count_nonzero(mean[:, 3:]) == torch.count_nonzero(excess[3:]) == 0
    assert float(divergence(mean[:, 3:], excess[3:]).detach()) == 0.0
    w = 0.5 ** torch.arange(3, K, dtype=torch.float64)
    assert torch.allclose(group(x), (noise[:, 3:] * w) @ group.bank.B[3:], atol=1e-12)


def test_a_small_gate_has_a_small_and_positive_divergence():
    """For g = 1e-9, g^2 exp(l) + 1 - g^2 rounds to 1; the divergence of about g^2 mu^2 / 2 must not vanish."""
    g = torch.tensor([1e-9], dtype=torch.float64)
    kl = divergence(g * 3.0, g**2 * torch.expm1(torch.tensor([2.0], dtype=torch.float64)))
    assert float(kl) == pytest.approx(4.5e-18, rel=1e-6)


def test_evaluation_takes_posterior_means_and_truncation_replaces_gates_by_ones():
    group, x = bottleneck(), points()
    group.before_step(None)
    mu = x @ group.bank.A.T
    k = torch.arange(K, dtype=torch.float64)
    g, w, kept = torch.sigmoid(4.0 * (1.7 - k + 0.5)), 0.5**k, (k < 3).double()
    for mode, gates in (("soft", g), ("hard", kept), ("kept", g * kept)):
        group.mode = mode
        assert torch.allclose(group(x), (w * gates * mu) @ group.bank.B, rtol=1e-9)
    assert group.divergence() is None


def test_seed_step_and_micro_batch_determine_the_noise():
    single, stack = bottleneck(8), bottleneck([3, 8])
    like = torch.empty(2, N, K)
    first = noise_of(single, 2)
    stack.before_step(2)
    assert torch.equal(stack.noise(like, N)[1].double(), first)
    assert not torch.equal(stack.noise(like, N)[1].double(), first), "another micro-batch"
    assert not torch.equal(noise_of(single, 3), first)
    assert torch.equal(noise_of(single, 2), first)


def test_the_numerical_rank_counts_singular_values_above_the_threshold():
    source = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(8, 8, generator=source, dtype=torch.float64))[0][:3] for _ in range(2))
    values = torch.tensor([2.0, 1e-2, 1.9e-3], dtype=torch.float64)
    assert RankOneBank(8, 8, 3, 0).take(A=left, B=right * values[:, None]).rank(RANK_THRESHOLD) == 2
    assert RankOneBank(8, 8, 0, 0).rank(RANK_THRESHOLD) == 0


def test_the_points_lie_on_the_manifold():
    config = compose({"task": "manifold"}, {"task.D": 2})
    task = make_task(config, torch.device("cpu"))
    R = rotation(config.task)
    assert torch.allclose(R @ R.T, torch.eye(16, dtype=torch.float64), atol=1e-12)
    x = task.held.inputs.double()
    assert x.shape == (2048, 16)
    z = (torch.atanh(x) / 0.8) @ R  # R is orthogonal
    assert float(z[:, 2:].abs().max()) < 1e-5, "only D coordinates vary"
    assert float(z[:, :2].abs().max()) <= 1.0 + 1e-5
    assert z[:, :2].std(0).tolist() == pytest.approx([3**-0.5] * 2, abs=0.03)
    nothing = task.metrics(torch.zeros_like(task.held.targets), task.held.targets)
    assert float(nothing["nmse"]) == pytest.approx(1.0)
    other = make_task(compose({"task": "manifold"}, {"task.D": 2, "seed.value": 5}), torch.device("cpu"))
    assert torch.equal(other.held.inputs, task.held.inputs)
    assert other.info == task.info
