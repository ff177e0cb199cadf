"""The keys of one phase in a record, and the types that declare keys. docs/records.md has the text below each key."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

FORBID = ConfigDict(extra="forbid", allow_inf_nan=False)
Natural = Annotated[int, Field(ge=0, le=2**53)]
AtLeastOne = Annotated[int, Field(ge=1, le=2**53)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
SizeValue = Annotated[float, Field(ge=0, le=2**31)]
"""A size before rounding. Models have at most 2**16 components of a group, or grow one by one."""
Share = Annotated[float, Field(ge=0, le=1)]
LeftAndWhole = Annotated[list[Natural], Field(min_length=2, max_length=2)]
ERRORS = frozenset({"mse", "nmse", "loss", "nats", "bits_per_character", "perplexity"})
PER_CENT = frozenset({"accuracy", "exact_match", "string_match", "f1", "strict", "flexible", "decimal"})


def _bounded(scores: dict[str, float]) -> dict[str, float]:
    """Refuse impossible values of the known scores. Those of a task of one's own are any numbers."""
    for name, score in scores.items():
        if (name in ERRORS or name in PER_CENT) and score < 0:
            raise ValueError(f"{name} must be at least 0")
        if name in PER_CENT and score > 100:
            raise ValueError(f"{name} must be at most 100")
    return scores


Scores = Annotated[dict[str, float], Field(min_length=1), AfterValidator(_bounded)]


def without_none(block: Any) -> dict[str, Any]:
    """Return the attributes that are not None: name → value."""
    values = {field.name: getattr(block, field.name) for field in dataclasses.fields(block)}
    return {name: value for name, value in values.items() if value is not None}


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
@dataclasses.dataclass(kw_only=True)
class Result:
    """One phase of a run, its keys in the order of a record."""

    status: Literal["complete", "diverged"]
    """ "complete" or "diverged"; a diverged phase has no scores and an empty `count`"""
    count: list[Natural]
    """retained components per axis; with δ = ½ the count is ⌊t + ½⌋ + 1, since f₀ counts too"""
    diverged_at: Natural | None = None
    """first step at which a loss was found to be infinite or NaN"""
    t: list[SizeValue] | None = None
    """size per axis: the boundary, or the method's own size (AWNN: width before rounding up; L0: expected number of
    open gates; learned decay: width of the quantile). Fixed models have none"""
    integer: list[bool] | None = None
    """per axis, whether t is within 0.01 of an integer; only for methods with a boundary"""
    r: list[Share] | None = None
    """learned ratio of the ordering weights; only if it is learned"""
    truncated: Scores | None = None
    """scores of the retained components with gates of one: the deployed model's scores"""
    soft: Scores | None = None
    """scores of the candidate model with its gates as trained"""
    gates_kept: Scores | None = None
    """scores of the retained components with their trained gates; compare with `truncated` to see whether a loss comes
    from the dropped tail or from rounding the gates"""
    rank: Natural | None = None
    """number of singular values of the deployed bottleneck above 1e-3 of the largest (`task=manifold`)"""
    depth: Natural | None = None
    """layers (or links of a chain) after truncation (`task=twist`)"""
    kept: Annotated[dict[Literal["early", "middle", "late"], LeftAndWhole], Field(min_length=3)] | None = None
    """for a pruned model: number of weights (without biases) in the attention and feed-forward maps of the `early`,
    `middle` and `late` third of the layers, each as `[after pruning, before]`"""
    n: dict[str, Natural] | None = None
    """score → number of examples or tokens that it averages over; only for tasks on a pretrained model"""
    sizes: dict[str, Natural] | None = None
    """for components attached to the layers of a pretrained model: sums of `count` over all layers (`total`) and over
    the `early`, `middle` and `late` third (of 32 layers: 11, 11 and 10)"""
    parameters: dict[str, Natural]
    """number of parameters: `candidate` before truncation, `deployed` after it"""
    steps: Natural
    """optimiser steps"""
    seconds: Amount
    """wall time of the whole stack's training"""
    run_steps_per_second: Amount | None = None
    """`steps` times the number of replicas, divided by `seconds`; four significant digits (one decimal in records from
    before 2026-11-25)"""
    peak_memory_mib: Amount | None = None
    """peak memory in MiB: of the process on a CPU; of the device during the phase on CUDA"""
    cost: CostBlock | None = None
    norms: list[Amount] | None = None
    """L2 norm of each f_k over the training inputs, without w_k (`task=regression1d`, phase `grown`)"""
    budget: BudgetBlock | None = None
    members: dict[Annotated[str, Field(pattern="^[1-9][0-9]?$|^100$")], MemberBlock] | None = None
    """share of the whole module's cost, in percent → the member of the family at it (`method=front`)"""
    prefixes: list[float] | None = None
    """score of the model truncated to at most 1, 2, ... components per axis, up to one less than its largest count:
    error (1D), accuracy (images, Cora) or bits per character (TinyStories); phase `grown` of methods with a boundary"""
    samples: dict[str, Annotated[str, Field(max_length=200)]] | None = None
    """texts that the `soft` and the `truncated` model write from the start of a story, by the same random draws in
    every record (`task=tinystories`)"""
    prunes_back: PrunesBackBlock | None = None
    lambda0: Amount | None = None
    """the capacity price, if it differs from the configured one (`continue_...`)"""
    model_sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    """SHA-256 over the contents of the saved model, `<run id>.<phase>.safetensors` (`save=deployed`); before
    2026-11-28, over the file. Loading checks it"""

    @property
    def complete(self) -> bool:
        """Whether the phase has scores."""
        return self.status == "complete"

    def json(self) -> dict[str, Any]:
        """Return the phase as JSON data."""
        return without_none(self)
