"""Studies: the runs behind a table or a figure, by name. ``python scripts/sweep.py plan NAME`` lists the missing runs.

A study is a :class:`~experiments.studies.model.Study` at the top level of a file here, or in ``studies/`` of a folder
that $NGN_PLUGINS names. If the rows of a table or a reduction already name the runs, the study takes them from there,
so that the two always agree.
"""

from __future__ import annotations

from experiments.config.compose import nearest
from experiments.plugins import discover_values
from experiments.store.records import Store
from experiments.studies.model import Study

STUDIES = discover_values(__name__, __path__, Study)
"""Name → study, in the order of the list."""


def runs_with_curves(store: Store) -> set[str]:
    """Return the ids of the runs that keep their curve file, according to any study."""
    return set().union(*(each.with_curves(store) for each in STUDIES.values()))


def study(name: str) -> Study:
    """Return the study of that name.

    Raises:
        KeyError: if there is none; the message lists the names and gives the nearest.
    """
    if name not in STUDIES:
        raise KeyError(f"no study '{name}'.{nearest(name, list(STUDIES))} The studies are: {', '.join(STUDIES)}")
    return STUDIES[name]
