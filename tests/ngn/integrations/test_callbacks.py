"""Sizes are learned inside the trainers of transformers and Lightning."""

import warnings

import pytest
import torch
from trainers import LOADER, QUIET, SIZES, Model, X, in_lightning, in_transformers, lightning_module

import ngn
from ngn.integrations import BoundaryOptimizer
from ngn.methods.orders import Order


def by_fit(steps, accumulate, teacher=None):
    """A learner of the same steps by ``ngn.fit``."""
    learner = ngn.learn_sizes(Model(), SIZES, example=X, lambda0=1.0)
    plan = ngn.TrainPlan(steps=steps, lr=1e-3, lr_boundary=0.2, accumulate=accumulate)
    batches = [{"x": X[n : n + 16], "y": X[n : n + 16].sin()} for n in range(0, 64, 16)]
    ngn.fit(learner, batches, plan=plan, teacher=teacher, progress="never")
    return learner


def learned(learner):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*still moving")  # there are too few steps to settle
        small = learner.deploy(example=X)
    with torch.no_grad():
        assert torch.allclose(small(X), learner.model(X), atol=1e-6)
    return small.mlp[0].out_features


WAYS = {
    "price": {},
    "draws": {"order": Order("nested_dropout", ranks=(4, 8, 12))},
    "budget": {"budget": ngn.Budget(parameters="40%")},
    "sorted": {"by_importance": None},
}
"""Ways to learn a size. The state of the first is in the model; the second also needs the number of steps; the third
also has tensors of the learner; the last the order that the callback has found."""
ORDERED = {"sorted": {"by_importance": "taylor", "loss": lambda model, batch: of(model, batch)["loss"]}}


def of(model, batch):
    """The model's output for a batch of either trainer."""
    return model(**batch) if isinstance(batch, dict) else model(*batch)


def made(way):
    return ngn.learn_sizes(Model(), SIZES, example=X, lambda0=1.0, **{"t0": 8.0} | WAYS[way])


def alike(one, other):
    """Whether the states of two learners are bit-equal."""
    return all(torch.equal(a, b) for a, b in zip(one.state().values(), other.state().values(), strict=True))


trainers = pytest.mark.parametrize("train", [in_transformers, in_lightning])


