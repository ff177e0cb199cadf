"""Passes of a trace: in train mode, on several inputs, of several methods; and that they leave the model as it was."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sizable import chain
from torch import nn
from torch.nn import functional as F

import ngn

X = torch.linspace(-1, 1, 192).reshape(24, 8).sin()


def reasons(found, member):
    return {fixed.reason for fixed in found.fixed if member in fixed.members}


def trained_through_the_commit(model, budget=None, **given):
    """Train ``model`` until its sizes are cut, and some steps more; return its learner and what is deployed."""
    learner = ngn.learn_sizes(model, example=X, budget=budget or ngn.Budget(parameters="70%"), **given)

    def loss(output, target):
        return sum((part - target).square().mean() for part in (output if isinstance(output, tuple) else (output,)))

    ngn.fit(learner, X, X[:, :3].contiguous(), loss, ngn.TrainPlan(steps=12), progress="never")
    small = learner.deploy(example=X)
    assert all(axis.whole.sizes[axis][0] > axis.K for axis in learner.axes)
    small.train()(X)
    return learner, small


class Merging(nn.Linear):
    """LoRA that is merged into its weight in eval mode, with or without a flag that says so."""

    def __init__(self, inner, outer):
        super().__init__(inner, outer)
        self.A, self.B = (nn.Parameter(torch.randn(shape) / 3) for shape in ((4, inner), (outer, 4)))
        self.merged = False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            self.weight.data += (self.B @ self.A) * (-1 if mode else 1)
            self.merged = not mode
        return self

    def forward(self, x):
        y = super().forward(x)
        return y if self.merged else y + x @ self.A.T @ self.B.T


@pytest.mark.parametrize("inner", [True, False])
def test_layers_that_merge_in_eval_mode_are_as_they_were(inner):
    model = nn.Sequential(nn.Sequential(Merging(8, 12), nn.ReLU()), Merging(12, 3)).train()
    model[0].train(inner)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    ngn.learn_sizes(model, example=X, by_importance="wanda", calibration=[X])
    assert [m.training for m in model.modules() if not isinstance(m, (ngn.OrderedAxis, ngn.CountGate))] == modes
    assert (model[0][0].merged, model[1].merged) == (not inner, False)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    model(X).sum().backward()
    assert (model[0][0].B.grad is None, model[1].B.grad is None) == (not inner, False)


class Busy(nn.Module):
    """A model that changes all kinds of state in every pass."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Dropout(), nn.Linear(12, 3))
        self.register_buffer("mean", torch.zeros(8))
        self.calls, self.seen, self.by_name = 3, [], {"calls": 0}
        self.kept = SimpleNamespace(layout="plain", inner=SimpleNamespace(layout="plain"))  # as quantised layers do

    def forward(self, x):
        self.calls += 1
        self.seen.append(len(x))
        self.by_name["calls"] += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.kept.layout = self.kept.inner.layout = self.body[3].weight.packed = "packed"
        self.body[0].bias.data.add_(random.random() + np.random.rand())  # noqa: NPY002
        return self.body(x + 0.0 * torch.rand(8))


def test_a_trace_leaves_everything_as_it_was():
    model = Busy().train()

    def state():
        own = [random.getstate(), *(str(vars(module)) for module in model.modules()), {**vars(model.body[3].weight)}]
        return own, [*model.state_dict(keep_vars=True).values(), torch.get_rng_state(), np.random.rand(3)]  # noqa: NPY002

    held = np.random.get_state()  # noqa: NPY002
    own, tensors = state()
    values = [torch.as_tensor(value).clone() for value in tensors]
    np.random.set_state(held)  # noqa: NPY002
    ngn.find_sizes(model, X)
    again, others = state()
    assert again == own
    assert [id(value) for value in others[:-2]] == [id(value) for value in tensors[:-2]]
    assert all(torch.equal(torch.as_tensor(one), value) for one, value in zip(others, values, strict=True))


