"""Stacks: which runs form one, how many a kernel or the memory allows, and what is measured of one replica."""

import json
from types import SimpleNamespace

import pytest
import torch
from kernel_cases import BANK

from experiments.config.compose import compose
from experiments.config.identity import runs_of
from experiments.methods.ngn import NGN
from experiments.models.kernels import supported
from experiments.runs import launch, phases, training
from experiments.runs.measure import prefixes_of, take_replica
from experiments.runs.stack import LARGEST, LARGEST_FUSED, Stack, largest_stack, stacks_of, why_no_kernel
from experiments.runs.training import replica_bytes, replicas_that_fit
from experiments.tasks import COMPONENTS, GATES_OF_TASK, TASKS, make_task
from experiments.tasks.generated import Regression1D
from experiments.tasks.settings import MLPComponent
from ngn.methods.orders import Order


def runs(count, **overrides):
    return [compose({"profile": "smoke"}, {**overrides, "seed.value": seed}) for seed in range(count)]


@pytest.fixture
def sizes(monkeypatch):
    """The sizes of the stacks that are trained."""
    real, seen = phases.fit_phase, []
    monkeypatch.setattr(phases, "fit_phase", lambda stack, *rest: seen.append(len(stack)) or real(stack, *rest))
    return seen


def test_runs_with_data_per_seed_are_not_stacked():
    shared, own = (
        [compose({"task": "cora"}, {"task.nodes": nodes, "seed.value": seed}) for seed in range(3)]
        for nodes in ("planetoid", "random")
    )
    assert [len(stack) for stack in stacks_of(runs_of(shared))] == [3]
    assert [len(stack) for stack in stacks_of(runs_of(own))] == [1, 1, 1]
    assert [len(stack) for stack in stacks_of(runs_of(own), largest=10)] == [1, 1, 1]


@pytest.mark.parametrize("lacking", ["compiler", "model"])
def test_a_stack_is_split_if_no_kernel_trains_it(tmp_path, monkeypatch, lacking, sizes):
    """The stack was planned for the kernel, whose stacks are larger than torch's."""
    if lacking == "compiler":
        monkeypatch.setattr(supported, "library", lambda kernel: None)
    else:
        monkeypatch.setattr(phases, "unsupported", lambda *_: "the kernel does not support this model")
    settings = {"results": str(tmp_path / "r"), "progress": "never", "train.steps": 2, "phases": ["grown"]}
    configs = runs(LARGEST + 2, **settings)
    assert largest_stack(configs[0]) == LARGEST_FUSED
    assert [len(stack) for stack in stacks_of(runs_of(configs))] == [LARGEST + 2]
    outcomes = launch.launch(configs)
    assert sizes == [LARGEST, 2]
    assert [json.loads(o.path.read_text())["execution"]["replicas"] for o in outcomes] == [LARGEST] * LARGEST + [2] * 2


class Bumps(MLPComponent):
    pass


class OtherLine(Regression1D):
    pass


class OtherGate(NGN):
    pass


@pytest.mark.parametrize(
    ("block", "own", "reason"),
    [
        ("gate", Bumps, "there is no compiled kernel for gate=mlp"),
        ("task", OtherLine, "there is no compiled kernel for task=regression1d"),
        ("method", OtherGate, "the compiled kernels do not support method=ngn"),
    ],
)
def test_a_kernel_trains_no_new_part_that_does_not_name_it(block, own, reason):
    """Not even one derived from a part that the kernel trains: fifteen seeds are stacks of torch."""
    configs = []
    for config in runs(15):
        part = own.model_validate(getattr(config, block).model_dump())
        configs.append(config.model_copy(update={block: part}))
    assert why_no_kernel(configs[0]) == reason
    assert [len(stack) for stack in stacks_of(runs_of(configs))] == [LARGEST, 5]


ONE_D, DEPTH = {"task": "regression1d"}, {"task": "twist", "gate": "layers"}
BUDGET = {**ONE_D, "method": "budget"}


