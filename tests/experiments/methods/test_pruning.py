"""Finished modules made smaller: every method keeps its limit, resumes bit by bit, and is refused in words."""

import json

import pytest
import torch
from safetensors.torch import save_file
from stopping import resumed

from experiments.cli.app import prepare
from experiments.cli.machine import check_packages
from experiments.config.compose import compose
from experiments.config.identity import run_id
from experiments.core.blocks import ConfigError
from experiments.data import DataError
from experiments.methods import METHODS
from experiments.methods.pruning import published
from experiments.methods.pruning.cutting import ModuleRun, at_the_cut
from experiments.models.trainer import StudyTrainer
from experiments.runs import launch
from experiments.runs.models import load_model
from experiments.runs.phases import learner_of, plan_of
from experiments.runs.stack import Stack
from experiments.tasks import make_task
from experiments.tasks.images.task import shifted

CPU = torch.device("cpu")
GATE = {"cifar10": "channels", "tinystories": "units", "wikitext2": "neurons"}
FIT = {
    "cifar10": ("ngn", "dense", "given", "width", "even", "magnitude", "morphnet", "bar", "gradual", "front"),
    "tinystories": ("ngn", "even", "width", "magnitude", "bar", "front"),
    "wikitext2": ("magnitude", "wanda", "minitron", "sheared"),
}


def configuration(task, method, **changes):
    """A smoke run of eight steps on the smallest module of a task, with a fourth of its parameters."""
    size = {"cifar10": {"gate.blocks": 1}, "tinystories": {"gate.width": 16, "task.context": 16}}.get(task, {})
    limit = {"limit.parameters": "50%", "limit.macs": None}
    more = {"train.steps": 8, "train.batch": 4, "progress": "never", **size, **limit, **changes}
    return compose({"task": task, "gate": GATE[task], "method": method, "profile": "smoke"}, more)


def recorded(config):
    """Train; return the record and its file."""
    (outcome,) = launch.launch([config])
    return json.loads(outcome.path.read_text()), outcome.path


def work_of(task, method, **changes):
    config = configuration(task, method, **changes)
    return ModuleRun(config, make_task(config, CPU))


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("task", FIT)
def test_every_method_is_recorded_within_its_limit(task, tmp_path):
    if task == "wikitext2":
        pytest.importorskip("transformers")
    for method in FIT[task]:
        record, _ = recorded(configuration(task, method, results=str(tmp_path)))
        (phase,) = record["phases"].values()
        parameters = phase["parameters"]
        if METHODS[method].cuts:
            assert phase["budget"]["kind"] == "parameters"
            assert phase["budget"]["cost"] == parameters["deployed"] <= phase["budget"]["limit"]
            assert parameters["deployed"] < parameters["candidate"]
        else:
            assert parameters["deployed"] == parameters["candidate"]
            assert "budget" not in phase
        assert len(phase["count"]) == configuration(task, method).gate.groups


@pytest.mark.slow(seconds=20)
def test_learned_sizes_are_trained_from_scratch_in_the_fixed_phase(tmp_path):
    changes = {"phases": ["grown", "fixed"], "save": "deployed"}
    record, path = recorded(configuration("cifar10", "ngn", results=str(tmp_path), **changes))
    grown, fixed = record["phases"]["grown"], record["phases"]["fixed"]
    assert grown["parameters"] == fixed["parameters"]
    for phase in ("grown", "fixed"):
        model = load_model(path, phase)
        assert sum(p.numel() for p in model.parameters()) == fixed["parameters"]["deployed"]


def test_torch_pruning_is_within_its_limit():
    pytest.importorskip("torch_pruning")
    for task, changes in (("cifar10", {"method.sparsity": 1.0}), ("tinystories", {"method.ranking": "local"})):
        work = work_of(task, "torch_pruning", **changes)
        staged = published.torch_pruning(work)
        staged.set_progress(0.5)
        assert staged.shrink()
        assert 0.3 * work.cost(work.module()) < work.cost(staged.model) <= work.within


