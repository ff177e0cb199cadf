"""The cost of a forward pass: equal to counts by hand, and present in the records of the benchmarks."""

import json

import pytest
import torch

from experiments.config.compose import compose
from experiments.runs import launch
from experiments.runs.measure import take_replica
from experiments.runs.phases import learner_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task


def test_one_replica_of_a_stack_can_be_copied_out():
    pack = [compose({"task": "mnist", "gate": "mlp", "profile": "smoke"}, {"seed.value": seed}) for seed in (3, 4)]
    task = make_task(pack[0], torch.device("cpu"))
    stack, single = learner_of(Stack.of(*pack), task), learner_of(Stack.of(pack[1]), task)
    with torch.no_grad():
        for p in stack.model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    stack.set_progress(1.0)
    x, samples = task.timed_batch()
    assert samples == len(x)
    torch.testing.assert_close(take_replica(single, stack, 1)(x), stack(x)[1])


@pytest.mark.parametrize(("task", "gate"), [("mnist", "mlp"), ("cora", "gcn")])
def test_the_record_holds_the_cost_before_and_after_truncation(tmp_path, task, gate):
    own = {"results": str(tmp_path / "results"), "progress": "never", "gate.t0": 1.0, "gate.K": 6}
    config = compose({"task": task, "gate": gate, "profile": "smoke"}, own)
    (outcome,) = launch.launch([config])
    phases = json.loads(outcome.path.read_text())["phases"]
    grown, fixed = phases["grown"]["cost"], phases["fixed"]["cost"]
    assert set(grown["milliseconds"]) == {"candidate", "deployed"}
    assert set(fixed["milliseconds"]) == {"deployed"}
    assert 0 < grown["multiply_adds"]["deployed"] < grown["multiply_adds"]["candidate"]
    assert fixed["multiply_adds"]["deployed"] == grown["multiply_adds"]["deployed"]
