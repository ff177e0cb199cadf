"""The numerics versions of a run: which computation made its numbers.

Every task and every method has a version, ``numerics`` of its settings class. Bump it with every change that alters its
numbers, however slightly. Records of an older version are then stale: they are reported and refused, and never mixed
with new ones. The golden losses in ``tests/`` detect a missing bump.
"""

from experiments.core.config import Config
from experiments.methods.fixed import Fixed


def numerics(config: Config) -> dict[str, int]:
    """Return the versions in a record of this run. If the run retrains at a fixed size, they include that method's."""
    versions = {"task": config.task.numerics, "method": config.method.numerics}
    if config.method.name != "fixed" and "fixed" in config.phases:
        versions["fixed"] = Fixed.numerics
    return versions
