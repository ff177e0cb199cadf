"""What only a card can show. The made-up accelerator must not be in the process: with it, torch's CUDA cannot train."""

import pytest
import torch
from on_device import QUICK, SLOW, config_of, same_on_device

import ngn
from experiments.runs.stack import Stack

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("task", "gate", "keys"), [*QUICK, *SLOW])
def test_every_task_on_a_card(tmp_path, task, gate, keys):
    same_on_device(Stack.of(config_of(task, gate, **keys)), torch.device("cuda"), tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sizes_of_a_deep_language_model_pass_their_trials_on_a_card(dtype):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=1024, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, head_dim=64,
    )  # fmt: skip
    model = LlamaForCausalLM(shape).to("cuda", dtype)
    learner = ngn.learn_sizes(model, {"*.mlp": ngn.Width(16), "*.self_attn": ngn.Heads()}, by_importance=None)
    assert len(learner.axes) == 60
