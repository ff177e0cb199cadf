"""Hostile YAML is refused with its file's name, at once."""

import os

import pytest

from experiments.config.messages import parse_value, read_yaml
from experiments.core.blocks import ConfigError

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
HOSTILE = {
    "deep lists": ("a: " + "[" * 5000, "nest"),
    "deep lines": ("\n".join(" " * n + "a:" for n in range(300)), "nest"),
    "deep and closed": ("a: " + "[" * 60 + "]" * 60, "is nested more than 50 deep"),
    "an anchor inside itself": ("a: &a\n  b: *a\n", "or repeats itself by its aliases"),
    "a list inside itself": ("a: &a [*a, *a]\n", "or repeats itself by its aliases"),
    "a bomb": (BOMB, "or repeats itself by its aliases"),
    "many digits": ("a: " + "9" * 10_000, "digits"),
    "no text": (b"\xff\xfe\x00", "is not a YAML file in UTF-8"),
    "a control character": ("a: \x00", "is not a YAML file"),
    "no settings": ("- a\n", "has no settings"),
    "too long": ("a: 1  # " + "x" * 2**20, "more than the limit of 1048576"),
    "a tag of Python": ("a: !!python/object/apply:os.system ['true']\n", "tag"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(tmp_path, name):
    content, fault = HOSTILE[name]
    path = tmp_path / "mine.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=rf"mine\.yaml.*{fault}"):
        read_yaml(path)


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
