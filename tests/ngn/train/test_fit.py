"""Training of any model: modes, hooks, warm-up, resuming, batches, evaluations."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from modes import hard_output
from stopping import Stop, stop_after
from torch import nn

import ngn
from experiments.models.mlp import MLPBank
from ngn.components.base import OrderedSum
from ngn.learner import Learner
from ngn.losses import Supervised, mean_squared_error
from ngn.methods.ngn import CountGate
from ngn.schedules import COSINE
from ngn.train.batches import FullBatches, Split
from ngn.train.fit import fit
from ngn.train.plan import TrainPlan
from ngn.train.trainer import Trainer

X = torch.linspace(-2, 2, 32).unsqueeze(-1)
Y = torch.sin(3 * X)
DATA = FullBatches(Split(X, Y))
MSE = Supervised(mean_squared_error)


class Noisy(nn.Module):
    """A user's model with dropout and batch normalisation around an ordered sum."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Linear(1, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5))
        self.group = OrderedSum(MLPBank([8, 4, 1], 4, 0), CountGate(4, t0=1.3, lambda0=1e-3))

    def forward(self, x):
        return self.group(self.first(x))


class Recorder(Learner):
    """Record the calls of hooks, and whether the learner was in training mode and had gradients."""

    calls = ()


def recorded(name):
    def hook(self, *given):
        done = getattr(super(Recorder, self), name)(*given)
        gradients = all(p.grad is not None for p in self.body_parameters())
        facts = [one for one in given if one is None or isinstance(one, (int, float))]
        self.calls += ((name, self.training, gradients, *facts),)
        return done

    return hook


HOOKS = "prepare", "set_progress", "before_step", "make_room", "penalty", "after_backward", "after_step", "finish"
for _name in (*HOOKS, "forward"):
    setattr(Recorder, _name, recorded(_name))


def noisy():
    return Learner(Noisy())


def trained(learner, steps=20, **settings):
    trainer = Trainer(learner, DATA, MSE, TrainPlan(steps=steps, lr=1e-2, clip=0.1), progress="never", **settings)
    trainer.fit()
    return trainer


def test_hooks_are_called_in_the_order_of_the_contract():
    learner = Recorder(Noisy())
    trained(learner, steps=1)
    assert learner.calls == (
        ("prepare", False, False),
        ("set_progress", True, False, 0.0),
        ("before_step", True, False, 0),
        ("make_room", True, False),
        ("forward", True, False),
        ("penalty", True, True),
        ("after_backward", True, True, 0),
        ("after_step", True, True, 0),
        ("set_progress", True, False, 1.0),
        ("before_step", True, False, None),
        ("finish", False, False),
    )


def test_only_training_is_random():
    learner = noisy()
    running = learner.model.first[1].running_mean.clone()
    trainer = trained(learner)
    assert not torch.equal(running, learner.model.first[1].running_mean)
    for mode in ("soft", "hard", "kept"):
        assert torch.equal(*(trainer.evaluate(lambda model: model(X), mode) for _ in range(2)))
    assert torch.equal(learner(X), learner(X))
    assert torch.allclose(learner.deploy().eval()(X), hard_output(learner, X), atol=1e-6)


@pytest.mark.parametrize("mode", ["soft", "hard"])
@pytest.mark.parametrize(("autocast", "dtype"), [("none", torch.float32), ("bf16", torch.bfloat16)])
def test_evaluations_have_the_autocast_of_the_training_and_leave_every_part_in_its_mode(mode, autocast, dtype):
    learner = noisy().train()
    learner.model.first[1].eval()  # such as a user's frozen normalisation
    before = [module.training for module in learner.modules()]
    trainer = Trainer(learner, DATA, MSE, TrainPlan(steps=1, autocast=autocast), progress="never")
    seen = trainer.evaluate(lambda model: (model.training, model.model.first[0](X).dtype), mode)
    assert seen == (False, dtype)
    assert [module.training for module in learner.modules()] == before


@pytest.mark.parametrize("harm", ["none", "flip"])
def test_a_training_resumes_bit_equal_from_its_newest_usable_checkpoint(tmp_path, harm, caplog):
    """With dropout and normalisation."""
    learners = [noisy() for _ in range(3)]
    torch.manual_seed(1)
    trained(learners[0])
    torch.manual_seed(1)
    with pytest.raises(Stop):
        trained(learners[1], folder=tmp_path, checkpoint_seconds=0.0, on_step=stop_after(11))
    newest = max(tmp_path.iterdir())
    if harm == "flip":
        newest.write_bytes(newest.read_bytes()[:-1] + bytes([newest.read_bytes()[-1] ^ 1]))
    steps = []
    torch.manual_seed(2)
    trained(learners[2], folder=tmp_path, on_step=steps.append)
    assert (steps[0], "cannot be used" in caplog.text) == ((11, True) if harm == "flip" else (12, False))
    for name, value in learners[0].state_dict().items():
        assert torch.equal(value, learners[2].state_dict()[name]), name


