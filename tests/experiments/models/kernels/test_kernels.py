"""Every training of a compiled kernel against the plain trainer, and against autograd in float64."""

import copy
import json

import numpy as np
import pytest
import torch
from kernel_cases import (
    FIXED,
    LEARNED,
    assert_close,
    assert_same,
    assert_same_curves,
    every,
    learned,
    needs_kernel,
    plan,
    replica,
    state,
)
from stopping import Stop, resumed, stop_after

from experiments.config import run_files
from experiments.config.compose import compose
from experiments.core import checkpoint
from experiments.models.kernels.trainer import KernelTrainer
from experiments.models.trainer import StudyTrainer
from experiments.runs import training
from experiments.runs.stack import Stack
from ngn.losses import mean_squared_error
from ngn.methods.ngn import CountGate
from ngn.schedules import CONSTANT

pytestmark = needs_kernel
RATES = torch.tensor([1e-3, 2e-3, 5e-4], dtype=torch.float64)


@learned
@pytest.mark.parametrize(("t0", "delta"), [(1e-4, 0.5), (2.3, 0.5), (2.3, -0.5), (2.9999999, 0.5), (5.7, -0.5)])
def test_gradients(case, t0, delta, tmp_path):
    """Compare the gradients of one step with autograd in float64, penalties included, read from Adam's first moment."""
    shapes = dict.fromkeys(("lambda_shape", "alpha_shape", "beta_shape"), CONSTANT)
    prices = {"lambda0": 0.03, "alpha_max": 0.05, "r": [0.5, 0.8, 0.95]}
    learner = case.learner([0, 1, 2], stirred=True, t0=t0, delta=delta, **prices, **shapes)
    exact = copy.deepcopy(learner).double()
    exact.set_progress(0.0)
    x, wanted = case.batches().at(0)
    (mean_squared_error(exact(x.double()), wanted.double()) + exact.penalty()).sum().backward()
    gradients = {name: p.grad for name, p in exact.model.named_parameters()}
    name_of = {id(p): name for name, p in learner.model.named_parameters()}
    names = [name_of[id(p)] for p in (*learner.body_parameters(), *learner.controller_parameters())]
    case.train(KernelTrainer, learner, plan(1, clip=None), folder=tmp_path, checkpoint_seconds=0.0)
    saved = checkpoint.latest(tmp_path)
    assert saved is not None
    assert saved[0] == 1
    for i, name in enumerate(names):
        gradient = gradients[name]
        assert gradient is not None
        moment = saved[1][f"adam.{i}.exp_avg"].double() / 0.1
        # Errors are relative to the parameter's largest gradient: it sums samples of alternating sign.
        largest = float(gradient.abs().max())
        assert largest > 0
        torch.testing.assert_close(moment, gradient, rtol=2e-5, atol=4e-6 * largest, msg=lambda m, n=name: f"{n}: {m}")


@every
def test_follows_the_plain_trainer(case):
    for steps, atol in ((1, 1e-7), (60, 1e-5)):
        plain, fast = case.learner([3, 4, 5]), case.learner([3, 4, 5])
        how = plan(steps, lr=RATES)
        a, b = case.train(StudyTrainer, plain, how), case.train(KernelTrainer, fast, how)
        assert_close(plain, fast, atol)
        for name, values in a.curves.items():
            np.testing.assert_allclose(values, b.curves[name], rtol=0, atol=10 * atol)
        assert b.diverged_at.tolist() == [-1, -1, -1]
        for group, other in zip(plain.axes, fast.axes, strict=True):
            if isinstance(group.capacity, CountGate):  # the schedules are at their end
                assert isinstance(other.capacity, CountGate)
                assert torch.equal(group.capacity.beta, other.capacity.beta)


@pytest.mark.parametrize(
    ("name", "width", "samples"),
    [
        *(("bank", width, samples) for width, samples in ((5, 13), (8, 64), (20, 100), (40, 33), (64, 16))),
        *(("chain", width, samples) for width, samples in ((5, 13), (8, 64), (20, 65), (64, 129))),
        ("layers", None, 65),
    ],
)
def test_padding_changes_nothing(name, width, samples):
    """This holds for padded units and padded samples."""
    case, settings = LEARNED[name], {} if width is None else {"width": width}
    plain, fast = (case.learner([1, 2], stirred=True, **settings) for _ in range(2))
    case.train(StudyTrainer, plain, plan(20), samples)
    case.train(KernelTrainer, fast, plan(20), samples)
    assert_close(plain, fast, 5e-6)


