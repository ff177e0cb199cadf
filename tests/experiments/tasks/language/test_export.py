"""Export to peft and to adapter files; terms of the maps that are one in GPT-NeoX; whole folders; the script."""

import dataclasses
import resource
import runpy
import signal

import pytest
import torch
from faulty import child
from safetensors.torch import save_file
from torch import nn

import ngn
from experiments.cli import app
from experiments.core.paths import ROOT
from experiments.models.adapter import attach_adapters
from experiments.tasks.language import export
from experiments.tasks.language.base import byte_tokenizer, tiny_base
from experiments.tasks.language.export import SUMS, check_sums, new_folder
from experiments.tasks.language.fused import FUSED, SplitMap, join_maps
from ngn.components.low_rank import attach_low_rank
from ngn.cut.truncation import deploy

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
IDS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
COMMON = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
          "num_attention_heads": 4, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}  # fmt: skip


def base(kind):
    with torch.random.fork_rng():
        torch.manual_seed(4)
        if kind == "llama":
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **COMMON))
        else:
            model = transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**COMMON))
        return model.requires_grad_(False).eval()


TARGETS = {
    "llama": [f"model.layers.{i}.self_attn.{part}_proj" for i in range(3) for part in "qv"],
    "neox": [f"gpt_neox.layers.{i}.attention.query_key_value" for i in range(3)],  # q, k and v of each head in one map
}
LAYERS = {"llama": "model.layers", "neox": "gpt_neox.layers"}


def with_terms(model, targets, counts):
    """The model with as many low-rank terms as ``counts`` says, and none of them zero."""
    attach_low_rank(model, targets, lambda n: ngn.CountGate(4, t0=counts[n] + 0.1, delta=-0.5, r=0.5), seed=1)
    source = torch.Generator().manual_seed(5)
    for name in targets:
        up = model.get_submodule(name).up
        up.data.copy_(torch.randn(up.shape, generator=source))
    return deploy(model, share_frozen=True)


def deployed(kind, counts):
    return with_terms(base(kind), TARGETS[kind], counts)


COUNTS = {"llama": [2, 0, 1, 4, 0, 3], "neox": [0, 3, 1]}


def test_an_empty_allocation_is_a_note(tmp_path):
    small = deployed("llama", [0] * 6)
    assert export.write_peft(small, tmp_path, "the/base") == {}
    assert [path.name for path in tmp_path.iterdir()] == [export.EMPTY]
    assert export.check_peft(tmp_path, base("llama"), small, IDS) == 0.0
    export.write_peft(deployed("llama", COUNTS["llama"]), tmp_path, "the/base")
    assert not (tmp_path / export.EMPTY).exists()


def test_terms_that_were_not_trained_are_not_written(tmp_path):
    small = deployed("llama", COUNTS["llama"])
    small.get_submodule(TARGETS["llama"][0]).up.data.zero_()
    with pytest.raises(export.ExportError, match="were not trained"):
        export.write_peft(small, tmp_path, "the/base")


def test_what_peft_reads_otherwise_is_found(tmp_path):
    small, model = deployed("llama", COUNTS["llama"]), base("llama")
    export.write_peft(small, tmp_path, "the/base")
    model.model.norm.weight.data *= 2.0
    with pytest.raises(export.ExportError):
        export.check_peft(tmp_path, model, small, IDS)


@pytest.mark.parametrize("kind", COUNTS)
def test_adapters_are_read_back(kind, tmp_path):
    model, counts = base(kind), [2, 0, 1]
    layers = [f"{LAYERS[kind]}.{i}" for i in range(3)]
    gate = lambda n: ngn.CountGate(4, t0=counts[n] + 0.1, delta=-0.5)  # noqa: E731
    attach_adapters(model, layers, 16, gate, seed=1, width=3)
    for name in layers:
        nn.init.normal_(model.get_submodule(name).up)
    small = deploy(model, share_frozen=True)
    assert export.write_adapters(small, tmp_path, "the/base") == {layers[0]: 6, layers[2]: 3}
    again = export.load_adapters(base(kind), tmp_path)
    assert torch.equal(again(input_ids=IDS).logits, small(input_ids=IDS).logits)
    nothing = base(kind)
    export.write_adapters(nothing, tmp_path, "the/base")
    assert torch.equal(export.load_adapters(base(kind), tmp_path)(input_ids=IDS).logits, nothing(input_ids=IDS).logits)