class Auxiliary(nn.Module):
    """A head, or a mean over units, that only train mode computes."""

    def __init__(self, way):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(8, 16), nn.Linear(16, 12), nn.Linear(12, 3)
        self.aux, self.way = (chain(16, 10, 3) if way == "head" else None), way
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x):
        h = self.a(x).relu()
        if self.training and self.way == "buffer":
            self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        if self.training and self.way == "mixing":
            h = h - h.mean(-1, keepdim=True)
        y = self.head(self.b(h).relu())
        return (y, self.aux(h)) if self.training and self.aux is not None else y


@pytest.mark.parametrize("way", ["head", "buffer"])
def test_what_train_mode_alone_computes_is_cut_with_the_rest(way):
    learner, small = trained_through_the_commit(Auxiliary(way))
    assert learner.names == ["a", "b"]
    if way == "head":
        assert small.aux[0].in_features == small.a.out_features
        assert reasons(learner.found, "aux.0") >= {"it is read in train mode alone, in aux.2,"}


def test_units_that_meet_in_train_mode_alone_are_fixed():
    found = ngn.find_sizes(Auxiliary("mixing"), X)
    assert [group.name for group in found] == ["b"]
    assert "mean over it in the model" in reasons(found, "a")


class Teacher(nn.Module):
    """A teacher that follows its student in every pass of the training."""

    def __init__(self, way):
        super().__init__()
        self.student, self.teacher, self.way = chain(8, 16, 3), chain(8, 16, 3).requires_grad_(False), way

    @torch.no_grad()
    def follow(self):
        ours = dict(self.student.named_parameters())
        pairs = [(theirs, ours[name]) for name, theirs in self.teacher.named_parameters()]
        for theirs, own in pairs if self.way != "lists" else ():
            if self.way == "data":
                theirs.data.mul_(0.9).add_(own.data, alpha=0.1)
            else:
                theirs.lerp_(own, 0.1)
        if self.way == "lists":
            torch._foreach_lerp_(*map(list, zip(*pairs, strict=True)), 0.1)

    def forward(self, x):
        if self.training:
            self.follow()
        return self.student(x) + self.teacher(x) if self.way == "both" else self.student(x)


def test_what_is_written_in_lists_is_fixed():
    found = ngn.find_sizes(Teacher("lists"), X)
    assert not found.groups
    assert "the operation _foreach_lerp_ in the model" in reasons(found, "teacher.0")


@pytest.mark.parametrize("way", ["data", "both"])
def test_a_teacher_is_cut_with_its_student(way):
    model = Teacher(way)
    before = [value.clone() for value in model.parameters()]
    learner = ngn.learn_sizes(model, example=X)
    assert learner.names == ["student.0"]
    assert all(torch.equal(value, was) for value, was in zip(model.teacher.parameters(), before[4:], strict=True))
    _, small = trained_through_the_commit(Teacher(way))
    assert small.teacher[0].out_features == small.student[0].out_features


def test_parameters_that_are_paired_by_their_order_are_said():
    class Silent(nn.Module):
        """One parameter is written with the number of a size, which fits any shape."""

        def __init__(self):
            super().__init__()
            self.student, self.teacher = (nn.Sequential(*(nn.Linear(8, 8, False) for _ in range(3))) for _ in range(2))

        def forward(self, x):
            if self.training:
                for theirs, own in zip(self.teacher.parameters(), self.student.parameters(), strict=False):
                    theirs.data.mul_(0.9).add_(own.data, alpha=0.1)
            return self.student(x) - self.teacher(x)

    with pytest.raises(ValueError, match="it writes other values"):
        ngn.learn_sizes(Silent(), example=X)


class Experts(nn.Module):
    """Each row goes to one expert; the width of all rows may decide, too."""

    def __init__(self, idle=False):
        super().__init__()
        self.up, self.router, self.out = nn.Linear(8, 16), nn.Linear(8, 3, bias=False), nn.Linear(10, 3)
        self.experts, self.idle = nn.ModuleList(chain(16, 12, 10) for _ in range(3)), idle
        with torch.no_grad():
            self.router.weight.copy_(torch.eye(3, 8))

    def forward(self, x):
        h, scores = self.up(x).relu(), self.router(x)
        chosen = (scores[:, :2] if self.idle else scores).argmax(-1)
        y = h.new_zeros(len(h), 10)
        for number, expert in enumerate(self.experts):
            if (rows := chosen == number).any():
                y[rows] = expert(h[rows])
        return self.out(y)