@learned
@pytest.mark.parametrize("scope", ["joint", "separate", "body", None])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_clipping_and_decay(case, scope, weight_decay):
    """Norms cover all groups, and weight decay reaches closed components."""
    settings = {"lambda_shape": CONSTANT, "lambda0": 0.5, "K": 24, "t0": 0.5}
    plain, fast, other, start = (case.learner([1, 2], stirred=True, **settings) for _ in range(4))
    scoped = {"clip": None} if scope is None else {"clip": 0.01, "clip_scope": scope}
    # One Adam step hardly depends on the scale of its gradients; several steps with growing gradients do.
    how = plan(30, weight_decay=weight_decay, **scoped)
    case.train(StudyTrainer, plain, how)
    case.train(KernelTrainer, fast, how)
    assert_close(plain, fast, 4e-6)
    case.train(KernelTrainer, other, plan(30, weight_decay=weight_decay, clip=1e-4))
    name, last = next((name, p[:, -1]) for name, p in state(fast).items() if "W" in name or "U" in name)
    assert any(not torch.allclose(p, state(other)[n], rtol=0, atol=1e-5) for n, p in state(fast).items())
    assert torch.equal(last, state(start)[name][:, -1]) == (weight_decay == 0)


@every
def test_a_replica_does_not_depend_on_the_other_replicas(case, threads):
    """Nor on the number of threads. Learning rates and gate settings differ between the replicas."""
    scalars = {"t0": [0.4, 2.9, 1.5], "lambda0": [1e-4, 0.2, 1e-3], "beta": ([4.0, 6.0, 8.0], [15.0, 12.0, 9.0])}
    boundary = torch.tensor([5e-2, 0.2, 0.1], dtype=torch.float64)
    together = case.learner([7, 8, 9], **scalars)
    history = case.train(KernelTrainer, together, plan(60, lr=RATES, lr_boundary=boundary))
    for count in (2, 3, 8):
        threads(count)
        again = case.learner([7, 8, 9], **scalars)
        assert_same_curves(case.train(KernelTrainer, again, plan(60, lr=RATES, lr_boundary=boundary)), history)
        assert_same(state(again), state(together))
    for r in range(3):
        one = {name: v[r] if isinstance(v, list) else (v[0][r], v[1][r]) for name, v in scalars.items()}
        alone = case.learner(7 + r, **one)
        own = case.train(KernelTrainer, alone, plan(60, lr=float(RATES[r]), lr_boundary=float(boundary[r])))
        assert_same(state(alone), replica(state(together), r))
        for name in ("loss", "task", "t"):
            assert np.array_equal(own.curves[name][:, 0], history.curves[name][:, r])


@every
@pytest.mark.parametrize("cut", [7, 58])
def test_resuming_changes_nothing(case, cut, tmp_path):
    def trainer(**settings):
        how = plan(80, lr_boundary=0.3)
        return case.trainer(KernelTrainer, case.learner([1, 2]), how, chunk=7, **settings)

    resumed(trainer, tmp_path, cut)


@learned
def test_both_trainers_read_each_others_checkpoints(case, tmp_path):
    for first, second in ((StudyTrainer, KernelTrainer), (KernelTrainer, StudyTrainer)):
        folder = tmp_path / first.__name__
        more = {"chunk": 10} if first is KernelTrainer else {}
        more |= {"folder": folder, "checkpoint_seconds": 0.0, "on_step": stop_after(30)}
        with pytest.raises(Stop):
            case.train(first, case.learner([1, 2]), plan(60), **more)
        whole, mixed = case.learner([1, 2]), case.learner([1, 2])
        case.train(StudyTrainer, whole, plan(60))
        assert case.train(second, mixed, plan(60), folder=folder).resumed == 1
        assert_close(whole, mixed, 1e-5)


@learned
def test_growth_without_a_preset_number(case, tmp_path):
    """Each group gets components when its boundary needs them, with the same result as a preset K."""
    settings = {"t0": 0.5, "beta": (15.0, 15.0), "price": -1.0, "r": 0.9}
    how = plan(60, clip=None, lr_boundary=0.2)
    grown, preset = (case.learner([1, 2], K=K, **settings) for K in (None, 40))
    before = [group.bank.K for group in grown.axes]
    a, b = case.train(KernelTrainer, grown, how), case.train(KernelTrainer, preset, how)
    assert any(group.bank.K > K for group, K in zip(grown.axes, before, strict=True))
    assert np.array_equal(a.curves["t"], b.curves["t"])
    for name, p in state(grown).items():
        q = state(preset)[name]
        assert torch.equal(p, q[:, : p.shape[1]] if p.dim() > 1 else q), name

    def trainer(**more):
        return case.trainer(KernelTrainer, case.learner([1, 2], K=None, **settings), how, chunk=7, **more)

    again, _ = resumed(trainer, tmp_path, 33)
    assert_same(state(again), state(grown))