@pytest.mark.parametrize(
    ("choices", "own"),
    [
        (ONE_D, {}),
        (DEPTH, {}),
        ({**ONE_D, "method": "ste"}, {}),
        (BUDGET, {"method.count": 3}),
        (BUDGET, {"method.count": 3, "gate.order": "annealed"}),
        ({**DEPTH, "method": "budget"}, {"method.parameters": "60%"}),
        (ONE_D, {"gate.K": None}),
        (ONE_D, {"gate.order": "power"}),
        (ONE_D, {"gate.order": "annealed"}),
        (ONE_D, {"train.lr_boundary_shape.kind": "power"}),
        (ONE_D, {"train.optimizer": "adamw"}),
        (DEPTH, {"train.warmup": 0.1}),
        (ONE_D, {"train.batch": 16}),
        (ONE_D, {"train.accumulate": 2}),
        (ONE_D, {"gate.width": 65}),
    ],
)
def test_planning_and_the_kernels_agree_on_what_is_supported(monkeypatch, choices, own):
    """The check of a configuration gives the same answer as the kernel's check of the model built from it."""
    monkeypatch.setattr(supported, "library", lambda name: object())
    config = compose({**choices, "profile": "smoke"}, own)
    stack, task = Stack.of(config), make_task(config, torch.device("cpu"))
    learner, plan = phases.learner_of(stack, task), phases.plan_of(stack, task.samples(config.train))
    reason = supported.unsupported(learner, task.batches(config.train, 0), task.loss, plan)
    assert (why_no_kernel(config) is None) == (reason is None), (why_no_kernel(config), reason)


def test_one_replica_of_a_stack_can_be_copied_out():
    pack = [compose({"task": "mnist", "gate": "mlp", "profile": "smoke"}, {"seed.value": seed}) for seed in (3, 4)]
    task = make_task(pack[0], torch.device("cpu"))
    stack, single = phases.learner_of(Stack.of(*pack), task), phases.learner_of(Stack.of(pack[1]), task)
    with torch.no_grad():
        for p in stack.model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    stack.set_progress(1.0)
    x, samples = task.timed_batch()
    assert samples == len(x)
    torch.testing.assert_close(take_replica(single, stack, 1)(x), stack(x)[1])


CPU = torch.device("cpu")


def smoke(task="mnist", gate="mlp", **overrides):
    settings = {"progress": "never", "train.steps": 3, "phases": ["grown"]}
    return compose({"task": task, "gate": gate, "profile": "smoke"}, {**settings, **overrides})


@pytest.mark.parametrize(
    ("task", "gate"),
    # cora's smoke graph has fewer features; for a model that is there already the check looks at its weights
    [
        (t, g)
        for t, gates in GATES_OF_TASK.items()
        for g in gates
        if t != "cora" and TASKS[t].usual_model == "none" and not COMPONENTS[g].given
    ],
)
def test_the_estimate_before_reading_data_is_below_measured_memory(task, gate):
    config = smoke(task, gate)
    config = smoke(task, gate, **{"gate.t0": config.gate.K})  # all gates are open
    made = make_task(config, CPU)
    samples = len(made.batches(config.train, 0).at(0)[0])
    K = sum(config.gate.K_of(group) for group in range(config.gate.groups))
    assert 0 < 4 * K * config.gate.numbers(config.task, samples) < replica_bytes(Stack.of(config), made)


def test_a_stack_that_does_not_fit_is_split(tmp_path, monkeypatch, sizes):
    configs = [smoke(**{"seed.value": seed, "results": str(tmp_path / "r")}) for seed in range(5)]
    one = replica_bytes(Stack.of(configs[0]), make_task(configs[0], CPU))
    monkeypatch.setattr(training, "free_bytes", lambda device: int(2.5 * one / training.SHARE))
    assert replicas_that_fit(Stack.of(configs[0]), make_task(configs[0], CPU), CPU) == 2
    assert [o.status for o in launch.launch(configs)] == ["complete"] * 5
    assert sizes == [2, 2, 1]


def test_one_replica_is_always_tried(monkeypatch):
    monkeypatch.setattr(training, "free_bytes", lambda device: 1)
    config = smoke()
    assert replicas_that_fit(Stack.of(config), make_task(config, CPU), CPU) == 1


@pytest.mark.parametrize("seeds", [5, [5, 6]])
def test_a_prefix_is_scored_as_the_sum_of_its_components(seeds):
    learner = BANK.learner(seeds, stirred=True, t0=3.2 if seeds == 5 else [3.2, 1.7], order=Order("power"))
    x = BANK.batches().at(0)[0]
    task = SimpleNamespace(
        prefix_score="mse", evaluate=lambda model: {"loss": torch.zeros(()), "mse": model(x).square().mean()}
    )
    f = learner.axes[0].bank.components(x).detach()
    with torch.no_grad():
        for r, count in enumerate((4,) if seeds == 5 else (4, 3)):
            own = f if seeds == 5 else f[r]
            weighted = own / torch.arange(1, 13).view(-1, 1, 1)
            expected = [float(weighted[:most].sum(0).square().mean()) for most in range(1, count)]
            assert prefixes_of(r, learner, task) == pytest.approx(expected, rel=1e-5)
