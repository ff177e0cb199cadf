"""Messages about broken files, incomplete additions and wrong values use the suite's own words."""

import itertools
import re

import pytest

from experiments.cli import app
from experiments.config import compose
from experiments.config.schema import legal_keys
from experiments.core.blocks import ConfigError
from experiments.runs.sweeps import settings

BROKEN = {
    "gate: {K: [1, 2\nschedule: 3\n": "line 2: ",
    "a: 1\ngate: {K: 8}\ngate: {K: 9}\n": "line 3: the key 'gate' occurs a second time",
    "gate:\n\tK: 8\n": "line 2: a tab; indent with spaces",
}


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_named_with_the_line(content, tmp_path, monkeypatch, capsys):
    path = tmp_path / "broken.yaml"
    path.write_text(content)
    compose._selection.cache_clear()
    known = compose.options
    monkeypatch.setattr(compose, "options", lambda group: dict.fromkeys(known(group), path))
    for command in ([], ["--help"], ["--cfg", "job"]):
        assert app.main(command) == 2
        shown = capsys.readouterr().err
        assert shown.startswith(f"refused: {path}")
        assert BROKEN[content] in shown
        assert shown.count("\n") == 1
    with pytest.raises(ConfigError, match=r"broken\.yaml") as told:
        settings.load_cluster(str(path))
    assert BROKEN[content] in str(told.value)


HALF_ADDED = {
    "conf/task/new.yaml": ("task: {name: new}", "task=new", "/tasks has no settings class for 'new'"),
    "conf/method/new.yaml": (
        "method: {name: new}",
        "method=new",
        "/methods has no settings class for 'new'",
    ),
    "conf/gate/new.yaml": ("gate: {component: mlp}", "gate=new", "must contain `gate: {component: new}`"),
}


@pytest.mark.parametrize("file", HALF_ADDED)
def test_incomplete_additions_are_reported(file, tmp_path, monkeypatch, capsys):
    content, command, missing = HALF_ADDED[file]
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content)
    monkeypatch.setenv("NGN_PLUGINS", str(tmp_path))
    compose.options.cache_clear()
    assert app.main([command]) == 2
    assert missing in capsys.readouterr().err
    compose.options.cache_clear()


WRONG = (True, "x", -1, 0.5, float("nan"), [], ["x"], {}, {"x": 1}, None, 1e300)


def test_messages_use_no_words_of_pydantic():
    foreign = re.compile(r"[Ii]nput|valid (integer|number|string|boolean|list|dict)|[Tt]ype|pydantic|function|tag '")
    for choices in ({}, {"method": "l0"}, {"task": "twist"}, {"task": "cifar10"}, {"task": "manifold"}):
        keys = [key for key in legal_keys(compose.selection(choices)) if key != "seed"]
        for key, value in itertools.product(keys, WRONG):
            try:
                message = repr(compose.compose(choices, {key: value}).seed)
            except ConfigError as told:
                message = str(told)
            assert not foreign.search(message), (key, value)
    for key in settings.Cluster.model_fields:
        with pytest.raises(ConfigError, match=f"{key}.*must be"):
            settings.load_cluster("local", [f"{key}=[{{}}]"])