DIVERGING = [(StudyTrainer, LEARNED["bank"]), *((KernelTrainer, case) for case in (LEARNED | FIXED).values())]


@pytest.mark.parametrize(("kind", "case"), DIVERGING)
def test_a_diverging_replica_leaves_the_others_alone(kind, case):
    both, alone = case.learner([1, 2], stirred=True), case.learner([1, 2], stirred=True)
    with torch.no_grad():
        next(both.axes[-1].bank.parameters())[0] = float("nan")
    history = case.train(kind, both, plan(40))
    reference = case.train(kind, alone, plan(40))
    assert history.diverged_at.tolist() == [0, -1]
    assert reference.diverged_at.tolist() == [-1, -1]
    assert_same(replica(state(both), 1), replica(state(alone), 1))
    assert np.array_equal(history.curves["loss"][:, 1], reference.curves["loss"][:, 1])


def test_divergence_is_seen_at_the_same_step_as_in_the_plain_trainer():
    case, how = LEARNED["bank"], plan(80, lr=torch.tensor([1e-3, 1e30, 1e-3]))
    history = case.train(KernelTrainer, case.learner([1, 2, 3]), how, chunk=5)
    assert 0 < history.diverged_at[1] < 75
    assert history.diverged_at.tolist() == case.train(StudyTrainer, case.learner([1, 2, 3]), how).diverged_at.tolist()
    assert not np.isfinite(history.curves["loss"][-1, 1])


@every
def test_calls_at_chunk_ends_and_chunks_do_not_matter(case):
    seen = []
    a, b = case.learner([1, 2]), case.learner([1, 2])
    case.train(KernelTrainer, a, plan(50), chunk=20, on_step=seen.append)
    assert seen == [20, 40, 50]
    history = case.train(KernelTrainer, b, plan(50), chunk=1)
    assert_same(state(a), state(b))
    assert history.curves["step"].tolist() == list(range(50))


@learned
def test_evaluations_equal_those_of_the_plain_trainer(case):
    """Evaluations come at the same steps, with the schedules of that step, and restore the mode afterwards."""
    x, wanted = case.batches().at(0)

    def evaluations(kind):
        seen = []

        def report(step, model):
            seen.append((step, float(mean_squared_error(model(x), wanted).sum())))

        learner = case.learner([1, 2])
        case.train(kind, learner, plan(50), on_evaluate=report, evaluate_every=20)
        assert not learner.training
        return seen

    plain, fast = evaluations(StudyTrainer), evaluations(KernelTrainer)
    assert [step for step, _ in fast] == [step for step, _ in plain] == [20, 40, 50]
    np.testing.assert_allclose([value for _, value in fast], [value for _, value in plain], rtol=1e-4)


@pytest.mark.parametrize(
    ("task", "gate", "schedule"),
    [("regression1d", "mlp", "paper"), ("twist", "layers", "dec_lambda_inc_r"), ("twist", "chain", "paper")],
)
def test_runs_agree_between_engines(task, gate, schedule, tmp_path, monkeypatch):
    """From configuration to record: the kernel trains all seeds as one stack and agrees with the torch engine."""
    monkeypatch.setattr(run_files, "SCRATCH", tmp_path / "scratch")

    def pack(engine):
        choice = {"task": task, "gate": gate, "schedule": schedule, "profile": "smoke"}
        settings = {
            "train.steps": 40,
            "engine": engine,
            "results": str(tmp_path / engine),
            "progress": "never",
            "phases": ["grown", "fixed"] if task == "twist" else ["grown"],
        }
        return [compose(choice, settings | {"seed.value": seed}) for seed in (0, 1)]

    fused, plain = pack("fused"), pack("torch")
    together = [json.loads(outcome.path.read_text()) for outcome in training.train_stack(Stack.of(*fused))]
    for record, config in zip(together, plain, strict=True):
        (outcome,) = training.train_stack(Stack.of(config))
        other = json.loads(outcome.path.read_text())
        assert (record["execution"]["engine"], other["execution"]["engine"]) == ("fused", "torch")
        assert record["execution"]["replicas"] == 2
        for phase, mode in (("grown", "soft"), ("fixed", "truncated")):
            if phase in other["phases"]:
                ours, theirs = record["phases"][phase], other["phases"][phase]
                assert ours["count"] == theirs["count"]
                np.testing.assert_allclose(ours[mode]["mse"], theirs[mode]["mse"], rtol=1e-4)
        np.testing.assert_allclose(record["phases"]["grown"]["t"], other["phases"]["grown"]["t"], rtol=0, atol=1e-5)
