"""Settings per kind of groups: checked, resolved, and part of a run's identity if they are set."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest
from pydantic import ValidationError

from experiments.config.compose import compose
from experiments.config.identity import Run, identity_keys
from experiments.core.config import Component
from experiments.core.groups import OrderedGroup
from experiments.methods.fixed import Fixed
from experiments.runs.stack import Stack


class Blocks(Component):
    """Settings of three layers of attention heads and slices."""

    group_kinds: ClassVar[tuple[str, ...]] = ("heads", "slices")

    component: Literal["blocks"]

    @property
    def groups(self):
        return 6


KINDS = {"heads": {"K": 8}, "slices": {"K": 16, "r": 0.75, "t0": 2.0, "delta": -0.5, "lambda0": 1e-2}}


def configuration(gate):
    """Make a configuration with these components. The task does not matter here."""
    return compose({"task": "cora"}).model_copy(update={"gate": gate})


def test_a_kind_has_its_own_settings_or_those_of_the_block():
    gate = Blocks.model_validate({"component": "blocks", "K": None, "kinds": KINDS})
    config = configuration(gate)
    assert [gate.K_of(group) for group in range(6)] == [8, 16] * 3
    assert [gate.high_start(group) for group in range(2)] == [7.0, 15.0]
    heads, slices = (OrderedGroup(Stack((Run(config, "blocks"),)), group, 64) for group in (2, 3))
    assert (heads.r, heads.count_gate()["t0"], heads.lambda0) == (0.5, 1e-4, config.schedule.lambda0)
    assert (slices.r, slices.count_gate()["t0"], slices.lambda0) == (0.75, 2.0, 1e-2)
    made = config.method.make(slices)
    assert (made.K, float(made.lambda0), made.delta) == (16, 1e-2, -0.5)
    assert float(made.size()) == pytest.approx(2.0)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # no task has these components
def test_settings_of_a_kind_are_part_of_the_identity_like_those_of_the_block():
    plain = configuration(Blocks.model_validate({"component": "blocks", "K": 8}))
    assert not [key for key in identity_keys(plain) if "kinds" in key], "as before there were kinds"
    config = configuration(Blocks.model_validate({"component": "blocks", "K": 8, "kinds": KINDS}))
    assert identity_keys(config)["gate.kinds.slices.K"] == 16
    fixed = config.model_copy(update={"method": Fixed(name="fixed", count=[1] * 6)})
    assert [key for key in identity_keys(fixed) if "kinds" in key] == ["gate.kinds.slices.r"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"K": 4, "kinds": {"head": {"K": 8}}}, "has no kind of groups 'head'; they are: heads, slices"),
        ({"K": 4, "kinds": {"heads": {"t0": 5.0}}}, "t0 = 5 lies beyond the K = 4"),
        ({"K": 4, "kinds": {"heads": {"k": 8}}}, "Extra inputs"),
        ({"K": 4, "kinds": {"heads": {"delta": 0.3}}}, "must be 0.5"),
    ],
)
def test_invalid_settings_of_kinds_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Blocks.model_validate({"component": "blocks", **settings})


def test_a_fixed_model_has_at_most_the_candidates_of_each_kind():
    config = configuration(Blocks.model_validate({"component": "blocks", "K": 4, "kinds": {"slices": {"K": 16}}}))
    Fixed(name="fixed", count=[4, 9] * 3).check(config)
    with pytest.raises(ValueError, match=r"exceeds the gate\.K=4"):
        Fixed(name="fixed", count=[9, 4] * 3).check(config)