@pytest.mark.parametrize("method", ["magnitude", "bar"])
@pytest.mark.parametrize("stop", [2, 6])
def test_a_training_resumes_bit_by_bit_before_and_after_its_cut(method, stop, tmp_path):
    config = configuration("tinystories", method)

    def trainer(**settings):
        task, stack = make_task(config, CPU), Stack.of(config)
        learner, batches = learner_of(stack, task), task.batches(config.train, 0)
        plan = plan_of(stack, task.samples(config.train))
        return StudyTrainer(learner, batches, task.loss, plan, progress="never", shrink=True, **settings)

    resumed(trainer, tmp_path, stop)


def test_no_step_follows_a_cut_at_the_end():
    work, done, cuts = work_of("tinystories", "magnitude", **{"method.at": 1.0}), [], []
    learner = at_the_cut(work, lambda module: cuts.append(len(done)) or module)
    batches, plan = work.task.batches(work.config.train, 0), plan_of(Stack.of(work.config), 1)
    StudyTrainer(learner, batches, work.task.loss, plan, progress="never", shrink=True, on_step=done.append).fit()
    assert cuts == [8] == done[-1:]


def test_a_model_to_make_smaller_chooses_its_gate_and_is_trained_from_its_cut():
    _, jobs = prepare(
        ["task=cifar10", "model=resnet56", "method=ngn,magnitude,torch_pruning", "limit.macs=50%", "seed=0..4"]
    )
    assert len(jobs) == 15
    config = jobs[5].run.config
    assert (config.gate.component, config.gate.groups, config.train.steps) == ("channels", 27, 1053)
    assert config.method.cut_at(config) == 0


def test_a_front_may_have_the_given_module_as_its_teacher():
    config = configuration("cifar10", "front")
    task, method = make_task(config, CPU), config.method
    taught = method.model_copy(update={"teacher": True}).loss(config, task)
    assert method.loss(config, task) == task.loss == taught.loss
    assert all(map(torch.equal, taught.teacher.state_dict().values(), task.module(0).state_dict().values()))


def test_weights_of_a_constructed_module_name_its_run_and_move_its_cut():
    made = {"task": "cifar10", "model": "torchvision", "method": "magnitude"}
    new, given = (
        compose(made, {"model.constructor": "resnet18", "model.path": path}) for path in (None, "a.safetensors")
    )
    assert run_id(new) != run_id(given)
    assert [config.method.cut_at(config) for config in (new, given)] == [0.5, 0.0]


def constructed(name, method, **changes):
    """A smoke run of eight steps on a small module of timm."""
    more = {"train.steps": 8, "train.batch": 4, "progress": "never", "limit.macs": "60%", "model.constructor": name}
    return compose({"task": "cifar10", "model": "timm", "method": method, "profile": "smoke"}, more | changes)


@pytest.mark.slow(seconds=60)
def test_a_constructed_module_is_cut_from_weights_that_were_given(tmp_path):
    pytest.importorskip("timm")
    task = make_task(constructed("test_efficientnet", "magnitude"), CPU)
    file = tmp_path / "given.safetensors"
    save_file(task.module(3).state_dict(), file)
    changes = {"model.path": str(file), "save": "deployed", "results": str(tmp_path)}
    record, path = recorded(constructed("test_efficientnet", "magnitude", **changes))
    grown = record["phases"]["grown"]
    assert grown["budget"]["cost"] <= grown["budget"]["limit"]
    assert record["base"]["name"] == "given"
    assert "timm" in record["packages"]
    parameters = sum(p.numel() for p in load_model(path, "grown").parameters())
    assert parameters == grown["parameters"]["deployed"] < grown["parameters"]["candidate"]


