"""Commands that cannot run are refused before any job starts, with a message that suggests a correction."""

from contextlib import nullcontext

import pytest

from experiments.cli import app, expand, machine, rewrite
from experiments.config.compose import compose
from experiments.core.blocks import ConfigError

REFUSED = {
    # misspelt keys and choices: suggest the nearest legal name
    "task=mnsit": "no such task. Did you mean 'mnist'?",
    "taks=mnist": "unknown key 'taks'. Did you mean 'task'?",
    "study=depth": "python scripts/sweep.py run depth",
    "task=mnist gate=con": "Did you mean 'conv'?",
    "schedule={a:1}": "schedule: must be one of: ",
    "experiment=price": "experiment=price: must be one file of conf/experiment: ",
    "seed=tne": "Did you mean 'ten'?",
    "schedule.lamda0=1": "Did you mean 'schedule.lambda0'?",
    "lr=1e-3": "Did you mean 'train.lr'?",
    "batch_size=3": "Did you mean 'train.batch'?",
    "method.price=1": "unknown key 'method.price'. It is a setting of method=l0",
    "channels=[3]": "Did you mean 'gate.channels' (a setting of gate=conv)?",
    "method.name=l0": "write method=...",
    "train.lr_shape={knd:linear}": "Did you mean 'train.lr_shape.kind'?",
    "method=fixed method.count=x": "method.count: must be a whole number or must be a list",
    "phases=[grown,fxed]": "phases.1: must be 'grown', 'fixed' or 'from_high' (given: 'fxed')",
    "+train.clip=1": "remove the '+'",
    "~train.clip": "cannot be removed",
    "device=gpu": "'auto', 'cpu' or 'cuda'",
    "foo": "key=value",
    # pairs
    "task=mnist gate=gcn": "the gates that fit are: mlp, conv",
    "task=mnist,cora": "no gate fits all of these tasks",
    "task=mnist,cifar10 gate=mlp,conv": "gate=mlp does not fit task=cifar10",
    "setting=cora-gcn": "task= and gate= determine the setting",
    "task@model=mnist": "'@' is not available",
    # seeds
    "seed=9..0": "reversed; write 0..9",
    "seed=-1": "seeds start at 0",
    "seed=1.5": "seed=1.5: '1.5' is neither a seed",
    "seed=range(0,4,0)": "step of 0",
    "seed=0,2,1..2": "seed 2 occurs twice",
    "seed.value=shuffle(1,2)": "written order",
    "seed": "seed=0..9",
    "+seed=3": "without a prefix",
    "seed=0..9 seed.value=3": "given twice",
    "seed.set=0..9": "seed=0..9",
    # rows
    "rows=1,2": "every row is a block of settings: rows={",
    "rows={seed:0},{seed:1}": "give seed= beside rows=, not in a row",
    "rows={gate.t0:1},{gate.t0:2} gate.t0=3": "gate.t0 is given twice",
    "rows={gate.t0:1},{gate.tt:2}": "unknown key 'gate.tt'",
    "schedule={lambda0:1},{lambda0:2}": "To vary several settings together, type rows={",
    "tag=a=b": """and all of it for the shell: 'tag="a=b"'""",
    # the same run twice
    "schedule.lambda0=1e-4,0.0001": "duplicate jobs: 'schedule.lambda0=0.0001' and 'schedule.lambda0=0.0001'",
    "train.lr=1 train.lr=2": "train.lr is given twice",
    # numbers
    "schedule.lambda0=nan": "schedule.lambda0: must be a finite number",
    "schedule.lambda0=-1e-4": "schedule.lambda0: must be at least 0",
    "schedule.lambda0=1e-4,-1e-4": "(in the job with schedule.lambda0=-0.0001)",
    "schedule.alpha_shape.start=0.9 schedule.alpha_shape.full=0.2": "before its end, not at 0.9 with the end at 0.2",
    "task=tinystories task.evaluations=301": "task.evaluations: must be at most 300",
    "gate.t0=40": "beyond the K = 32 candidates",
    "train.lr=range(0,inf)": "finite",
    "train.lr=interval(0,1)": "interval",
    "schedule=glob(z*)": "matches no choice",
    "task=gsm8k model=local model.path=/x model.file=../../x.gguf": "must be the name of a file in model.path",
    "tag=a/b": "tag: must have the form",
    # missing or impossible things
    "task=mnist gate=conv gate.K=60000": "60,000 components with open gates need at least",
    "method=fixed gate.K=null method.count=1000000000": "lower method.count",
    "task=cora data_root=empty seed=98765..98766": "cora: ind.cora.x is not in",
    "engine=fused gate.width=65": "engine=fused: the compiled kernels support blocks of at most 64 units",
    "engine=fused method=fixed method.count=3 train.batch=32": "full batches",
    "profile=smoke method=budget method.parameters=1": "the smallest model has",
    "profile=smoke method=budget method.macs=50%": "does not count multiply-adds; use method.parameters",
    "results=": "results: the name of the folder is empty",
    # methods, budgets, orders and models that cannot work together
    "task=cora model=llama3_8b": "task=cora adapts no pretrained model",
    "task=gsm8k model=none": "add one, such as model=smollm2_135m",
    "task=gsm8k profile=smoke model=llama3_8b": "has its own small model",
    "task=gsm8k model=local": "model.path=FOLDER",
    "task=gsm8k method=uniform": "add method.like=RUN_ID",
    "task=gsm8k method=uniform method.target=961": "exceeds the 960 candidates",
    "task=cora method=base": "task=cora has none",
    "task=gsm8k gate.targets=[q,q]": "must not name a map twice",
    "task=gsm8k gate.K=null": "needs a preset gate.K",
    "method=l0 gate.K=null": "gate.K=null needs a boundary that advances; method=l0",
    "method=awnn gate.K=null": "method=awnn needs a preset gate.K",
    "method=l0 phases=[grown,from_high]": "remove from_high from phases",
    "method=decay phases=[grown,from_high] method.boundary=false": "remove from_high from phases",
    "method=awnn method.width=33.0": "method.width=33 exceeds the gate.K=32",
    "method=decay method.learn_r=false": "is method=ngn: use that",
    "method=decay method.learn_r=false method.boundary=false": "use method=fixed",
    "method=decay gate.r=1.0": "must be below 1",
    "method=decay method.normalise=true train.batch=64": "needs full batches",
    "method=decay method.boundary=false schedule.commit=0.9 phases=[grown]": "no boundary that schedule",
    "method=l0 method.stretch_low=0.1": "method.stretch_low",
    "method=budget": "a budget needs its size",
    "method=budget method.count=2 method.macs=50%": "a budget is one of",
    "method=budget method.count=2 schedule.commit=null": "schedule.commit",
    "method=budget method.count=2 continue_with=[0.1]": "no price",
    "method=budget method.count=[2,2]": "method.count=N",
    "method=budget method.parameters=half": "method.parameters",
    "method=budget method.parameters=150%": "limits nothing",
    "method=budget method.parameters=50% gate.K=null": "needs a largest model",
    "continue_with=[1,1.0]": "continue_with must not contain a factor twice",
    "continue_with=[0]": "continue_with",
    "method=l0 continue_with=[10]": "method=l0 has no price schedule.lambda0",
    "method=decay continue_with=[10] method.boundary=false": "has no price",
    "gate.order=random": "gate.order: must be",
    "method=l0 gate.order=power": "method=l0 does not support gate.order=power",
    "gate.order=annealed gate.order_exponent=2.0": "gate.order_exponent is for",
    "gate.order=annealed gate.order_ranks=[1,2]": "gate.order_ranks are for",
    "gate.order=matryoshka gate.K=null phases=[grown]": "needs its gate.order_ranks",
    "task=mnist gate=conv gate.K=null": "from_high",
    "task=cora gate.K=null phases=[grown]": "weight_decay",
    "gate.K=null gate.t0=2000.0": "K_max = 1024",
    # too many jobs, refused without listing them
    "seed=0..999999999": "more than 1,000,000 seeds",
    "seed=0..99 train.lr=range(1,102)": "the command has 10,100 jobs",
    "seed.value=range(0,1000000000000) allow_many_jobs=true": "exceed the limit of 1,000,000",
    # too large sizes, and engines without support for the run
    "gate.K=1000000": "gate.K: must be at most 65536",
    "gate.K=null gate.K_max=3 phases=[grown]": "allocates 10 components before the first step",
    # finished modules, layers and latents
    "task=cifar10 gate=conv method=magnitude": "makes a finished module smaller, and gate=conv has none",
    "task=cifar10 gate=conv limit.macs=50%": "use method=budget method.macs=50%",
    "task=cifar10 gate=channels method=l0": "the methods that fit are: ",
    "task=cifar10 gate=channels limit.parameters=50%": "set the other to null",
    "task=cifar10 gate=channels limit.macs=150%": "limits nothing",
    "task=cifar10 gate=channels phases=[grown,from_high]": "remove from_high",
    "task=cifar10 model=resnet20 method=width": "a given one has one width",
    "task=cifar10 model=resnet20 task.split=validation": "has seen the validation images",
    "task=cifar10 gate=channels method=front method.teacher=true limit.macs=50%": "the module that was given: add a",
    "task=cifar10 model=timm": "add one, such as model.constructor=resnet18",
    "task=cifar10 model=timm model.constructor=x method=morphnet": "needs a network of the suite",
    "task=wikitext2 model=timm model.constructor=x": "use task=cifar10 gate=channels",
    "task=cifar10 gate=conv model=resnet20": "use gate=channels",
    "task=twist method=fixed method.count=3": "10 ordered group(s): use method.count=[N,N,...] with 10",
    "task=twist method=fixed method.count=[11,1,1,1,1,1,1,1,1,1]": "exceeds the gate.K=10",
    "task=twist method=fixed method.count=[0,1,1,1,1,1,1,1,1,1]": "needs gate.delta=-0.5",
    "task=twist gate=chain schedule.lambda0_last=1e-3": "several boundaries",
    "task=twist schedule.lambda0_last=1e-3 schedule.lambda0=0": "lambda0=0",
    "task=manifold gate.K=null": "closed latents carry noise",
    "task=manifold train.batch=null": "new points at every step",
    "task=manifold task.D=17": "do not fit",
    "task=cora gate.kinds={heads:{K:3}}": "all its groups are alike",
    # no value may name code
    "hydra/output=../../evil/a": "the choices of hydra/output are: default",
    "--help hydra/help=../evil": "the choices of hydra/help are: default, ngn",
    "--cfg job hydra/launcher=../evil": "the choices of hydra/launcher are: basic",
    "hydra.launcher.n_jobs=2": "hydra/launcher=pack has no setting 'n_jobs'; it has none",
    "hydra/launcher=submitit_local hydra.launcher.partition=x": "submitit_local has no setting 'partition'",
    "train._target_=os.system": "'_target_' is not allowed",
    "hydra.launcher._target_=os.system": "'_target_' is not allowed",
    "+x={a:[{_target_:os.system}]}": "'_target_' is not allowed",
    "hydra.callbacks.x=1": "callbacks are not allowed",
    "hydra.job_logging.handlers.console.class=os.system": "can name code to run",
    "hydra.searchpath=[pkg://os]": "can name code to run",
    "hydra.launcher.x=${oc.create:{}}": "can name code to run",
    "hydra.sweeper.params={train.lr:1}": "type the values as settings",
    "hydra.sweeper.custom_search_space=os.system": "can name code to run",
    "hydra.job.chdir=true": "relative to the working directory",
    "hydra.mode=MULTIRUN": "add -m",
    "hydra.verbose=true,false": "cannot be swept",
    "results=${oc.env:HOME}": "references to other keys",
    "--config-dir nowhere": "there is no folder",
    "--experimental-rerun x.pickle": "not available",
    "--run seed=0..3": "remove --run",
    "--list task=mnist": "--list: takes no other arguments",
    "--lst": "--lst: no such flag. Did you mean '--list'? The flags are: --help, --list,",
    "--cfg=jobs": "--cfg/-c: invalid choice: 'jobs' (choose from",
    "--cfg job --info": "together",
    "--cfg job train.lr=-1": "train.lr: must be greater than 0",
}


