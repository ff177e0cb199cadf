"""The methods that learn a size: their settings and properties, in one file or folder for those of a kind.

To add a method, write one file here (or in ``methods/`` of a folder in $NGN_PLUGINS) and one YAML in ``conf/method``.
Settings import no torch; building a capacity does.
"""

from __future__ import annotations

from experiments.core.config import Method
from experiments.core.plugins import discover_classes

METHODS = discover_classes(__name__, __path__, Method)  # type: ignore[type-abstract]
"""Name → settings class."""
