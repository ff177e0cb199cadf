"""The methods that learn a size: one file each, which holds its settings and says what else the suite has to know.

A new method is one file here (or in ``methods/`` of a folder that $NGN_PLUGINS names), and one YAML in ``conf/method``.
No torch is imported before a capacity is made.
"""

from __future__ import annotations

from experiments.contract.config import Method
from experiments.plugins import described

METHODS = described(__name__, __path__, Method)  # type: ignore[type-abstract]
"""Name → settings class."""