def model():
    return OrderedSum(MLPBank([1, 4, 1], 3, 0), CountGate(3, lambda0=1e-3))


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_warm_up_and_weight_decay_equal_torchs(optimizer):
    plan = TrainPlan(steps=20, lr=1e-2, lr_shape=COSINE, optimizer=optimizer, weight_decay=0.3, warmup=0.25)
    ours, reference = Learner(model()), Learner(model())
    Trainer(ours, DATA, MSE, plan, progress="never").fit()
    body, tau = reference.body_parameters(), reference.controller_parameters()
    groups = [{"params": body, "lr": 1e-2, "weight_decay": 0.3}, {"params": tau, "lr": 5e-2, "weight_decay": 0.0}]
    stepping = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer](groups)
    rise = torch.optim.lr_scheduler.LambdaLR(
        stepping,
        [
            lambda step: step / 5 if step < 5 else 0.5 * (1 + torch.tensor(torch.pi * (step - 5) / 15).cos().item()),
            lambda step: min(step / 5, 1.0),
        ],
    )
    for step in range(20):
        reference.set_progress(step / 20)
        stepping.zero_grad()
        (MSE(reference, (X, Y)) + reference.penalty()).backward()
        stepping.step()
        rise.step()
    reference.set_progress(1.0)
    for name, value in reference.state().items():
        torch.testing.assert_close(ours.state()[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_evaluations_do_not_change_the_training():
    seen, steps = [], []

    def report(step, model):
        assert not torch.is_grad_enabled()
        assert not any(module.training for module in model.modules())
        seen.append((step, float(MSE(model, (X, Y)))))

    silent, told = noisy(), noisy()
    for learner, more in ((silent, {}), (told, {"on_evaluate": report, "evaluate_every": 8, "on_step": steps.append})):
        torch.manual_seed(3)
        fit(learner, X, Y, mean_squared_error, TrainPlan(steps=20, lr=1e-2), progress="never", **more)
    assert [step for step, _ in seen] == [8, 16, 20]
    assert steps == list(range(1, 21))
    assert all(a != b for (_, a), (_, b) in itertools.pairwise(seen))
    for name, value in silent.state().items():
        assert torch.equal(value, told.state()[name]), name


def test_a_training_that_diverges_is_warned_of():
    target = Y.clone()
    target[0] = float("inf")
    with pytest.warns(UserWarning, match="no longer finite at step 0"):
        fit(noisy(), X, target, mean_squared_error, TrainPlan(steps=5), progress="never")


@pytest.mark.parametrize(
    ("given", "better"), [({"lambda0": 0.3}, "learned"), ({"budget": ngn.Budget(parameters="10%")}, "retrained")]
)
def test_retraining_keeps_the_better_of_two_trainings(given: dict[str, object], better: str) -> None:
    """The second one is a plain training of the cut layers; the learner holds the weights with the lower loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    first = copy.deepcopy(model)
    x = torch.linspace(-2, 2, 32).unsqueeze(-1)
    y, held = (3 * x).sin(), (x + 0.05, (3 * (x + 0.05)).sin())
    learner = ngn.learn_sizes(model, example=x, **given)
    plan = TrainPlan(steps=150, lr=1e-2)
    history = fit(learner, x, y, F.mse_loss, plan, held_out=held, retrain=True, progress="never")
    n = int(learner.count())
    assert 1 <= n < 16
    best = (first[0].weight.square().sum(1) + first[2].weight.square().sum(0)).topk(n).indices.sort().values
    plain = nn.Sequential(nn.Linear(1, n), nn.Tanh(), nn.Linear(n, 1))
    with torch.no_grad():
        for name, dim in (("0.weight", 0), ("0.bias", 0), ("2.weight", 1)):
            plain.get_parameter(name).copy_(first.get_parameter(name).index_select(dim, best))
        plain[2].bias.copy_(first[2].bias)
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        F.mse_loss(plain(x), y).backward()
        optimizer.step()
    small = learner.deploy(example=x)
    loss, of_plain = (F.mse_loss(each(held[0]), held[1]).item() for each in (small, plain))
    assert history.compared["retrained"] == pytest.approx(of_plain, rel=1e-3)
    assert loss == pytest.approx(min(history.compared.values()), rel=1e-5)
    assert min(history.compared, key=history.compared.__getitem__) == better