def test_what_a_package_cannot_construct_is_refused_in_words(tmp_path):
    pytest.importorskip("timm")
    with pytest.raises(ConfigError, match="timm has no such classifier of images; near names: test_resnet"):
        check_packages(constructed("test_resnat", "magnitude"))
    (tmp_path / "none.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="does not hold weights of test_resnet with 10 classes"):
        make_task(constructed("test_resnet", "magnitude", **{"model.path": str(tmp_path / "none.safetensors")}), CPU)


def test_a_missing_package_is_refused_with_its_extra(monkeypatch):
    monkeypatch.setattr("experiments.tasks.images.task.missing", lambda package: package)
    with pytest.raises(ConfigError, match=r"model=timm needs the package timm: pip install -e '.\[zoo\]'"):
        check_packages(constructed("resnet18", "magnitude"))


def test_the_limit_names_a_run_and_prices_do_not():
    def id_of(method, **changes):
        return run_id(configuration("cifar10", method, **changes))

    for method in ("ngn", "magnitude"):
        assert id_of(method) == id_of(method, **{"schedule.lambda0": 1.0, "gate.t0": 0.5})
        assert id_of(method) != id_of(method, **{"limit.parameters": "51%"})
    assert id_of("dense") == id_of("dense", **{"limit.parameters": "51%"})


def test_sizes_of_the_transformer_part_on_held_out_text():
    config = configuration("tinystories", "ngn", **{"schedule.commit": 0.5})
    task = make_task(config, CPU)
    learner = learner_of(Stack.of(config), task)
    StudyTrainer(
        learner, task.batches(config.train, 0), task.loss, plan_of(Stack.of(config), 1), held_out=task.held_out,
        progress="never", shrink=True,
    ).fit()  # fmt: skip
    assert learner._held_out, "the text is asked where it can still confirm"


def test_images_are_moved_by_at_most_four_pixels():
    pixels = torch.randint(1, 256, (40, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    after = shifted(pixels)
    assert after.dtype == torch.uint8
    padded = torch.zeros(40, 3, 16, 16, dtype=torch.uint8)
    padded[:, :, 4:12, 4:12] = pixels
    crops = padded.unfold(2, 8, 1).unfold(3, 8, 1)
    same = (crops == after[:, :, None, None]).all(-1).all(-1).all(1).flatten(1)
    assert same.sum(1).tolist() == [1] * 40
    assert len(same.int().argmax(1).unique()) > 20


def test_the_barrier_of_bar():
    barrier = published.barrier
    assert barrier(0.3, 0.5, 0.5) == 0.0, "well within the budget"
    assert barrier(1.0, 0.5, 0.0) < barrier(1.0, 0.5, 0.5) == 1e10, "the limit of the moment has passed the cost"
    b = 0.5 * 1.01 + 0.5 * 0.5  # half-way, by symmetry
    a = 0.5 - 1.01e-4
    v = (0.6 - a) / (b - a)
    assert barrier(0.6, 0.5, 0.5) == pytest.approx(v**2 / (1 - v))


def cut_of(staged, prepare):
    """What is left of a module that ``prepare`` has changed, at the time of the cut."""
    with torch.no_grad():
        prepare(staged.model)
    staged.set_progress(0.9)
    assert staged.shrink()
    return staged.model


def test_morphnet_keeps_the_channels_of_large_scales():
    """As many channels of a block as are alive, times one factor."""
    alive = {"layer1.0": [3, 5, 7, 11], "layer2.0": [0, 1], "layer3.0": [2]}

    def scale(model):
        for name, rows in alive.items():
            weight = model.get_submodule(name).bn1.weight
            weight.fill_(1e-3)
            weight[rows] = 1.0

    small = cut_of(published.morphnet(work_of("cifar10", "morphnet")), scale)
    kept = {name: small.get_submodule(name).bn1.weight for name in alive}
    assert [len(kept[name]) for name in alive] == [16, 8, 4] or len(kept["layer1.0"]) > len(kept["layer2.0"])
    for name, rows in alive.items():
        assert int((kept[name] == 1.0).sum()) == len(rows), "those alive stay"


@pytest.mark.parametrize("method", ["minitron", "wanda"])
def test_orders_by_activations_keep_the_units_that_are_large(method):
    pytest.importorskip("transformers")
    work = work_of("wikitext2", method, **{"limit.parameters": "25%"})
    seen = {}

    def enlarge(model):
        for number, layer in enumerate(model.model.layers):  # the last twelve of 48 units
            layer.mlp.up_proj.weight[-12:] *= 100
            seen[number] = layer.mlp.up_proj.weight[-12:].clone()

    small = cut_of(getattr(published, method)(work), enlarge)
    for number, layer in enumerate(small.model.layers):
        assert {tuple(row) for row in layer.mlp.up_proj.weight.tolist()} == {
            tuple(row) for row in seen[number].tolist()
        }


def test_a_layer_whose_gates_have_all_closed_keeps_one_unit():
    work = work_of("cifar10", "bar")
    small = cut_of(published.bar(work), lambda model: model.axes[0].capacity.log_alpha.fill_(-4.0))
    assert work.cost(small) <= work.within
    assert min(work.task.counts(small)) == 1
