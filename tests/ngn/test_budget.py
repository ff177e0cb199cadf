"""Budgets: sizes part on evidence alone, and no deployed model is above its budget."""

import pytest
import torch
from kernel_cases import BANK, plan
from sizable import Adding, Layers
from torch import nn

import ngn
from ngn.budget.allocation import BudgetLearner
from ngn.cut.truncation import deploy
from ngn.train.trainer import Trainer

EACH = 16 + 16 + 256 + 16 + 16
"""Parameters of one 1D block, without the output bias that all blocks share."""


def of(components):
    return int(components * EACH + 1)


def bank(budget, seeds=0, K=12, **gate):
    return BudgetLearner(BANK.learner(seeds, K=K, stirred=True, **gate).model, budget)


def deployed(learner):
    each = [None] if learner.replicas is None else range(learner.replicas)
    return [sum(p.numel() for p in learner.deploy(r).parameters()) for r in each]


@pytest.mark.parametrize("t0", [1e-4, 4.3, 11.0])
@pytest.mark.parametrize("components", [1, 3, 7, 11.9, 12, 40])
def test_no_deployed_model_is_above_its_budget(t0, components):
    learner = bank(ngn.Budget(parameters=of(components)), t0=t0)
    BANK.train(Trainer, learner, plan(40, lr_boundary=0.1))
    assert deployed(learner)[0] <= of(components)


def test_each_model_of_a_stack_has_its_own():
    learner = bank(ngn.Budget(parameters=[of(2), of(5), of(8)]), seeds=[0, 1, 2], t0=9.0)
    assert learner.reach.requested == [of(2), of(5), of(8)]
    BANK.train(Trainer, learner, plan(60, lr_boundary=0.1))
    left = deployed(learner)
    assert all(count <= limit for count, limit in zip(left, learner.reach.requested, strict=True))
    assert len(set(left)) > 1


def row(*widths):
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(4, width), nn.GELU(), nn.Linear(width, 4)) for width in widths), nn.Linear(4, 1)
    )


@pytest.mark.parametrize(
    ("widths", "groups", "share"), [((32,), [16], "60%"), ((32, 8), [16, 8], "45%"), ((48, 16, 24), [16, 16, 8], "70%")]
)
def test_a_task_that_wants_more_has_the_largest_model_within_the_budget(widths, groups, share):
    x = torch.randn(64, 4)
    sizes = {f"{i}": ngn.Width(K) for i, K in enumerate(groups)}
    budget = ngn.Budget(parameters=share)
    learner, whole = (ngn.learn_sizes(row(*widths), sizes, budget=budget, example=x) for _ in range(2))
    how = ngn.TrainPlan(steps=300)
    history = ngn.fit(learner, x, (2 * x).sin().prod(-1, keepdim=True), nn.functional.mse_loss, how, progress="never")
    counts, limit, measured = learner.count().tolist(), float(learner.limit), whole.cost.measured
    assert measured(tuple(counts)) == learner.cost.measured(tuple(counts)) <= limit
    more = [measured((*counts[:g], counts[g] + 1, *counts[g + 1 :])) for g, K in enumerate(groups) if counts[g] < K]
    assert min(more) > limit
    learned = torch.from_numpy(history.curves["t"][:, 0][history.curves["step"] < 120][-1])  # last before the commit
    soft = float(learner.cost((learned + 1.0).minimum(torch.tensor(groups)))[0])
    assert soft > limit - sum(each - measured(tuple(counts)) for each in more), "as it was trained, not only when cut"
    used = f"budget: {measured(tuple(counts)):,.0f} of {limit:,.0f} parameters ({measured(tuple(counts)) / limit:.1%})"
    assert f"{used}, held from 40% of training on" in str(learner.report())
    assert f"({whole.cost.full / limit:.1%}), to be held from 40% of training on" in str(whole.report())


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"parameters": 300}, "a budget of 300 parameters is too small: the smallest model has 321, with 1 components"),
        ({"parameters": 1000, "round_to": 4}, "the smallest model has 1,281, with 4 components"),
        ({}, "one of parameters, macs and milliseconds"),
        ({"parameters": 5, "macs": 6}, "one of parameters, macs and milliseconds"),
        ({"macs": "50%"}, "needs an input"),
        ({"parameters": 900, "round_to": 0}, "round_to"),
        ({"parameters": "half"}, "'60%'"),
        ({"parameters": -5}, "positive"),
        ({"parameters": 961, "K": None}, "without a preset K there is no largest model"),
    ],
)
def test_wrong_budgets_are_refused(budget, message):
    with pytest.raises(ValueError, match=message):
        bank(ngn.Budget(**{name: value for name, value in budget.items() if name != "K"}), K=budget.get("K", 12))


