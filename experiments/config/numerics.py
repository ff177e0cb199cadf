"""Which computation a record's numbers come from.

Bump the version of a task or a method whenever a change alters the numbers that it produces, however slightly; records
of an older version are then stale, and are reported and refused rather than mixed with new ones. The golden losses in
``tests/`` notice a change that forgot to.
"""

from experiments.config.schema import Config

NUMERICS_OF_TASK: dict[str, int] = {"regression1d": 2, "mnist": 1, "cifar10": 1, "cora": 2, "manifold": 1, "twist": 1}
NUMERICS_OF_METHOD: dict[str, int] = {"ngn": 1, "fixed": 1, "ste": 1, "l0": 1, "awnn": 1, "decay": 1}


def numerics(config: Config) -> dict[str, int]:
    """The versions that a record of this run carries; a retraining at a fixed size depends on that method too."""
    versions = {"task": NUMERICS_OF_TASK[config.task.name], "method": NUMERICS_OF_METHOD[config.method.name]}
    if config.method.name != "fixed" and "fixed" in config.phases:
        versions["fixed"] = NUMERICS_OF_METHOD["fixed"]
    return versions
