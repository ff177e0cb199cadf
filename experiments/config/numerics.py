"""Which computation a record's numbers come from.

Every task and every method has a version, ``numerics`` of its settings class. Bump it whenever a change alters the
numbers that it produces, however slightly; records of an older version are then stale, and are reported and refused
rather than mixed with new ones. The golden losses in ``tests/`` notice a change that forgot to.
"""

from experiments.contract.config import Config
from experiments.methods.fixed import Fixed


def numerics(config: Config) -> dict[str, int]:
    """The versions that a record of this run carries; a retraining at a fixed size depends on that method too."""
    versions = {"task": config.task.numerics, "method": config.method.numerics}
    if config.method.name != "fixed" and "fixed" in config.phases:
        versions["fixed"] = Fixed.numerics
    return versions
