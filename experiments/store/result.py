"""What a record holds of one phase of training."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import Field, with_config
from typing_extensions import TypedDict

from experiments.store.keys import FORBID, Absent, Amount, Natural, PositiveInt, Scores, key, present


@with_config(FORBID)
class CostBlock(TypedDict):
    """One forward pass, on the device and threads of the run."""

    samples: Annotated[
        PositiveInt,
        key("samples in one forward pass; `cost` is there where a forward pass says something about the task"),
    ]
    multiply_adds: Annotated[
        dict[str, Natural],
        key(
            "of that forward pass, in matrix products and convolutions: `candidate`, the model with its gates at the "
            "end of training, whose gates below 1e-15 cost nothing, so that after a commit it is what is deployed; "
            "and `deployed`"
        ),
    ]
    milliseconds: Annotated[
        dict[str, Amount],
        key(
            "median wall time of it on this machine, as busy as it was; the report's times come from "
            "`results/latency.json` instead"
        ),
    ]


@with_config(FORBID)
class BudgetBlock(TypedDict):
    """The budget of a model that was learned under one."""

    kind: Annotated[
        Literal["parameters", "macs", "milliseconds"], key("of a model learned under a budget: what is limited")
    ]
    limit: Annotated[Amount, key("the budget")]
    cost: Annotated[Amount, key("of the deployed model, never more")]


@with_config(FORBID)
class PrunesBackBlock(TypedDict):
    """The paper's verdict on a run started at high capacity."""

    outcome: Annotated[
        Literal["yes", "partial", "no"], key('of `from_high`: "yes", "partial" or "no", from the next two')
    ]
    returned: Annotated[bool, key('whether every count is within one of the grown one ("yes")')]
    moved: Annotated[
        bool, key('whether every boundary ended more than one below its start ("partial", if it did not return)')
    ]


def _thirds(schema: dict[str, Any]) -> None:
    pair = schema.pop("additionalProperties")
    schema |= {
        "patternProperties": {"^(early|middle|late)$": pair},
        "required": ["early", "middle", "late"],
        "additionalProperties": False,
    }


@with_config(FORBID)
@dataclasses.dataclass(kw_only=True)
class Result:
    """One phase of a run, in the order in which a record has it."""

    status: Annotated[
        Literal["complete", "diverged"],
        key('"complete", or "diverged": then there are no scores, and `count` is empty'),
    ]
    count: Annotated[
        list[Natural],
        key("retained components of each axis. With δ = ½ that is ⌊t + ½⌋ + 1: f₀ is one of them"),
    ]
    diverged_at: Annotated[Natural | Absent, key("first step at which a loss was seen not to be finite")] = None
    t: Annotated[
        list[float] | Absent,
        key(
            "size of each axis: the boundary, or what stands in its place (AWNN's width before it is rounded up, L0's "
            "expected number of open gates, the width of learned decay's quantile). Not for fixed models"
        ),
    ] = None
    integer: Annotated[
        list[bool] | Absent,
        key("of each axis, whether t is within 0.01 of an integer; only where there is a boundary"),
    ] = None
    r: Annotated[list[float] | Absent, key("learned ratio of the ordering weights; only where it is learned")] = None
    truncated: Annotated[
        Scores | Absent,
        key("scores of the retained components with gates of one; what the deployed model gives"),
    ] = None
    soft: Annotated[Scores | Absent, key("scores of the candidate model with its gates as trained")] = None
    gates_kept: Annotated[
        Scores | Absent,
        key(
            "scores of the retained components with their trained gates. Beside `truncated` it tells whether a loss is "
            "that of the dropped tail or that of rounding the gates"
        ),
    ] = None
    rank: Annotated[
        Natural | Absent,
        key("singular values of the deployed bottleneck above 1e-3 of the largest (`task=manifold`)"),
    ] = None
    depth: Annotated[
        Natural | Absent, key("layers, or links of a chain, that are left after truncation (`task=twist`)")
    ] = None
    kept: Annotated[
        dict[str, Annotated[list[Natural], Field(min_length=2, max_length=2)]] | Absent,
        key(
            "of a pruned model: weights of the attention and feed-forward maps (biases not counted) of the `early`, "
            "`middle` and `late` third of the layers, each as `[left, before]`",
            json_schema_extra=_thirds,
        ),
    ] = None
    n: Annotated[
        dict[str, Natural] | Absent,
        key("name of a score: the examples, or tokens, that it is a mean over; of tasks on a pretrained model"),
    ] = None
    sizes: Annotated[
        dict[str, Natural] | Absent,
        key(
            "of components attached to the layers of a pretrained model: sums of `count`, `total` and over the "
            "`early`, `middle` and `late` third of the layers (32 are 11, 11 and 10)"
        ),
    ] = None
    parameters: Annotated[
        dict[str, Natural], key("number of parameters: `candidate` before truncation, `deployed` after it")
    ]
    steps: Annotated[Natural, key("optimiser steps")]
    seconds: Annotated[Amount, key("wall time of the training that held this run, the whole stack's")]
    run_steps_per_second: Annotated[
        Amount | Absent,
        key(
            "steps times replicas, divided by these seconds, to four digits (records of before 2026-11-25: to one "
            "decimal)"
        ),
    ] = None
    peak_memory_mib: Annotated[
        Amount | Absent, key("peak memory: of the process on a CPU, of the device during the phase on CUDA")
    ] = None
    cost: CostBlock | Absent = None
    norms: Annotated[
        list[float] | Absent,
        key("L2 norm of each f_k over the training inputs, unweighted (`task=regression1d`, phase `grown`)"),
    ] = None
    budget: BudgetBlock | Absent = None
    prefixes: Annotated[
        list[float] | Absent,
        key(
            "score of the model truncated to at most 1, 2, ... components of each axis, below its largest count: error "
            "of the 1D study, accuracy of images and Cora, bits per character of TinyStories (phase `grown` of methods "
            "with a boundary)"
        ),
    ] = None
    samples: Annotated[
        dict[str, Annotated[str, Field(max_length=200)]] | Absent,
        key(
            '"soft", "truncated": what the model writes from the start of a story, by the same draws in every record '
            "(`task=tinystories`)"
        ),
    ] = None
    prunes_back: PrunesBackBlock | Absent = None
    lambda0: Annotated[
        Amount | Absent, key("the capacity price, where it is not the configured one (`continue_...`)")
    ] = None
    taken_from: Annotated[
        str | Absent,
        key(
            "run id of the `method=fixed` record that this phase was read from, rather than trained again; "
            "`execution.engine` names its engine, too"
        ),
    ] = None

    @property
    def complete(self) -> bool:
        """Whether it has scores."""
        return self.status == "complete"

    def json(self) -> dict[str, Any]:
        """The phase as a record holds it."""
        return present(self)
