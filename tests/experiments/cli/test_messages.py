"""Messages about broken files, incomplete additions and wrong values use the suite's own words."""

import itertools
import os
import re

import pytest

from experiments.cli import app
from experiments.config import compose
from experiments.config.messages import parse_value, read_yaml
from experiments.config.schema import legal_keys
from experiments.core.blocks import ConfigError
from experiments.runs.sweeps import settings

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
BROKEN = {
    "an open list": ("gate: {K: [1, 2\nschedule: 3\n", "line 2: "),
    "a key twice": ("a: 1\ngate: {K: 8}\ngate: {K: 9}\n", "line 3: the key 'gate' occurs a second time"),
    "a tab": ("gate:\n\tK: 8\n", "line 2: a tab; indent with spaces"),
    "deep lists": ("a: " + "[" * 5000, "nest"),
    "deep and closed": ("a: " + "[" * 60 + "]" * 60, "is nested more than 50 deep"),
    "an anchor inside itself": ("a: &a\n  b: *a\n", "or repeats itself by its aliases"),
    "a bomb": (BOMB, "or repeats itself by its aliases"),
    "many digits": ("a: " + "9" * 10_000, "digits"),
    "no text": (b"\xff\xfe\x00", "is not a YAML file in UTF-8"),
    "no settings": ("- a\n", "has no settings"),
    "too long": ("a: 1  # " + "x" * 2**20, "more than the limit of 1048576"),
    "a tag of Python": ("a: !!python/object/apply:os.system ['true']\n", "tag"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_or_hostile_file_is_refused_in_one_line(name, tmp_path, monkeypatch, capsys):
    content, fault = BROKEN[name]
    path = tmp_path / "broken.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    compose._selection.cache_clear()
    known = compose.options
    monkeypatch.setattr(compose, "options", lambda group: dict.fromkeys(known(group), path))
    for command in ([], ["--help"], ["--cfg", "job"]):
        assert app.main(command) == 2
        shown = capsys.readouterr().err
        assert shown.startswith(f"refused: {path}")
        assert fault in shown
        assert shown.count("\n") == 1
    with pytest.raises(ConfigError, match=r"broken\.yaml") as told:
        settings.load_cluster(str(path))
    assert fault in str(told.value)


@pytest.mark.parametrize("place", ["folder", "circle", "nowhere", "unreadable", "pipe"])
def test_what_stands_in_place_of_a_file_is_named(tmp_path, place):
    path = tmp_path / "mine.yaml"
    if place == "folder":
        path.mkdir()
    elif place == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"circle": "mine.yaml", "nowhere": "x", "unreadable": "/proc/self/mem"}[place])
    with pytest.raises(ConfigError, match=r"mine\.yaml: unreadable"):
        read_yaml(path)


def test_ordinary_anchors_are_read(tmp_path):
    (tmp_path / "mine.yaml").write_text("a: &a {b: 1}\nc: *a\nd: {e: *a}\n")
    assert read_yaml(tmp_path / "mine.yaml") == {"a": {"b": 1}, "c": {"b": 1}, "d": {"e": {"b": 1}}}


@pytest.mark.parametrize("value", ["[" * 5000, "&a [*a]", "[1", "9" * 10_000])
def test_a_hostile_value_of_the_command_line_is_refused(value):
    with pytest.raises(ValueError, match=r"value|digits|expected|nest"):
        parse_value(value)


def test_an_incomplete_addition_is_reported(tmp_path, monkeypatch, capsys):
    """The pages of docs/extending have the other messages."""
    (tmp_path / "conf" / "gate").mkdir(parents=True)
    (tmp_path / "conf" / "gate" / "new.yaml").write_text("gate: {component: mlp}")
    monkeypatch.setenv("NGN_PLUGINS", str(tmp_path))
    compose.options.cache_clear()
    assert app.main(["gate=new"]) == 2
    assert "must contain `gate: {component: new}`" in capsys.readouterr().err
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
