"""Every task on a made-up accelerator: training, a crash, resuming, scores, generation; and where the host waits."""

import pytest
import torch
from accelerator import DEVICE, accelerator
from on_device import QUICK, SLOW, config_of, same_on_device

from experiments.models.trainer import StudyTrainer
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")


def test_the_accelerator_refuses_what_cuda_refuses():
    with accelerator() as waits:
        there = torch.arange(3.0, device=DEVICE)
        assert (there + torch.tensor(1.0)).tolist() == [1, 2, 3]
        assert there[torch.tensor([2])].tolist() == [2]
        assert sum(waits.values()) == 2
        for refused in (
            lambda: there + torch.ones(3),
            lambda: torch.arange(3)[there.long()],
            lambda: there.index_select(0, torch.tensor([1])),
            lambda: there.uniform_(generator=torch.Generator()),
            lambda: torch.rand(3, device=DEVICE, generator=torch.Generator()),
            lambda: torch.cat([there, torch.ones(1)]),
        ):
            with pytest.raises(RuntimeError, match=r"expected|indices should be"):
                refused()


@pytest.mark.parametrize(("task", "gate", "keys"), [*QUICK, *(pytest.param(*s, marks=pytest.mark.slow) for s in SLOW)])
def test_every_task_trains_crashes_resumes_and_is_measured(tmp_path, task, gate, keys):
    with accelerator():
        same_on_device(Stack.of(config_of(task, gate, **keys)), DEVICE, tmp_path)


def test_the_original_of_a_trained_model_waits_on_the_host():
    config = config_of("wikisql_easy", "prune")
    with accelerator():
        task = make_task(config, DEVICE)
        learner = learner_of(Stack.of(config), task).to(DEVICE)
        assert {p.device.type for p in task.base.model.parameters()} == {"cpu"}
        assert {p.device for p in learner.parameters()} == {DEVICE}
        assert {p.device for p in task.fresh().parameters()} == {DEVICE}


def test_a_stack_has_learning_rates_of_its_own(tmp_path):
    configs = [config_of("regression1d", "mlp", seed__value=n, train__lr=0.01 * (n + 1)) for n in range(2)]
    with accelerator():
        same_on_device(Stack.of(*configs), DEVICE, tmp_path)


def waits_in_a_step(config):
    """Return how often the host waits in the last step, by the function that asks."""
    stack = Stack.of(config)
    seen = []
    with accelerator() as waits:
        task = make_task(config, DEVICE)
        learner = learner_of(stack, task, config.method.sizes(config.gate)).to(DEVICE)
        batches, plan = task.batches(config.train, stack.seeds), plan_of(stack, task.samples(config.train))
        StudyTrainer(
            learner, batches, task.loss, plan, weight=task.weight, progress="never",
            on_step=lambda _: seen.append(waits.copy()),
        ).fit()  # fmt: skip
    return {place.rpartition("/")[2]: times for place, times in (seen[-1] - seen[-2]).items()}


BUDGET = {
    "allocation.py:set_progress": 4, "allocation.py:final_counts": 1, "allowance.py:within": 1, "cost.py:__call__": 5,
    "ngn.py:_opened": 1,
}  # fmt: skip
"""Of the step that fixes the sizes."""
WAITS = [
    ("regression1d", "mlp", "ngn", {}, {}),
    ("regression1d", "mlp", "budget", {"method__count": 2}, BUDGET),
    ("wikisql_easy", "lora", "ngn", {}, {}),
    ("wikisql_easy", "lora", "sora", {"method__target": 8}, {"sora.py:after_step": 1}),
    ("wikisql_easy", "lora", "adalora", {"method__target": 8}, {"adalora.py:after_step": 6}),
    ("wikisql_easy", "prune", "ngn", {"gate__target": "both", "task__replay": 32}, {}),
]
"""Known waits of each kind of step. Whoever adds one writes it down here; whoever removes one, too."""
PLAIN = ("twist chain", "twist layers", "manifold latent", "cora gcn", "mnist conv", "wikisql_easy adapter")
SLOW_WAITS = [
    *(("regression1d", "mlp", method, {}, {}) for method in ("ste", "l0", "decay")),
    ("regression1d", "mlp", "awnn", {"method__width": 2}, {}),
    *((*words.split(), "ngn", {}, {}) for words in PLAIN),
    ("tinystories", "heads_slices", "ngn", {"task__context": 16, "train__batch": 2}, {}),
    *(("wikisql_easy", "lora", method, {"method__target": 8}, {}) for method in ("svd", "eva")),
]


@pytest.mark.parametrize(
    ("task", "gate", "method", "keys", "known"),
    [*WAITS, *(pytest.param(*s, marks=pytest.mark.slow) for s in SLOW_WAITS)],
)
def test_no_step_waits_more_often_than_known(task, gate, method, keys, known):
    assert waits_in_a_step(config_of(task, gate, method, **keys)) == known
