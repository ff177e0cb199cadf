"""The keys of a record. A record is checked by these classes, and docs/records.md describes what they declare.

A record may lack the keys whose attribute is None by default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import AfterValidator, Field, with_config
from typing_extensions import TypedDict

from experiments.store.result import FORBID, Amount, AtLeastOne, Natural, Result, without_none

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
    conf: NotRequired[Annotated[str, Field(pattern=_SHA256)]]
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
    sources: NotRequired[Annotated[str, Field(pattern=_SHA256)]]
    """SHA-256 over the source files that can change a number; older records lack it"""
    plugins: NotRequired[Annotated[str, Field(pattern=_SHA256)]]
    """if $NGN_PLUGINS was set: SHA-256 over its modules and YAML files"""
    numerics: dict[str, int]
    """numerics versions of the task, the method and the retraining; a record with older versions is stale"""


@with_config(FORBID)
@dataclasses.dataclass(kw_only=True)
class Record:
    """The record of one run, version 1."""

    schema: Literal[1]
    """version of this format, 1"""
    run_id: Annotated[str, Field(pattern="^[a-z0-9_]+(-[a-z0-9_]+)*-s[0-9]+-[0-9a-f]{10}$")]
    """`<task>-<component>-<method><count>-s<seed>-<hash>`, also the name of the file; the hash is over the scientific
    configuration"""
    status: Literal["complete", "diverged"]
    """ "diverged" if any phase diverged, else "complete" """
    config: Annotated[dict[str, Any], AfterValidator(_whole)]
    """the scientific configuration, as `--cfg job` shows it, without the keys that only set how a run is carried out
    (device, folders, logging)"""
    phases: Annotated[Mapping[PhaseName, Result], Field(min_length=1)]
    """the trainings: `grown`, `fixed`, `from_high`, and one `continue_<factor>` for each factor of `continue_with`"""
    time: TimeBlock
    execution: ExecutionBlock
    hardware: dict[str, Any]
    """processor, visible cores, operating system; no host name"""
    packages: dict[str, str]
    """versions of Python and of the packages that can change a number"""
    data: DataBlock
    base: BaseBlock | None = None
    code: CodeBlock
    converted: str | None = None
    """for a record that no run of this suite wrote: the file of a benchmark that it was made from once, and what
    differs from a run. `commit` and `hardware` are those of the training"""
    curves_sha256: Annotated[str | None, Field(pattern=_SHA256)] = None
    """SHA-256 of the file of curves; absent without curves"""
    sha256: Annotated[str | None, Field(pattern=_SHA256)] = None
    """SHA-256 of the record without this key, as JSON with sorted keys and no blanks; written with the file. Records
    from before 2026-11-28 have none"""

    def json(self) -> dict[str, Any]:
        """Return the record as JSON data."""
        return {**without_none(self), "phases": {name: result.json() for name, result in self.phases.items()}}