def test_sizes_under_one_budget_are_fixed_at_once():
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
    sizes = {"0": ngn.Rank(4, commit=0.3), "1": ngn.Rank(4)}
    with pytest.raises(ValueError, match=r"give all gates one commit, not 0\.3 and 0\.4"):
        ngn.learn_sizes(model, sizes, budget=ngn.Budget(parameters=400))
    sizes = {"0": ngn.Rank(4, commit=0.3), "1": ngn.Rank(4, commit=0.3)}
    ngn.learn_sizes(model, sizes, budget=ngn.Budget(parameters=400))


def test_what_is_not_committed_is_not_deployed_above_the_budget():
    learner = bank(ngn.Budget(parameters=of(3)), t0=8.0)
    with pytest.raises(ValueError, match="2,881 parameters are above the budget of 961"):
        learner.deploy()
    learner.set_progress(1.0)
    assert deployed(learner)[0] <= of(3)


@pytest.mark.parametrize("decay", [0.9, 0.9995, 0.9999])
def test_an_average_that_averages_buffers_is_within_the_budget(decay):
    """Torch would average integer buffers as well, and so lose the order of the layers."""
    swa = torch.optim.swa_utils

    budget = ngn.Budget(parameters="46%", example=torch.ones(1, 4))
    learner = ngn.learn_sizes(Layers(*(Adding(4, 4) for _ in range(24))), {"layers": ngn.Depth()}, budget=budget)
    multi = swa.get_ema_multi_avg_fn(decay)
    average = swa.AveragedModel(learner.model, multi_avg_fn=multi, use_buffers=True)
    whole = swa.AveragedModel(learner, use_buffers=True)  # with torch's default, the running mean
    for step in range(21):
        learner.set_progress(step / 20)
        average.update_parameters(learner.model)
        whole.update_parameters(learner)
    kept = [len(deploy(model).layers) for model in (learner.model, average.module, whole.module.model)]
    assert kept == [11, 11, 11]


def test_a_model_that_was_changed_after_its_sizes_were_made_learnable_is_not_deployed():
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8)), nn.Linear(8, 2))
    budget = ngn.Budget(parameters=600)
    learner = ngn.learn_sizes(model, {"0": ngn.Width(16)}, budget=budget, example=torch.ones(1, 8))
    learner.set_progress(1.0)
    assert deployed(learner)[0] <= 600
    model[1] = nn.Linear(8, 100)
    with pytest.raises(ValueError, match=r"1,452 parameters are above the budget of 600: the model was changed"):
        learner.deploy(unsettled="allow")


def test_sizes_fixed_under_another_budget_are_not_deployed():
    def made(parameters):
        model = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 8))
        return ngn.learn_sizes(
            model, {"": ngn.Width(16)}, budget=ngn.Budget(parameters=parameters, example=torch.ones(1, 8))
        )

    loose, tight = made(1000), made(300)
    loose.set_progress(1.0)
    tight.load_state_dict(loose.state_dict())
    with pytest.raises(ValueError, match=r"above the budget of .*: these sizes were fixed under another budget"):
        tight.deploy()