@pytest.fixture
def neox():
    model = base("neox")
    for name, p in model.named_parameters():  # transformers starts them at zero
        if name.endswith("bias"):
            p.data.copy_(torch.linspace(-1, 1, len(p)))
    return dataclasses.replace(tiny_base(torch.device("cpu")), model=model)


@torch.no_grad()
def test_maps_that_are_taken_apart_compute_the_same(neox):
    apart = neox.taken_apart()
    assert apart.maps(("q",)) == [f"gpt_neox.layers.{n}.attention.{FUSED}.q" for n in (0, 1, 2)]
    expected = neox.model(IDS).logits
    torch.testing.assert_close(apart.model(IDS).logits, expected, rtol=1e-6, atol=1e-6)
    again = join_maps(apart.shared_copy())
    assert again.state_dict().keys() == neox.model.state_dict().keys()
    assert all(torch.equal(again.state_dict()[name], value) for name, value in neox.model.state_dict().items())
    assert not any(isinstance(part, SplitMap) for part in neox.model.modules())  # the base itself stays


def test_models_without_fused_maps_stay_themselves():
    base = tiny_base(torch.device("cpu"))
    assert base.taken_apart() is base


def test_stock_peft_reads_the_terms_as_those_of_one_map(neox, tmp_path):
    apart = neox.taken_apart()
    small = with_terms(apart.shared_copy(), apart.maps(("q", "k", "v")), [2, 0, 1, 0, 3, 0, 0, 0, 0])
    ranks = export.write_peft(small, tmp_path, "the/base")
    assert list(ranks.values()) == [3, 3]
    assert export.check_peft(tmp_path, apart.shared_copy(), small, IDS) < 1e-6


RUNS = {
    "ngn": (["gate=lora", "phases=[grown]", "gate.t0=2.2"], "with peft logits differ by"),
    "adalora": (["gate=lora", "method=adalora", "method.target=3"], "3 terms"),
    "adapter": (["gate=adapter", "phases=[grown]", "gate.t0=2.2"], "units behind"),
    "uniform": (["gate=lora", "method=uniform", "method.target=3"], "3 terms"),
    "prune": (["gate=prune", "gate.target=both"], "parameters of 23,744; read back"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_exported(name, tmp_path, monkeypatch, capsys):
    words, expected = RUNS[name]
    line = ["task=wikisql_easy", "profile=smoke", "progress=never", "save=deployed", f"results={tmp_path}/results"]
    folders = [f"hydra.sweep.dir={tmp_path}/multirun", f"hydra.run.dir={tmp_path}/run"]
    monkeypatch.setattr("sys.argv", ["run.py"])
    assert app.main([*line, *words, *folders]) == 0
    (record,) = (tmp_path / "results").rglob("*.json")
    modes = {path.stat().st_mode for path in record.parent.iterdir()}
    assert len(modes) == 1, "models can be read by whom records can"
    export = runpy.run_path(str(ROOT / "scripts" / "export_model.py"))["main"]
    capsys.readouterr()
    out = tmp_path / "out"
    assert export([str(record), str(out)]) == 0
    said = capsys.readouterr().out
    assert expected in said
    assert ("with peft logits differ by" in said) == (name not in ("adapter", "prune"))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    if name == "prune":
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= before.keys()
    else:
        assert {path.suffix for path in out.iterdir()} == {".json", ".safetensors", ""}
    assert export([str(record), str(out)]) == 2, "an export must not mix with another"
    assert "out: exists and is not an empty folder" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert export([str(tmp_path / "none.json"), str(out)]) == 2


def test_a_folder_has_its_name_once_all_is_there(tmp_path):
    with new_folder(tmp_path / "deep" / "out") as folder:
        (folder / "a").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["out"]
    assert sorted(path.name for path in (tmp_path / "deep" / "out").iterdir()) == [SUMS, "a"]
    check_sums(tmp_path / "deep" / "out")


WRITERS = {
    "safetensors": lambda folder: save_file({"a": torch.zeros(9999)}, folder / "x.safetensors"),
    "tokenizers": lambda folder: byte_tokenizer().save_pretrained(folder),
    "python": lambda folder: (folder / "x").write_bytes(bytes(9999)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_full_disk_is_named_and_leaves_nothing(tmp_path, writer):
    def starved():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        try:
            with new_folder(tmp_path / "out") as folder:
                WRITERS[writer](folder)
        except OSError as fault:
            raise SystemExit(7 if str(fault.filename) == str(tmp_path / "out") else 8) from None

    assert child(starved) == 7
    assert not list(tmp_path.iterdir())
