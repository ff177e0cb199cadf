"""The keys of a record. A record is checked by these classes, and docs/records.md has the text below each key."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

SCHEMA_VERSION: Final = 1
PHASES = {
    "grown": "training that starts at t₀, near zero; runs of other methods have this phase, too",
    "fixed": "a plain model retrained at the count that `grown` retained; the only phase of `method=fixed`",
    "from_high": "training that starts with every candidate open, t = K − 1",
}
BLOCKS = ("task", "gate", "method", "schedule", "train", "phases", "seed", "profile")
"""What every configuration has."""
SCORES = ("truncated", "soft", "gates_kept")
"""The three ways to score a learned model: truncated (gates of one), soft gates, and truncated with its gates kept."""
ERRORS = frozenset({"mse", "nmse", "loss", "nats", "bits_per_character", "perplexity"})
PER_CENT = frozenset({"accuracy", "exact_match", "string_match", "f1", "strict", "flexible", "decimal"})
"""Known scores, whose range is known, too. Those of a task of one's own are any numbers."""


FORBID = ConfigDict(extra="forbid", allow_inf_nan=False)
Natural = Annotated[int, Field(ge=0, le=2**53)]
AtLeastOne = Annotated[int, Field(ge=1, le=2**53)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
SizeValue = Annotated[float, Field(ge=0, le=2**31)]
"""A size before rounding. Models have at most 2**16 components of a group, or grow one by one."""
Share = Annotated[float, Field(ge=0, le=1)]
LeftAndWhole = Annotated[list[Natural], Field(min_length=2, max_length=2)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
PhaseName = Annotated[str, Field(pattern=f"^({'|'.join(PHASES)}|continue_[0-9][0-9pe+-]*)$")]
Scores = Annotated[dict[str, float], Field(min_length=1)]


@with_config(FORBID)
class CostBlock(TypedDict):
    """Cost of one forward pass, on the device and with the threads of the run."""

    samples: AtLeastOne
    """samples in one forward pass; tasks where its cost means nothing have no `cost`"""
    multiply_adds: dict[str, Natural]
    """multiply-adds of the forward pass in matrix products and convolutions, of the `candidate` model with its final
    gates and of the `deployed` model. Gates below 1e-15 cost nothing; after a commit (`schedule.commit`) the candidate
    therefore costs what the deployed model costs"""
    milliseconds: dict[str, Amount]
    """median wall time of the forward pass on the machine of the run, under whatever other load it had"""
    ratios: NotRequired[dict[str, Amount]]
    """for a finished module made smaller: samples (`batch`: all) → time of the `deployed` model over the `candidate`'s,
    the median ratio of passes in turns"""


@with_config(FORBID)
class BudgetBlock(TypedDict):
    """The budget under which a model was learned."""

    kind: Literal["parameters", "macs", "milliseconds"]
    """for a model learned under a budget: the limited quantity"""
    limit: Amount
    """the budget, in this quantity"""
    cost: Amount
    """cost of the deployed model, at most `limit`"""
    outside: NotRequired[Natural]
    """for a finished module made smaller: parameters that no size reaches, in both costs"""
    even: NotRequired[list[Natural]]
    """per axis, the count of the even allocation within the budget"""
    evidence: NotRequired[list[float]]
    """per axis, the strongest evidence in training that it deserves more of the budget than the others (positive) or
    less, in standard errors; 0 for the only axis"""


@with_config(FORBID)
class MemberBlock(TypedDict):
    """One model of a family that was trained together."""

    cost: Amount
    """cost of the deployed member, in the kind of the limit"""
    count: list[Natural]
    """retained components per axis"""
    scores: Scores
    """scores of the deployed member"""


@with_config(FORBID)
class PrunesBackBlock(TypedDict):
    """The paper's verdict on a run that starts at high capacity."""

    outcome: Literal["yes", "partial", "no"]
    """verdict on `from_high`, from the next two keys: "yes", "partial" or "no" """
    returned: bool
    """whether every count is within one of the count of `grown` ("yes")"""
    moved: bool
    """whether every boundary ended more than one below its start ("partial" if not `returned`)"""


@with_config(FORBID)
class Result(TypedDict):
    """One phase of a run, its keys in the order of a record."""

    status: Literal["complete", "diverged"]
    """ "complete" or "diverged"; a diverged phase has no scores and an empty `count`"""
    count: list[Natural]
    """retained components per axis; with δ = ½ the count is ⌊t + ½⌋ + 1, since f₀ counts too"""
    diverged_at: NotRequired[Natural]
    """first step at which a loss was found to be infinite or NaN"""
    t: NotRequired[list[SizeValue]]
    """size per axis: the boundary, or the method's own size (AWNN: width before rounding up; L0: expected number of
    open gates; learned decay: width of the quantile). Fixed models have none"""
    integer: NotRequired[list[bool]]
    """per axis, whether t is within 0.01 of an integer; only for methods with a boundary"""
    r: NotRequired[list[Share]]
    """learned ratio of the ordering weights; only if it is learned"""
    truncated: NotRequired[Scores]
    """scores of the retained components with gates of one: the deployed model's scores"""
    soft: NotRequired[Scores]
    """scores of the candidate model with its gates as trained"""
    gates_kept: NotRequired[Scores]
    """scores of the retained components with their trained gates; compare with `truncated` to see whether a loss comes
    from the dropped tail or from rounding the gates"""
    rank: NotRequired[Natural]
    """number of singular values of the deployed bottleneck above 1e-3 of the largest (`task=manifold`)"""
    depth: NotRequired[Natural]
    """layers (or links of a chain) after truncation (`task=twist`)"""
    kept: NotRequired[Annotated[dict[Literal["early", "middle", "late"], LeftAndWhole], Field(min_length=3)]]
    """for a pruned model: number of weights (without biases) in the attention and feed-forward maps of the `early`,
    `middle` and `late` third of the layers, each as `[after pruning, before]`"""
    n: NotRequired[dict[str, Natural]]
    """score → number of examples or tokens that it averages over; only for tasks on a pretrained model"""
    sizes: NotRequired[dict[str, Natural]]
    """for components attached to the layers of a pretrained model: sums of `count` over all layers (`total`) and over
    the `early`, `middle` and `late` third (of 32 layers: 11, 11 and 10)"""
    parameters: dict[str, Natural]
    """number of parameters: `candidate` before truncation, `deployed` after it"""
    steps: Natural
    """optimiser steps"""
    seconds: Amount
    """wall time of the whole stack's training"""
    run_steps_per_second: NotRequired[Amount]
    """`steps` times the number of replicas, divided by `seconds`; four significant digits (one decimal in records from
    before 2026-11-25)"""
    peak_memory_mib: NotRequired[Amount]
    """peak memory in MiB: of the process on a CPU; of the device during the phase on CUDA"""
    cost: NotRequired[CostBlock]
    norms: NotRequired[list[Amount]]
    """L2 norm of each f_k over the training inputs, without w_k (`task=regression1d`, phase `grown`)"""
    budget: NotRequired[BudgetBlock]
    members: NotRequired[dict[Annotated[str, Field(pattern="^[1-9][0-9]?$|^100$")], MemberBlock]]
    """share of the whole module's cost, in percent → the member of the family at it (`method=front`)"""
    prefixes: NotRequired[list[float]]
    """score of the model truncated to at most 1, 2, ... components per axis, up to one less than its largest count:
    error (1D), accuracy (images, Cora) or bits per character (TinyStories); phase `grown` of methods with a boundary"""
    samples: NotRequired[dict[str, Annotated[str, Field(max_length=200)]]]
    """texts that the `soft` and the `truncated` model write from the start of a story, by the same random draws in
    every record (`task=tinystories`)"""
    prunes_back: NotRequired[PrunesBackBlock]
    lambda0: NotRequired[Amount]
    """the capacity price, if it differs from the configured one (`continue_...`)"""
    model_sha256: NotRequired[Sha256]
    """SHA-256 over the contents of the saved model, `<run id>.<phase>.safetensors` (`save=deployed`); before
    2026-11-28, over the file. Loading checks it"""


@with_config(FORBID)
class TimeBlock(TypedDict):
    """When the run started and how long it took."""

    started: str
    """start of the stack's training, in UTC"""
    seconds: Amount
    """wall time of all phases of the stack, divided by its number of runs"""


@with_config(FORBID)
class ExecutionBlock(TypedDict):
    """Where and by what a run was trained."""

    device: str
    """ "cpu", or the name of the GPU"""
    engine: str
    """engine of the training: "torch" or "fused" (a compiled kernel), joined by "+" if phases differ. Older records may
    have "fused-step", "fused-autoencoder" or "fused-branches" """
    replicas: AtLeastOne
    """number of runs in the stack, trained together"""
    threads: AtLeastOne
    """number of torch threads"""
    processes: NotRequired[AtLeastOne]
    """number of processes that shared the training (`torchrun`); absent for one"""
    resumed: NotRequired[Natural]
    """number of times that an interrupted training resumed"""
    scan: NotRequired[str]
    """package whose kernel computed the scan of a state space; none: torch"""
    tag: NotRequired[Annotated[str, Field(max_length=40)]]
    """the word given with `tag=`"""
    conf: NotRequired[Sha256]
    """if $NGN_CONF was set: SHA-256 over its files; `config` has the choices made from them"""


@with_config(FORBID)
class DataBlock(TypedDict):
    """The data of a run."""

    name: str
    """name of the data set"""
    sha256: str
    """one digest over all data files that the run read, or over the generated data"""
    provenance: str
    """ "official files, digests checked"; or how the data were generated; or the text of the files' manifest"""


@with_config(FORBID)
class BaseBlock(TypedDict):
    """The pretrained model that a run adapted."""

    name: str
    """name of the pretrained model that the task adapts; `config.model.dtype` is the type of its weights"""
    sha256: str
    """digest over its weights"""
    provenance: str
    """source of the weights"""


@with_config(FORBID)
class CodeBlock(TypedDict):
    """The code of a run."""

    commit: str | None
    """git commit; null if unknown"""
    clean: bool
    """whether the sources equalled that commit; only clean records count in the paper's tables"""
    source: Literal["git", "stamp", "none"]
    """where `commit` and `clean` come from: "git" or "none"; older records may have "stamp", a file in a copied tree
    that named the commit"""
    sources: NotRequired[Sha256]
    """SHA-256 over the source files that can change a number; older records lack it"""
    plugins: NotRequired[Sha256]
    """if $NGN_PLUGINS was set: SHA-256 over its modules and YAML files"""
    numerics: dict[str, int]
    """numerics versions of the task, the method and the retraining; a record with older versions is stale"""


@with_config(FORBID)
class Record(TypedDict):
    """The record of one run, version 1."""

    schema: Literal[1]
    """version of this format, 1"""
    run_id: Annotated[str, Field(pattern="^[a-z0-9_]+(-[a-z0-9_]+)*-s[0-9]+-[0-9a-f]{10}$")]
    """`<task>-<component>-<method><count>-s<seed>-<hash>`, also the name of the file; the hash is over the scientific
    configuration"""
    status: Literal["complete", "diverged"]
    """ "diverged" if any phase diverged, else "complete" """
    config: dict[str, Any]
    """the scientific configuration, as `--cfg job` shows it, without the keys that only set how a run is carried out
    (device, folders, logging)"""
    phases: Annotated[dict[PhaseName, Result], Field(min_length=1)]
    """the trainings: `grown`, `fixed`, `from_high`, and one `continue_<factor>` for each factor of `continue_with`"""
    time: TimeBlock
    execution: ExecutionBlock
    hardware: dict[str, Any]
    """processor, visible cores, operating system; no host name"""
    packages: dict[str, str]
    """versions of Python and of the packages that can change a number"""
    data: DataBlock
    base: NotRequired[BaseBlock]
    code: CodeBlock
    converted: NotRequired[str]
    """for a record that no run of this suite wrote: the file of a benchmark that it was made from once, and what
    differs from a run. `commit` and `hardware` are those of the training"""
    curves_sha256: NotRequired[Sha256]
    """SHA-256 of the file of curves; absent without curves"""
    sha256: NotRequired[Sha256]
    """SHA-256 of the record without this key, as JSON with sorted keys and no blanks; written with the file. Records
    from before 2026-11-28 have none"""
