"""AdaLoRA through peft: used as peft documents, with any total, and resumed bit by bit."""

import copy

import pytest
import torch
from stopping import resumed
from torch import nn

import ngn
from experiments.methods.low_rank import AdaLoRA
from experiments.methods.low_rank.adalora import AdaLoRALearner
from experiments.models.trainer import StudyTrainer
from experiments.tasks.language.base import tiny_base
from ngn.components.low_rank import LowRankLinear

peft = pytest.importorskip("peft")
pytest.importorskip("transformers")

TARGETS = [f"model.layers.{i}.self_attn.{kind}_proj" for i in range(2) for kind in "qv"]
IDS = torch.randint(0, 50, (3, 12), generator=torch.Generator().manual_seed(0))
STEPS = 24
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
"""The method that peft calls on a transformers model."""


def tiny():
    return copy.deepcopy(tiny_base(torch.device("cpu")).model)


def learner_of(total=5, start=4, steps=STEPS, **settings):
    initial, final = (settings.pop(name, usual) / steps for name, usual in (("initial", 3), ("final", 6)))
    usual = {"alpha": 8, "orthogonality": 0.3, "beta1": 0.85, "beta2": 0.85, "every": 4}
    own = AdaLoRA(name="adalora", target=total, initial=initial, final=final, **(usual | settings))
    return AdaLoRALearner(tiny(), TARGETS, own, start, steps, seed=1)


class Same:
    def at(self, index):
        return IDS


def loss(model, ids):
    return model(input_ids=ids, labels=ids).loss


def trainer(learner, steps=STEPS, **settings):
    plan = ngn.TrainPlan(steps=steps, lr=1e-2)
    return StudyTrainer(learner, Same(), loss, plan, progress="never", **settings)


def test_training_equals_the_one_that_peft_documents():
    learner = learner_of()
    config = peft.AdaLoraConfig(
        task_type="CAUSAL_LM", target_modules=TARGETS, init_r=4, lora_alpha=8, tinit=3, tfinal=6, deltaT=4,
        beta1=0.85, beta2=0.85, orth_reg_weight=0.3, total_step=STEPS,
    )  # fmt: skip
    model = peft.get_peft_model(tiny(), config)
    model.base_model.rankallocator.target_bgt = 5
    ours = dict(learner.model.named_parameters())
    theirs = dict(model.base_model.model.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, p in theirs.items():
        p.data.copy_(ours[name].data)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=1e-2, fused=True)
    trainer(learner).fit()
    model.train()
    for step in range(1, STEPS + 1):
        model(input_ids=IDS, labels=IDS).loss.backward()
        optimizer.step()
        model.base_model.update_and_allocate(step)
        optimizer.zero_grad()
    for name, p in theirs.items():
        torch.testing.assert_close(p, ours[name], rtol=1e-3, atol=1e-5, msg=name)
    pattern = model.peft_config["default"].rank_pattern
    assert learner.kept.tolist() == [pattern[f"{name}.lora_E.default"] for name in TARGETS]


@pytest.mark.parametrize("total", [0, 1, 5, 15])
def test_adalora_ends_at_its_total_and_deploys_as_low_rank_terms(total):
    learner = learner_of(total)
    trainer(learner).fit()
    assert int(learner.count().sum()) == total
    small = learner.deploy(example={"input_ids": IDS}, share_frozen=True)
    ranks = {name: part.down.shape[0] for name, part in small.named_modules() if isinstance(part, LowRankLinear)}
    assert ranks == {name: n for name, n in zip(TARGETS, learner.count().tolist(), strict=True) if n}
    assert small.model.embed_tokens.weight is learner.model.model.embed_tokens.weight
    assert not any("lora" in name for name, _ in small.named_parameters())
    assert all(type(part) is nn.Linear or name in ranks for name, part in small.named_modules() if name in TARGETS)


@pytest.mark.parametrize("stopped", [2, 10, 17, 20])
def test_a_killed_training_resumes_bit_by_bit(stopped, tmp_path):
    resumed(lambda **settings: trainer(learner_of(), **settings), tmp_path, stopped)


def test_impossible_allocations_are_refused():
    with pytest.raises(ValueError, match="expected 0 to 15"):
        learner_of(total=16)
    with pytest.raises(ValueError, match="steps are too few"):
        learner_of(initial=18)
    with pytest.raises(ValueError, match="steps are too few"):
        learner_of(steps=1, initial=0.1, final=0.1)


def test_equal_scores_raise_an_error():
    learner = learner_of(steps=8, initial=1, final=3, every=1)
    for p in learner.model.parameters():
        p.grad = torch.zeros_like(p)
    for step in range(4):
        learner.after_step(step)
    with pytest.raises(RuntimeError, match="0 triplets instead of 5"):
        learner.after_step(4)
