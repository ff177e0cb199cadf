"""Settings on the page, and the origin beside every value in ``conf/``."""

import re

import yaml

from experiments.analysis.selection import Selection
from experiments.core.paths import CONF
from experiments.report.content import settings_of

MARK = re.compile(r"# (not from the )?paper(: .|;|$)")
GROUPS = ("task", "gate", "setting", "method")
"""The groups whose files hold scientific values."""


def keys(path):
    """``block.key`` of every value of a file → whether a comment behind it, above it or behind its block is a mark."""
    found = {}
    block, of_block, above = "", False, False
    for line in path.read_text().splitlines():
        marked = MARK.search(line) is not None
        if (entry := re.match(r"(  )?(\w+):( *[^ #].*)?", line)) is None:
            above = marked
            continue
        indent, key, value = entry.groups()
        if indent is None and value is None:
            block, of_block = f"{key}.", marked
        else:
            found[f"{block if indent else ''}{key}"] = marked or above or (indent is not None and of_block)
        above = False
    return found


def test_every_value_has_an_origin_beside_it_or_in_a_file_that_is_merged_before():
    shared = {key for key, marked in keys(CONF / "config.yaml").items() if marked}
    per_file = {path: keys(path) for group in GROUPS for path in (CONF / group).glob("*.yaml")}
    assert len(per_file) > 50
    bare = {
        f"{path.parent.name}/{path.name}: {key}"
        for path, found in per_file.items()
        for key, marked in found.items()
        if not marked
        and key not in shared
        and not any(other.get(key) for place, other in per_file.items() if place.parent != path.parent)
    }
    named = {name for name in bare if not re.search(r": (defaults|\w+\.(name|component))$", name)}
    assert not named, "write '# paper: where' or '# not from the paper: how' beside each"


def test_settings_are_the_composed_values_with_their_files():
    standard = {"task": "regression1d", "gate": "mlp"}
    price = Selection.of(standard, {"schedule.lambda0": 1e-6}, range(2))
    one, other = settings_of([Selection.of(standard), price, Selection.of({"task": "mnist", "gate": "conv"})])
    assert (one.task, one.gate, other.task, other.gate) == ("regression1d", "mlp", "mnist", "conv")
    values = yaml.safe_load(one.values)
    assert (values["gate.K"], values["schedule.lambda0"]) == (32, 1e-4), "those of the setting, not of a study"
    assert [path.name for path in other.files] == [
        "config.yaml", "mnist.yaml", "conv.yaml", "none.yaml", "mnist-conv.yaml", "ngn.yaml"
    ]  # fmt: skip
