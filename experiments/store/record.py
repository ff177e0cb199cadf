"""The keys of a record. A record is checked by these classes, and docs/records.md describes what they declare.

A record may lack the keys whose attribute is None by default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from experiments.store.result import FORBID, Amount, AtLeastOne, Natural, Result, key, without_none

SCHEMA_VERSION: Final = 1
_SHA256: Final = "^[0-9a-f]{64}$"

PHASES = {
    "grown": "training that starts at t₀, near zero; runs of other methods have this phase, too",
    "fixed": "a plain model retrained at the count that `grown` retained; the only phase of `method=fixed`",
    "from_high": "training that starts with every candidate open, t = K − 1",
}


PhaseName = Annotated[str, Field(pattern=f"^({'|'.join(PHASES)}|continue_[0-9][0-9pe+-]*)$")]


def _whole(config: dict[str, Any]) -> dict[str, Any]:
    wanted = ("task", "gate", "method", "schedule", "train", "phases", "seed", "profile")
    if lacks := [name for name in wanted if name not in config]:
        raise ValueError(f"must have {', '.join(lacks)}")
    return config


@with_config(FORBID)
class TimeBlock(TypedDict):
    """When the run started and how long it took."""

    started: Annotated[str, key("start of the stack's training, in UTC")]
    seconds: Annotated[Amount, key("wall time of all phases of the stack, divided by its number of runs")]


@with_config(FORBID)
class ExecutionBlock(TypedDict):
    """Where and by what a run was trained."""

    device: Annotated[str, key('"cpu", or the name of the GPU')]
    engine: Annotated[
        str,
        key(
            'engine of the training: "torch" or "fused" (a compiled kernel), joined by "+" if phases differ. '
            'Older records may have "fused-step", "fused-autoencoder" or "fused-branches"'
        ),
    ]
    replicas: Annotated[AtLeastOne, key("number of runs in the stack, trained together")]
    threads: Annotated[AtLeastOne, key("number of torch threads")]
    processes: NotRequired[
        Annotated[AtLeastOne, key("number of processes that shared the training (`torchrun`); absent for one")]
    ]
    resumed: NotRequired[Annotated[Natural, key("number of times that an interrupted training resumed")]]
    scan: NotRequired[Annotated[str, key("package whose kernel computed the scan of a state space; none: torch")]]
    tag: NotRequired[Annotated[str, key("the word given with `tag=`", max_length=40)]]
    conf: NotRequired[
        Annotated[
            str,
            key(
                "if $NGN_CONF was set: SHA-256 over its files; `config` has the choices made from them",
                pattern=_SHA256,
            ),
        ]
    ]


@with_config(FORBID)
class DataBlock(TypedDict):
    """The data of a run."""

    name: Annotated[str, key("name of the data set")]
    sha256: Annotated[str, key("one digest over all data files that the run read, or over the generated data")]
    provenance: Annotated[
        str,
        key('"official files, digests checked"; or how the data were generated; or the text of the files\' manifest'),
    ]


@with_config(FORBID)
class BaseBlock(TypedDict):
    """The pretrained model that a run adapted."""

    name: Annotated[
        str, key("name of the pretrained model that the task adapts; `config.model.dtype` is the type of its weights")
    ]
    sha256: Annotated[str, key("digest over its weights")]
    provenance: Annotated[str, key("source of the weights")]


@with_config(FORBID)
class CodeBlock(TypedDict):
    """The code of a run."""

    commit: Annotated[str | None, key("git commit; null if unknown")]
    clean: Annotated[
        bool,
        key("whether the sources equalled that commit; only clean records count in the paper's tables"),
    ]
    source: Annotated[
        Literal["git", "stamp", "none"],
        key(
            'where `commit` and `clean` come from: "git" or "none"; older records may have "stamp", a file in a '
            "copied tree that named the commit"
        ),
    ]
    sources: NotRequired[
        Annotated[
            str,
            key(
                "SHA-256 over the source files that can change a number; older records lack it",
                pattern=_SHA256,
            ),
        ]
    ]
    plugins: NotRequired[
        Annotated[str, key("if $NGN_PLUGINS was set: SHA-256 over its modules and YAML files", pattern=_SHA256)]
    ]
    numerics: Annotated[
        dict[str, int],
        key("numerics versions of the task, the method and the retraining; a record with older versions is stale"),
    ]


@with_config(FORBID)
@dataclasses.dataclass(kw_only=True)
class Record:
    """The record of one run, version 1."""

    schema: Annotated[Literal[1], key("version of this format, 1")]
    run_id: Annotated[
        str,
        key(
            "`<task>-<component>-<method><count>-s<seed>-<hash>`, also the name of the file; the hash is over the "
            "scientific configuration",
            pattern="^[a-z0-9_]+(-[a-z0-9_]+)*-s[0-9]+-[0-9a-f]{10}$",
        ),
    ]
    status: Annotated[Literal["complete", "diverged"], key('"diverged" if any phase diverged, else "complete"')]
    config: Annotated[
        dict[str, Any],
        key(
            "the scientific configuration, as `--cfg job` shows it, without the keys that only set how a run is "
            "carried out (device, folders, logging)",
        ),
        AfterValidator(_whole),
    ]
    phases: Annotated[
        Mapping[PhaseName, Result],
        key(
            "the trainings: `grown`, `fixed`, `from_high`, and one `continue_<factor>` for each factor of "
            "`continue_with`",
            min_length=1,
        ),
    ]
    time: TimeBlock
    execution: ExecutionBlock
    hardware: Annotated[dict[str, Any], key("processor, visible cores, operating system; no host name")]
    packages: Annotated[dict[str, str], key("versions of Python and of the packages that can change a number")]
    data: DataBlock
    base: BaseBlock | None = None
    code: CodeBlock
    converted: Annotated[
        str | None,
        key(
            "for a record that no run of this suite wrote: the file of a benchmark that it was made from once, and "
            "what differs from a run. `commit` and `hardware` are those of the training"
        ),
    ] = None
    curves_sha256: Annotated[
        str | None, key("SHA-256 of the file of curves; absent without curves", pattern=_SHA256)
    ] = None
    sha256: Annotated[
        str | None,
        key(
            "SHA-256 of the record without this key, as JSON with sorted keys and no blanks; written with the file. "
            "Records from before 2026-11-28 have none",
            pattern=_SHA256,
        ),
    ] = None

    def json(self) -> dict[str, Any]:
        """Return the record as JSON data."""
        return {**without_none(self), "phases": {name: result.json() for name, result in self.phases.items()}}
