"""Which computation a record's numbers come from.

Bump the version of a task or a method whenever a change alters the numbers that it produces, however slightly; records
of an older version are then stale, and are reported and refused rather than mixed with new ones. The golden losses in
``tests/`` notice a change that forgot to.
"""

NUMERICS_OF_TASK: dict[str, int] = {"regression1d": 1, "mnist": 1, "cifar10": 1, "cora": 1}
NUMERICS_OF_METHOD: dict[str, int] = {"ngn": 1, "fixed": 1}


def numerics(task: str, method: str) -> dict[str, int]:
    """The versions that a record of this task and method carries."""
    return {"task": NUMERICS_OF_TASK[task], "method": NUMERICS_OF_METHOD[method]}