@pytest.mark.parametrize("command", REFUSED)
def test_refused_with_one_message(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    monkeypatch.setenv("NGN_CONF", "")  # --config-dir sets it
    monkeypatch.setattr(app, "start", lambda session: pytest.fail("Hydra was started"))
    assert app.main(command.split(" ")) == 2
    shown = capsys.readouterr()
    assert REFUSED[command] in shown.err
    assert shown.err.startswith("refused: ")
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


def test_cuda_is_refused_where_there_is_none(monkeypatch, capsys):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert app.main(["device=cuda"]) == 2
    assert "no CUDA device" in capsys.readouterr().err
    started = []
    monkeypatch.setattr(app, "start", lambda session: lambda: started.append(session))
    # a cluster launcher starts jobs on other machines
    assert app.main(["device=cuda", "hydra/launcher=submitit_slurm"]) == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert app.main(["device=cuda"]) == 0
    assert len(started) == 2


def test_a_network_that_cannot_take_the_images_is_refused(monkeypatch, capsys):
    from torch import nn

    def make(name, num_classes, weights):
        return nn.Conv2d(3, num_classes, 64)

    monkeypatch.setattr("experiments.tasks.images.task.maker_of", lambda model: make)
    words = "task=cifar10 model=torchvision model.constructor=deep method=magnitude limit.macs=50% profile=smoke"
    assert app.main(words.split()) == 2
    told = capsys.readouterr().err
    assert told.startswith("refused: model.constructor=deep: cannot classify images of 32 x 32 pixels (")


def test_the_traceback_is_shown_on_request(monkeypatch, capsys):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert app.main(["task=mnsit"]) == 2
    assert "Traceback" in capsys.readouterr().err


ACCEPTED = {
    "": ([], 1),
    "task=cifar10 gate=conv seed=0..9": (["--multirun", "task=cifar10", "gate=conv", "seed.value=range(0,10)"], 10),
    "seed=3": (["seed.value=3"], 1),
    "train.steps=1e3": (["train.steps=1e3"], 1),
    "seed=0,2,5..7": (["--multirun", "seed.value=0,2,5,6,7"], 5),
    "seed=ten": (["--multirun", "seed.value=range(0,10)"], 10),
    "seed=one,20..21": (["--multirun", "seed.value=0,20,21"], 3),
    "seed.value=1,2 -m": (["--multirun", "seed.value=1,2"], 2),
    "task=cora": (["task=cora", "gate=gcn"], 1),
    "task=mnist,cifar10": (["--multirun", "task=mnist,cifar10", "gate=conv"], 2),
    "task=mnist gate=mlp,conv seed=0..1": (["--multirun", "task=mnist", "gate=mlp,conv", "seed.value=range(0,2)"], 4),
    "schedule.lambda0=range(0,1,0.25)": (["--multirun", "schedule.lambda0=range(0,1,0.25)"], 4),
    "schedule=glob(beta*)": (["--multirun", "schedule=glob(beta*)"], 2),
    "task=cifar10 gate.channels=[8,8],[4]": (["--multirun", "task=cifar10", "gate.channels=[8,8],[4]", "gate=conv"], 2),
    "hydra.run.dir=x hydra.sweeper.max_batch_size=2": (["hydra.run.dir=x", "hydra.sweeper.max_batch_size=2"], 1),
    "hydra.verbose=true": (["hydra.verbose=[experiments,ngn]"], 1),
    "--cfg job seed=0..9": (["--cfg", "job", "seed.value=0"], 0),
    "-m --cfg job task=mnist gate=conv,mlp": (["--cfg", "job", "task=mnist", "gate=conv"], 0),
    "--cfg job method=fixed --resolve": (["--cfg", "job", "--resolve", "method=fixed"], 0),
    "--info defaults task=cora": (["--info", "defaults", "task=cora", "gate=gcn"], 0),
    "--help seed=3": (["--help"], 0),
    "--hydra-help": (["--hydra-help"], 0),
    "-sc install=bash": (["-sc", "install=bash"], 0),
}


@pytest.mark.parametrize("command", ACCEPTED)
def test_hydra_gets_the_rewritten_command(command):
    rewritten, configs = app.prepare(command.split())
    assert (rewritten, len(configs)) == ACCEPTED[command]


@pytest.mark.slow
def test_many_jobs_need_permission(monkeypatch):
    monkeypatch.setattr(expand, "MAX_JOBS", 20)
    with pytest.raises(ConfigError, match="allow_many_jobs=true"):
        app.prepare(["seed=0..20"])
    assert len(app.prepare(["seed=0..20", "allow_many_jobs=true"])[1]) == 21


def test_a_seed_file_without_a_set_is_named(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("seed: {value: 3}\n")
    monkeypatch.setattr(rewrite, "options", lambda group: {"mine": tmp_path / "mine.yaml"})
    with pytest.raises(ConfigError, match=r"mine\.yaml: write a set of seeds as"):
        rewrite.seeds_of("mine")


@pytest.mark.parametrize(
    ("flags", "refused"), [("sse2 avx512f", True), ("sse2 avx512_bf16", False), ("Features: asimd", False)]
)
def test_bfloat16_needs_a_processor_that_has_it(tmp_path, monkeypatch, flags, refused):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    machine.CPUINFO.write_text(flags)
    config = compose({"task": "mnist"}, {"train.autocast": "bf16", "device": "cpu"})
    with pytest.raises(ConfigError, match="no instructions for bfloat16") if refused else nullcontext():
        machine._device(config)
