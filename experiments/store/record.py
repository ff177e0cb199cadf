"""What a record holds. ``record.schema.json`` and the tables of docs/records.md are written from these classes.

    python scripts/describe_records.py      # after a change here, in keys.py or in result.py

An attribute that is None by default is a key that a record may lack.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import with_config
from typing_extensions import TypedDict

from experiments.store.keys import FORBID, Absent, Amount, Natural, PositiveInt, key, present
from experiments.store.result import Result

SCHEMA_VERSION: Final = 1

PHASES = {
    "grown": "started at t₀, near zero. Runs of other methods have this phase, too",
    "fixed": "a plain model retrained at the count that `grown` retained; of `method=fixed` the only phase",
    "from_high": "started with every candidate open, t = K − 1",
}


def _named_phases(schema: dict[str, Any]) -> None:
    phase = schema["additionalProperties"]
    schema |= {
        "properties": {name: {"description": says, **phase} for name, says in PHASES.items()},
        "patternProperties": {"^continue_[0-9][0-9pe+-]*$": phase},
        "additionalProperties": False,
    }


@with_config(FORBID)
class TimeBlock(TypedDict):
    """When, and for how long."""

    started: Annotated[str, key("when the training of the stack began, in UTC")]
    seconds: Annotated[Amount, key("wall time of all phases, divided by the runs of the stack")]


@with_config(FORBID)
class ExecutionBlock(TypedDict):
    """How a run was carried out."""

    device: Annotated[str, key('"cpu", or the name of the GPU')]
    engine: Annotated[
        str,
        key(
            'what did the arithmetic: "torch", "fused" (a compiled kernel); joined by "+" if phases '
            'differ. Older records may have "fused-step", "fused-autoencoder" or "fused-branches"'
        ),
    ]
    replicas: Annotated[PositiveInt, key("runs that were trained together as one stack")]
    threads: Annotated[PositiveInt, key("threads of torch")]
    resumed: NotRequired[Annotated[Natural, key("how often an interrupted training was resumed")]]
    tag: NotRequired[Annotated[str, key("the word that was given with `tag=`, if any", max_length=40)]]
    conf: NotRequired[
        Annotated[
            str,
            key(
                "where $NGN_CONF was set, a digest over its files; what was chosen from them is in `config`",
                pattern="^[0-9a-f]{64}$",
            ),
        ]
    ]


@with_config(FORBID)
class DataBlock(TypedDict):
    """What a run read."""

    name: Annotated[str, key("the data set")]
    sha256: Annotated[str, key("one digest over all the data that were read")]
    provenance: Annotated[
        str,
        key('"official files, digests checked", how data were generated, or what the manifest of the files says'),
    ]


@with_config(FORBID)
class BaseBlock(TypedDict):
    """The pretrained model that a run adapted."""

    name: Annotated[
        str, key("the pretrained model that a task adapts; `config.model.dtype` is the type of its weights")
    ]
    sha256: Annotated[str, key("one digest over its weights")]
    provenance: Annotated[str, key("where they are from")]


@with_config(FORBID)
class CodeBlock(TypedDict):
    """The sources of a run."""

    commit: Annotated[str | None, key("commit of the code, null if unknown")]
    clean: Annotated[
        bool,
        key("whether the sources were those of that commit; only clean records count in the paper's tables"),
    ]
    source: Annotated[Literal["git", "stamp", "none"], key('what says so: "git", a "stamp" (a copied tree), or "none"')]
    numerics: Annotated[
        dict[str, int],
        key("numerics versions of the task, the method and the retraining; a record of older ones is stale"),
    ]


@with_config(FORBID)
@dataclasses.dataclass(kw_only=True)
class Record:
    """The record of one run, version 1."""

    schema: Annotated[Literal[1], key("version of this format, 1")]
    run_id: Annotated[
        str,
        key(
            "`<task>-<component>-<method><count>-s<seed>-<hash>`: the name of the file; the hash is over the "
            "scientific configuration",
            pattern="^[a-z0-9_]+(-[a-z0-9_]+)*-s[0-9]+-[0-9a-f]{10}$",
        ),
    ]
    status: Annotated[Literal["complete", "diverged"], key('"complete", or "diverged" if any phase is')]
    config: Annotated[
        dict[str, Any],
        key(
            "the scientific configuration, as `--cfg job` shows it, without the keys that only say how a run is "
            "carried out",
            json_schema_extra={
                "required": ["task", "gate", "method", "schedule", "train", "phases", "seed", "profile"]
            },
        ),
    ]
    phases: Annotated[
        Mapping[str, Result],
        key(
            "what was trained: `grown`, `fixed`, `from_high`, and one `continue_<factor>` for each factor of "
            "`continue_with`",
            min_length=1,
            json_schema_extra=_named_phases,
        ),
    ]
    time: TimeBlock
    execution: ExecutionBlock
    hardware: Annotated[dict[str, Any], key("processor, visible cores, operating system; no host name")]
    packages: Annotated[dict[str, str], key("versions of Python and of the packages that can change a number")]
    data: DataBlock
    base: BaseBlock | Absent = None
    code: CodeBlock

    def json(self) -> dict[str, Any]:
        """The record as its file holds it."""
        return {**present(self), "phases": {name: result.json() for name, result in self.phases.items()}}
