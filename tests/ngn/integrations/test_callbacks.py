"""Sizes are learned inside the trainers of transformers and Lightning."""

import warnings

import pytest
import torch
from trainers import LOADER, QUIET, SIZES, Model, X, in_lightning, in_transformers, lightning_module

import ngn
from ngn.integrations import BoundaryOptimizer
from ngn.methods.orders import Order


def same_as_fit(learner, steps, lr, accumulate):
    """Whether ``ngn.fit`` learns the same sizes with the same steps."""
    other = ngn.learn_sizes(Model(), SIZES, example=X, lambda0=1.0)
    plan = ngn.TrainPlan(steps=steps, lr=lr, lr_boundary=0.2, accumulate=accumulate)
    batches = [(X[n : n + 16], X[n : n + 16].sin()) for n in range(0, 64, 16)]

    def loss(model, batch):
        return model(*batch)["loss"]

    ngn.fit(other, batches, None, loss, plan, progress="never")
    return torch.allclose(learner.size(), other.size(), atol=1e-4)


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
    assert same_as_fit(learner, 40, 1e-3, accumulate)


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
