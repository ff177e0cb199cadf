"""Name the runs behind a row: an exact configuration and its seeds. Nothing is searched or guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from experiments.config.compose import compose
from experiments.config.identity import Run, canonical, identity_keys, name_with
from experiments.core.config import Config
from experiments.core.training import Seed
from experiments.methods.fixed import fixed_size

MOST_SEEDS = 50
"""Seeds by which a row is judged, as far as there are records. No study has more."""

Items = tuple[tuple[str, Any], ...]
Companion = Callable[["Selection", int, Mapping[str, Any]], "Selection"]
"""(the selection, a seed, that seed's record) → the selection of its companion run."""


@dataclass(frozen=True)
class Selection:
    """Runs that differ only in their seed.

    Attributes:
        companions: per seed, further runs that follow from its record, such as a fixed model of the learned size.
        about: name of a companion or a phase. The selection then means those runs, or that phase of its own runs.
    """

    choices: Items
    overrides: Items
    seeds: tuple[int, ...]
    companions: tuple[tuple[str, Companion], ...] = ()
    about: str = ""

    @staticmethod
    def of(
        choices: Mapping[str, str],
        overrides: Mapping[str, Any] | None = None,
        seeds: Iterable[int] = range(10),
        companions: Mapping[str, Companion] | None = None,
    ) -> Selection:
        """Name runs as :func:`experiments.config.compose.compose` does; ``overrides`` are dotted key → value."""
        return Selection(
            tuple(sorted(choices.items())),
            tuple(sorted((overrides or {}).items())),
            tuple(seeds),
            tuple(sorted((companions or {}).items())),
        )

    def config(self, seed: int) -> Config:
        """Return the checked configuration of one seed.

        Raises:
            experiments.core.blocks.ConfigError: if the selection is not a valid configuration.
        """
        return _of_any_seed(self.choices, self.overrides).model_copy(update={"seed": Seed(value=seed)})

    def with_seeds(self, seeds: Iterable[int]) -> Selection:
        """Return the same configuration with other seeds."""
        return replace(self, seeds=tuple(seeds))

    def only(self, *names: str) -> Selection:
        """Return the same runs with these companions alone."""
        return replace(self, companions=tuple(pair for pair in self.companions if pair[0] in names))

    def with_overrides(self, overrides: Mapping[str, Any], choices: Mapping[str, str] | None = None) -> Selection:
        """Return the same runs with other values of some keys and choices."""
        chosen = tuple(sorted({**dict(self.choices), **(choices or {})}.items()))
        return replace(self, choices=chosen, overrides=tuple(sorted({**dict(self.overrides), **overrides}.items())))


@cache
def _of_any_seed(choices: Items, overrides: Items) -> Config:
    return compose(dict(choices), dict(overrides))


@cache
def _identity(choices: Items, overrides: Items) -> Mapping[str, Any]:
    return identity_keys(_of_any_seed(choices, overrides))


def keys_of(selection: Selection, seed: int) -> dict[str, Any]:
    """Return :func:`~experiments.config.identity.identity_keys` for a seed, computed once for all seeds."""
    return {**_identity(selection.choices, selection.overrides), "seed.value": seed}


_SEED = '"seed.value":'


@cache
def _around_seed(choices: Items, overrides: Items) -> tuple[str, str]:
    """Return the canonical text of a configuration before and after its seed, as thousands differ in nothing else."""
    before, seed, after = canonical({**_identity(choices, overrides), "seed.value": 0}).partition(f"{_SEED}0")
    assert seed, "every configuration has a seed"
    return before + _SEED, after


@cache
def selected_runs(selection: Selection) -> tuple[Run, ...]:
    """Return every run of a selection, in the order of its seeds."""
    before, after = _around_seed(selection.choices, selection.overrides)
    any_seed = _of_any_seed(selection.choices, selection.overrides)
    configs = ((seed, any_seed.model_copy(update={"seed": Seed(value=seed)})) for seed in selection.seeds)
    return tuple(Run(one, name_with(one, seed, f"{before}{seed}{after}")) for seed, one in configs)


def fixed_of_learned_count(selection: Selection, seed: int, record: Mapping[str, Any]) -> Selection:
    """Select the ``method=fixed`` run with the size that this seed retained, and with the same seed."""
    counts = record["phases"]["grown"]["count"]
    choices = {**dict(selection.choices), "method": "fixed"}
    # A fixed model drops the learner's own settings but keeps the ordering weights w_k = r^k of gate.r.
    kept = {key: value for key, value in selection.overrides if not key.startswith("method.")}
    if min(counts) == 0:
        kept["gate.delta"] = -0.5  # a count of zero needs it; not part of a fixed model's identity
    return Selection.of(choices, {**kept, "method.count": fixed_size(counts)}, (seed,))


def base_of(selection: Selection, seed: int, record: Mapping[str, Any]) -> Selection:
    """Select the run that scores the pretrained model; it is the same for all seeds."""
    kept = {key: value for key, value in selection.overrides if key.startswith(("task.", "model."))}
    kept.pop("task.replay", None)  # this run does not train
    return Selection.of({**dict(selection.choices), "gate": "lora", "method": "base"}, kept, (0,))


def _rival(method: str) -> Companion:
    def find(selection: Selection, seed: int, record: Mapping[str, Any]) -> Selection:
        kept = {key: value for key, value in selection.overrides if not key.startswith("method.")}
        aim = {"method.target": sum(record["phases"]["grown"]["count"]), "method.like": record["run_id"]}
        return Selection.of({**dict(selection.choices), "method": method}, {**kept, **aim}, (seed,))

    return find


RIVALS: Mapping[str, Companion] = {name: _rival(name) for name in ("sora", "adalora", "svd", "eva", "uniform")}
"""Method → its run with the total count that a learned model retained."""


def _cut(method: str, overrides: Mapping[str, Any]) -> Companion:
    """Select a pruned model with the counts that a run learned, but with blocks chosen in another way."""

    def find(selection: Selection, seed: int, record: Mapping[str, Any]) -> Selection:
        kept = {key: value for key, value in selection.overrides if not key.startswith(("method.", "schedule."))}
        counts = record["phases"]["grown"]["count"]
        aim = {"method.count": tuple(counts)}
        if method == "uniform":
            aim = {"method.target": sum(counts), "method.like": record["run_id"]}
        choices = {**dict(selection.choices), "method": method}
        return Selection.of(choices, {**kept, **aim, **overrides}, (seed,), {"base": base_of})

    return find


PRUNED: Mapping[str, Companion] = {
    "wanda": _cut("fixed", {"gate.rank_by": "wanda"}),
    "even": _cut("uniform", {"gate.rank_by": "wanda"}),
    **{f"random{draw}": _cut("fixed", {"gate.rank_by": "random", "gate.draw": draw}) for draw in range(3)},
}
"""Models pruned to the sizes that NGN learned: by Wanda's score, evenly, and in three random draws."""
