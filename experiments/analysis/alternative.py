"""An alternative setting: which runs take the place of those that tables and claims name, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.analysis.collect import Collected, Reader
from experiments.analysis.selection import Selection

Phases = Mapping[str, Any]
"""Name of a phase → what a record holds of it."""


@dataclass(frozen=True)
class Alternative:
    """A setting beside the one that tables and claims are stated for.

    Attributes:
        title, stated: what this setting and the stated one are called above a column.
        text: what it changes and why, as plain text; backticks mark code.
        runs: runs under the stated setting → the runs under this one. It returns unrelated runs unchanged.
        reading: phases of a record → the phases as this setting reads them; None reads them as they are.
        found_by: rows (``macro.row``) whose published values suggested the setting. Their agreement is no evidence.
        test: rows (``macro.row``) and places of statements (``figure 2``) that its plan names as the test.
    """

    title: str
    stated: str
    text: str
    runs: Callable[[Selection], Selection] = lambda selection: selection
    reading: Callable[[Phases], Phases] | None = None
    found_by: frozenset[str] = frozenset()
    test: frozenset[str] = frozenset()


class AlternativeReader(Reader):
    """Reads the records of an alternative setting, or of stand-ins, wherever those of the stated one are asked for.

    Tables, claims and figures need not know of it: they give this reader their usual selections.

    Args:
        stated: the reader of the stated setting. Both share every record that either has read.
        chosen, reading: ``runs`` and ``reading`` of an :class:`Alternative`.
    """

    def __init__(
        self,
        stated: Reader,
        chosen: Callable[[Selection], Selection],
        reading: Callable[[Phases], Phases] | None = None,
    ) -> None:
        super().__init__(stated.store, stated.allow_dirty)
        self._runs = stated._runs
        self._stated, self._chosen, self._reading = stated, chosen, reading

    def chosen(self, selection: Selection) -> Selection:
        """Return the runs that take the place of a selection's own."""
        return self._chosen(selection)

    def collect(self, selection: Selection) -> Collected:
        """Collect the records that take the place of a selection's own."""
        found, read = self._stated.collect(self._chosen(selection)), self._reading
        if read is None:
            return found
        runs = (replace(r, record={**r.record, "phases": read(r.record["phases"])}) for r in found.runs)
        return replace(found, runs=tuple(runs))
