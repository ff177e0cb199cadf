"""The list of size attributes, which the tracer reads, names what a cut sets."""

import pytest
from torch import nn

from ngn.cut_modules import SIZES, update_attributes

CUT = [
    (nn.Linear(4, 6), (3, 2)),
    (nn.Embedding(6, 4), (3, 2)),
    (nn.Conv2d(4, 8, 1, groups=2), (4, 2)),
    (nn.BatchNorm1d(6), (3,)),
    (nn.PReLU(6), (3,)),
    (nn.GroupNorm(2, 6), (3,)),
]
"""Modules, each with fewer entries of its weight."""


@pytest.mark.parametrize(("module", "left"), CUT, ids=lambda part: type(part).__name__)
def test_it_names_what_a_cut_sets(module, left):
    before = dict(vars(module))
    module.weight.data = module.weight.data[tuple(slice(size) for size in left)]
    update_attributes(module, "weight", 0)
    changed = {name for name, value in vars(module).items() if isinstance(value, int) and value != before[name]}
    (named,) = [names for kind, names in SIZES if isinstance(module, kind)]
    assert changed == named


def test_each_kind_is_cut_here():
    assert all(sum(isinstance(module, kind) for module, _ in CUT) == 1 for kind, _ in SIZES)
