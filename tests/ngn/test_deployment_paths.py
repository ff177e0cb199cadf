"""Soft and deployed models in ``torch.compile``, ``torch.export`` and ONNX."""

import pytest
import torch
from axes import MODELS, K, X, model_of
from learners import LEARNERS
from structures import STRUCTURES, awake

import ngn
from ngn.cut.truncation import deploy

LONGER = torch.cat([X, X.flip(-1)])
"""An input with more samples than the programs are exported with."""


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()


def compiled(model, backend="eager"):
    return torch.compile(model, fullgraph=True, backend=backend)


@pytest.mark.parametrize("method", LEARNERS)
def test_a_compiled_soft_model_follows_its_capacity(method):
    """One graph computes all gates; eager code skips closed ones. The boundary moves here from a few gates to all."""
    bank = awake(STRUCTURES[0].bank(K, 0)).double()
    capacity = LEARNERS[method](None)
    learner = ngn.Learner(ngn.OrderedSum(bank, capacity))
    fast, x = compiled(learner), STRUCTURES[0].x(torch.float64)
    for shift in (-9.0, 0.0, 12.0):
        with torch.no_grad():
            for p in capacity.controllers():
                p.add_(shift)
        learner.set_progress(0.5)
        learner.before_step(0)
        parameters = [p for p in learner.parameters() if p.requires_grad]
        y, wanted = fast(x), learner(x)
        torch.testing.assert_close(y, wanted, rtol=1e-12, atol=1e-12)
        for one, other in zip(
            torch.autograd.grad(y.square().sum(), parameters, allow_unused=True),
            torch.autograd.grad(wanted.square().sum(), parameters, allow_unused=True),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_soft_and_deployed_models_are_one_graph(name):
    learner = ngn.Learner(model_of(name, ngn.CountGate(K, t0=1.2)))
    torch.testing.assert_close(compiled(learner)(X), learner(X), rtol=1e-12, atol=1e-12)
    small = learner.deploy()
    torch.testing.assert_close(compiled(small)(X), small(X), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_generated_code_trains_the_same(monkeypatch):
    """The inductor backend, which cannot read values back to the host."""
    # compiling the headers ahead costs more than one model gains from it
    monkeypatch.setattr(torch._inductor.config, "cpp_cache_precompile_headers", False)
    learner = ngn.Learner(model_of("neurons", ngn.CountGate(K, t0=1.2)))
    got, wanted = compiled(learner, "inductor")(X), learner(X)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    parameters = list(learner.parameters())
    slopes = (torch.autograd.grad(y.square().sum(), parameters) for y in (got, wanted))
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.parametrize("delta", [0.5, -0.5])
def test_programs_of_torch_and_onnx_compute_the_same(delta, tmp_path):
    """With one component on every axis; with none only where ONNX supports the shapes of empty tensors."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    unshaped = ("channels", "heads", "head-bank")
    names = [name for name in MODELS if delta > 0 or name not in unshaped]
    models = [model_of(name, ngn.CountGate(K, t0=0.2, delta=delta)) for name in names]
    small = deploy(torch.nn.Sequential(*models)).float()
    for name in ("a.pt2", "a.onnx"):
        ngn.export(small, tmp_path / name, X.float())
    y = torch.export.load(tmp_path / "a.pt2").module()(LONGER.float())
    torch.testing.assert_close(y, small(LONGER.float()), rtol=1e-5, atol=1e-5)
    program = ReferenceEvaluator(onnx.load(tmp_path / "a.onnx"))
    (y,) = program.run(None, {program.input_names[0]: LONGER.float().numpy()})
    torch.testing.assert_close(torch.from_numpy(y), small(LONGER.float()), rtol=1e-5, atol=1e-5)


def test_impossible_exports_are_refused(tmp_path, monkeypatch):
    model = model_of("neurons", ngn.CountGate(K, t0=1.2))
    small = deploy(model)
    for write, *rest in ((ngn.export, X), (ngn.save,)):
        with pytest.raises(TypeError, match=r"(export|save)\(learner\.deploy\(\)"):
            write(ngn.Learner(model), tmp_path / "a.pt2", *rest)
        with pytest.raises(ValueError, match="deploy it first"):
            write(model, tmp_path / "a.pt2", *rest)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"or \.onnx"):
        ngn.export(small, tmp_path / "a.bin", X)
    with pytest.raises(ValueError, match="two samples or more"):
        ngn.export(small, tmp_path / "a.pt2", X[:1])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install onnx onnxscript"):
        ngn.export(small, tmp_path / "a.onnx", X)