@pytest.mark.filterwarnings("ignore")  # Lightning's own
@pytest.mark.parametrize("accumulate", [1, 2])
@trainers
def test_it_learns_what_fit_learns(tmp_path, train, accumulate):
    learner = ngn.learn_sizes(Model(), SIZES, example=X, lambda0=1.0)
    with pytest.raises(ValueError, match=r"train learner\.model"):
        train(learner, tmp_path, 2, model=Model())
    train(learner, tmp_path, 40, accumulate=accumulate)
    assert 1 <= learned(learner) < 12
    torch.testing.assert_close(learner.size(), by_fit(40, accumulate).size(), rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # Lightning's own
@trainers
def test_it_learns_from_a_teacher_what_fit_learns(tmp_path, train):
    teacher, learner = Model().requires_grad_(False), ngn.learn_sizes(Model(), SIZES, example=X, lambda0=1.0)
    for p in teacher.parameters():
        p.mul_(-2.0)
    train(learner, tmp_path, 8, accumulate=2, how={"teacher": teacher})
    alone, taught, ours = (each.model.mlp[2].bias for each in (by_fit(8, 2), by_fit(8, 2, teacher), learner))
    torch.testing.assert_close(ours, taught)
    assert not torch.allclose(ours, alone, atol=1e-3)


def test_parts_of_a_batch_share_a_teacher_and_evaluations_have_none(tmp_path):
    """The losses of parts of a batch are sums over the tokens of all of them."""
    transformers = pytest.importorskip("transformers")
    ids = torch.randint(0, 9, (64, 6), generator=torch.Generator().manual_seed(0))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    shape = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}
    config = transformers.LlamaConfig(**shape, num_attention_heads=2)
    teacher, *others = (transformers.LlamaForCausalLM(config) for _ in range(3))
    others[1].load_state_dict(others[0].state_dict())
    ours, fits = (ngn.learn_sizes(each, {"**.mlp": ngn.Width(4, t0=9.0)}, lambda0=0.0) for each in others)
    losses, how = [], {"teacher": teacher}

    class Watcher(transformers.TrainerCallback):
        def on_evaluate(self, args, state, control, metrics, **others):
            losses.append(metrics["eval_loss"])

    with pytest.raises(TypeError, match="leave compute_loss_func and label_smoothing_factor out"):
        in_transformers(ours, tmp_path, 1, data=rows, how=how, label_smoothing_factor=0.1)
    evaluated = {"eval_strategy": "steps", "eval_steps": 4, "save_strategy": "no"}
    in_transformers(ours, tmp_path, 4, others=[Watcher()], accumulate=2, data=rows, how=how, **evaluated)
    plan = ngn.TrainPlan(steps=4, lr=1e-3, lr_boundary=0.2, accumulate=2)
    batches = [{"input_ids": part, "labels": part} for part in ids.split(16)]
    ngn.fit(fits, batches, plan=plan, teacher=teacher, progress="never")
    for one, other in zip(ours.model.parameters(), fits.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    assert losses[-1] == pytest.approx(float(ours.model.eval()(ids, labels=ids).loss.detach()), abs=1e-5)


@pytest.mark.filterwarnings("ignore")  # Lightning's own
@pytest.mark.parametrize(  # a budget fixes its size at 7, a price at 15; Lightning resumes at ends of epochs
    ("train", "at"), [(in_transformers, 5), (in_transformers, 15), (in_lightning, 4), (in_lightning, 12)]
)
@pytest.mark.parametrize("way", WAYS)
def test_it_resumes_exactly(tmp_path, way, train, at):
    straight, resumed = made(way), made(way)
    train(straight, tmp_path, 16, how=ORDERED.get(way))
    assert straight.axes[0].order is not None
    assert straight.model.mlp[0].out_features == max(1, int(straight.count())) < 12
    train(resumed, tmp_path, 16, at=at, how=ORDERED.get(way))
    assert alike(resumed, straight)
    assert str(resumed.report()) == str(straight.report())


@pytest.mark.filterwarnings("ignore")  # Lightning's own
@pytest.mark.parametrize("limit", [{"max_steps": 40}, {"max_epochs": 5}])  # Lightning counts the steps of both
def test_lightning_with_two_optimisers_learns_what_one_does(limit):
    lightning = pytest.importorskip("lightning.pytorch")
    from ngn.integrations.lightning import SizesCallback

    class Manual(lightning_module(lightning)):
        automatic_optimization = False

        def training_step(self, batch):
            optimizers = self.optimizers()
            for each in optimizers:
                each.zero_grad()
            self.manual_backward(super().training_step(batch))
            for each in optimizers:
                each.step()

        def configure_optimizers(self):
            return [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (self.model.mlp[0], self.model.mlp[2])]

    def trained(Module, limit):
        learner = made("price")
        settings = QUIET | {"enable_checkpointing": False} | limit
        trainer = lightning.Trainer(callbacks=[SizesCallback(learner, lr=0.2)], **settings)
        trainer.fit(Module(learner.model), LOADER)
        assert learner.masked == []
        return learner

    assert alike(trained(Manual, limit), trained(lightning_module(lightning), {"max_steps": 20}))
    learner = made("price")
    with pytest.raises(ValueError, match="needs automatic optimisation"):
        lightning.Trainer(callbacks=[SizesCallback(learner, teacher=Model())], **QUIET, **limit).fit(
            Manual(learner.model), LOADER
        )


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_the_cost_is_shown_beside_t(tmp_path):
    transformers = pytest.importorskip("transformers")
    shown, budget = [], ngn.Budget(parameters="60%")

    class Watcher(transformers.TrainerCallback):
        def on_log(self, args, state, control, logs=None, **others):
            shown.append(logs["sizes"])

    learner = ngn.learn_sizes(Model(), SIZES, example=X, budget=budget)
    in_transformers(learner, tmp_path, 4, others=[Watcher()], logging_steps=2)
    assert len(shown) == 3
    assert all(said.startswith("t ") and said.endswith("parameters") for said in shown)
    assert shown[-1] == learner.standing()
    learner = ngn.learn_sizes(Model(), SIZES, example=X, budget=budget)
    logged = in_lightning(learner, tmp_path, 4, log_every_n_steps=2).callback_metrics
    assert float(logged["t"]) == pytest.approx(float(learner.size().mean()))
    assert float(logged["parameters"]) == pytest.approx(float(learner.costs()[0]))


@pytest.mark.filterwarnings("ignore")  # Lightning's own
@pytest.mark.parametrize("way", ["price", "budget"])
@pytest.mark.parametrize("shrink", [True, False])
def test_lightning_loads_a_checkpoint_of_a_module_that_holds_its_learner(tmp_path, way, shrink):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning_module(lightning)):
        def __init__(self):
            super().__init__(model=torch.nn.Identity())
            self.learner = made(way)

        def training_step(self, batch):
            return self.learner(*batch)["loss"]

    from ngn.integrations.lightning import SizesCallback

    module = Module()
    settings = QUIET | {"enable_checkpointing": False, "max_steps": 16}
    trainer = lightning.Trainer(callbacks=[SizesCallback(module.learner, 0.2, shrink)], **settings)
    trainer.fit(module, LOADER)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = Module.load_from_checkpoint(tmp_path / "last.ckpt")
    small, read = module.learner.deploy(), again.learner.deploy()
    assert read.mlp[0].out_features == small.mlp[0].out_features < 12
    assert torch.equal(read(X), small(X))


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_lightning_deploys_its_average_and_needs_a_number_of_steps(tmp_path):
    """Lightning averages buffers, too, and replaces the module by the average at the end."""
    lightning = pytest.importorskip("lightning.pytorch")
    learner = ngn.learn_sizes(Model(), SIZES, example=X, lambda0=1.0)
    with pytest.raises(ValueError, match="number of training steps"):
        in_lightning(learner, tmp_path, -1, max_epochs=-1)
    in_lightning(learner, tmp_path, 40, others=[lightning.callbacks.EMAWeightAveraging(decay=0.9)])
    assert learner.masked == []
    assert 1 <= learned(learner) < 12


def test_a_gradient_that_is_not_finite_moves_no_boundary():
    """Gradients are not finite after an overflow in float16. The scaler then skips the step of the weights, too."""
    learner = ngn.learn_sizes(Model(), SIZES, example=X, lambda0=1.0)
    boundaries = BoundaryOptimizer(learner)
    before = learner.size()
    (learner.model(X).sum() * torch.inf).backward()
    boundaries.step()
    assert torch.equal(learner.size(), before)
    learner.model(X).sum().backward()
    boundaries.step()
    assert not torch.equal(learner.size(), before)


def test_a_best_checkpoint_from_before_the_commit_is_warned_of(tmp_path):
    learner = ngn.learn_sizes(Model(), SIZES, example=X, lambda0=1.0)
    best = {"save_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
    with pytest.warns(UserWarning, match="before the sizes were fixed"):
        in_transformers(learner, tmp_path, 4, label_names=["y"], **best)