NEVER_LAST = torch.cat([X[:, :2] + 2.0, X[:, 2:]], 1)


def test_experts_without_a_row_are_reached_by_other_numbers():
    with pytest.warns(UserWarning, match=r"the example does not test experts\.0\.0, experts\.2\.0"):
        learner = ngn.learn_sizes(Experts(), example=NEVER_LAST)
    small = learner.deploy(example=NEVER_LAST, unsettled="allow")
    assert {"up", "experts.0.0", "experts.2.0"} <= {*learner.names}
    assert small(X - 3 * torch.eye(8)[0] - 3 * torch.eye(8)[1]).shape == (24, 3)


def test_what_no_pass_reaches_is_named_and_left_alone():
    with pytest.warns(
        UserWarning, match=r"no pass reaches 4 parameters: experts\.2\.0\.weight, .*Sizes of their lengths"
    ):
        found = ngn.find_sizes(Experts(idle=True), X)
    assert not found.groups
    assert reasons(found, "up") >= {"no pass reaches experts.2.0.weight, which has this length,"}


@pytest.mark.filterwarnings("ignore:the example does not test")
def test_multiply_adds_that_depend_on_values_are_refused_before_the_training():
    given = {"example": X, "budget": ngn.Budget(macs="60%", example=X)}
    with pytest.raises(ValueError, match=r"multiply-adds of this model depend on values, .* Limit parameters"):
        ngn.learn_sizes(Experts(), **given)
    assert ngn.learn_sizes(Auxiliary(""), **given).names == ["a", "b"]


class Several(nn.Module):
    """Branches by the length of the input, and a method beside ``forward``."""

    def __init__(self):
        super().__init__()
        self.up, self.short, self.long = nn.Linear(8, 16), nn.Linear(16, 12), nn.Linear(16, 12)
        self.out, self.project = nn.Linear(12, 3), nn.Linear(16, 5)

    def forward(self, x):
        return self.out((self.long if x.shape[1] > 6 else self.short)(self.up(x).relu()).relu())

    def encode(self, x):
        return self.project(self.up(x).relu())


def test_further_inputs_and_methods_are_traced_tried_and_compared():
    x, longer = X.reshape(3, 8, 8)[:, :4], X.reshape(3, 8, 8)
    also = {"forward": [longer], "encode": [x]}
    learner = ngn.learn_sizes(Several(), example=x, also=also, t0=2.0)
    assert learner.names == ["up", "short"]
    small = learner.deploy(example=x, unsettled="allow")
    assert (small.project.in_features, small.long.in_features, small.long.out_features) == (3, 3, 3)
    with torch.no_grad():
        learner.model.project.weight.add_(1.0)  # outputs of the method alone change
    small = learner.deploy(example=x, unsettled="allow")
    small.project.weight.data.zero_()
    with learner.mode("hard"), pytest.raises(ValueError, match="on the example the deployed model differs"):
        ngn.comparison.check_equal(learner.model, small, x, also=also)
    with pytest.warns(UserWarning, match=r"parameters: long\.weight, long\.bias, project\.weight, "):
        assert not ngn.find_sizes(Several(), x).groups
    with pytest.raises(TypeError, match=r"also= takes a dictionary, method -> list of inputs"):
        ngn.find_sizes(Several(), x, also=[longer])


def test_a_model_that_fails_in_train_mode_is_traced_in_eval_mode_alone():
    class Targeted(Auxiliary):
        def forward(self, x, target=None):
            y = super().forward(x)
            return F.mse_loss(y, target) if self.training else y

    with pytest.warns(UserWarning, match="in train mode the model fails on the example"):
        found = ngn.find_sizes(Targeted(""), X)
    assert [group.name for group in found] == ["a", "b"]


def test_a_norm_over_a_batch_gets_a_second_sample():
    model = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Linear(12, 3)).train()
    assert [group.name for group in ngn.find_sizes(model, X[:1])] == ["0"]
    assert int(model[1].num_batches_tracked) == 0
