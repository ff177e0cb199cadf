"""Every task on a made-up accelerator: training, a crash, resuming, scores, generation; and where the host waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from accelerator import DEVICE, accelerator
from on_device import QUICK, SLOW, config_of, same_on_device

from experiments.runs.stack import Stack

pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")


@pytest.mark.parametrize(("task", "gate", "keys"), [*QUICK, *(pytest.param(*s, marks=pytest.mark.slow) for s in SLOW)])
def test_every_task_trains_crashes_resumes_and_is_measured(
    tmp_path: Path, task: str, gate: str, keys: dict[str, Any]
) -> None:
    with accelerator():
        same_on_device(Stack.of(config_of(task, gate, **keys)), DEVICE, tmp_path)


def test_a_stack_has_learning_rates_of_its_own(tmp_path: Path) -> None:
    configs = [config_of("regression1d", "mlp", seed__value=n, train__lr=0.01 * (n + 1)) for n in range(2)]
    with accelerator():
        same_on_device(Stack.of(*configs), DEVICE, tmp_path)
