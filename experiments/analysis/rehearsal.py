"""A rehearsal: smoke runs take the place of full-size runs, all the way from records to tables and the page."""

from __future__ import annotations

from experiments.analysis.alternative import Alternative, AlternativeReader
from experiments.analysis.collect import Reader
from experiments.analysis.selection import Selection
from experiments.blocks import ConfigError
from experiments.store.records import Store


def rehearsed(selection: Selection) -> Selection:
    """Return the smoke runs that take the place of a selection's runs, or the selection if it has no smoke form.

    A setting can be too large for four components, and pretrained models are for full-size runs.
    """
    smoke = selection.with_overrides({}, {"profile": "smoke"})
    try:
        smoke.config(next(iter(smoke.seeds)))
    except ConfigError:
        return selection
    return smoke


class RehearsalReader(AlternativeReader):
    """Reads smoke records, also of changed sources. Whatever is made of them bears :attr:`mark`."""

    mark = "REHEARSAL: smoke runs on tiny data. No number here is a result."

    def __init__(self, store: Store) -> None:
        smoke = Alternative("rehearsal", "full size", "Smoke runs in place of full-size ones.", rehearsed)
        super().__init__(Reader(store, allow_dirty=True), smoke)
