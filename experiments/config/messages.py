"""Error messages about files and settings, for the person who wrote them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from experiments.core.blocks import ConfigError
from experiments.core.reading import read_regular

WORDS = {
    "int": "must be a whole number",
    "float": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "bool": "must be true or false",
    "string_pattern_mismatch": "must have the form {pattern}",
    "string": "must be text",
    "list": "must be a list, such as [1,2]",
    "dict": "must be a block of settings",
    "model": "must be a block of settings",
    "dataclass": "must be a block of settings",
    "literal_error": "must be {expected}",
    "too_short": "needs {min_length} or more entries",
    "too_long": "takes at most {max_length} entries",
    "missing": "is missing",
    "union_tag_invalid": "{discriminator} must be one of {expected_tags}",
    "union_tag_not_found": "{discriminator} is missing",
}
"""Error type in pydantic, or its part before "_" → our words. A type of value covers all failures to be that type."""

YAML_BYTES, YAML_DEPTH, YAML_VALUES = 2**20, 50, 100_000
"""Limits of a file of settings: its size, how deep it is nested, and its values once aliases are expanded."""


def in_words(fault: Any) -> str:
    """Describe one fault of a pydantic error, without its key."""
    kind = str(fault["type"])
    words = WORDS.get(kind) or WORDS.get(kind.split("_")[0]) or str(fault["msg"]).removeprefix("Value error, ")
    context = {
        name: f"{value:g}" if isinstance(value, float) else value for name, value in fault.get("ctx", {}).items()
    }
    return words.format_map(context) if words in WORDS.values() else words


def explain(
    error: ValidationError, content: Mapping[str, Any], unknown: Callable[[str], str], file: str = "your file"
) -> str:
    """Return one line per wrong key of the checked ``content``.

    The paths of pydantic also contain the types that a value may have (``task.mnist.split``, ``method.count.int``).
    The lines omit these, and one line joins the faults of several types.

    Args:
        unknown: returns the message for an unknown key.
        file: the file in which to set missing values (``???``).
    """
    lines: dict[str, list[str]] = {}
    for fault in error.errors():
        place: Any = content
        keys: list[str] = []
        for at, part in enumerate(fault["loc"]):
            if isinstance(place, dict):
                kind = part in place.values() and at + 1 < len(fault["loc"])  # gate={component: layers, layers: 10}
                inside = part in place and not kind
            else:
                inside = isinstance(place, list) and isinstance(part, int)
            if inside:
                keys.append(str(part))
                place = place[part]
        if fault["type"] == "missing":
            keys.append(str(fault["loc"][-1]))
        key, value = ".".join(keys), fault["input"]
        words = [] if isinstance(value, (dict, list)) else [f"(given: {value!r})"]
        if fault["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            lines[unknown(key)] = []
        elif value == "???":
            lines[key] = [f"has no value; set it in {file}"]
        elif key in lines:
            lines[key].insert(1, f"or {in_words(fault)}")
        else:
            lines[key] = [in_words(fault), *words]
    return "\n".join(" ".join([f"{key}:" if key and words else key, *words]).strip() for key, words in lines.items())


def _require_small(content: Any, where: str) -> None:
    """Raise a ConfigError if settings are nested deeply, or endless or huge once the aliases of YAML are expanded."""
    count, left = 0, [(content, 0)]
    while left:
        value, depth = left.pop()
        count += 1
        if count > YAML_VALUES or depth > YAML_DEPTH:
            raise ConfigError(
                f"{where}: is nested more than {YAML_DEPTH} deep, or repeats itself by its aliases, to more than "
                f"{YAML_VALUES} values"
            )
        if isinstance(value, dict | list):
            left += [(inner, depth + 1) for inner in (value.values() if isinstance(value, dict) else value)]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # libyaml is ten times as fast
    """The reader of Hydra's files: 1e-4 is a number, a date is text, and a key must not occur twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key, _ in node.value:
            if key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"found duplicate key {key.value}", key.start_mark)
            keys.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag != "tag:yaml.org,2002:timestamp"]
    for first, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"([-+]?\d[\d_]*\.?[\d_]*([eE][-+]?\d+)?|\.\d[\d_]*([eE][-+]\d+)?)$"),
    list("-+0123456789."),
)


def parse_value(text: str) -> Any:
    """Parse a value of the command line as YAML; a ValueError if it is not YAML, or is nested too deeply."""
    try:
        value = yaml.safe_load(text)
        _require_small(value, "the value")
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None
    except (yaml.YAMLError, ConfigError) as fault:
        raise ValueError(" ".join(str(fault).split())) from None
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the settings in a YAML file; 1e-4 is a number. A ConfigError has the file, the line and the fault."""
    try:
        text = read_regular(path, YAML_BYTES).decode()
        content = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f", line {mark.line + 1}"
        problem = str(error.problem)
        if mark is not None and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])[: mark.column + 1]:
            problem = "a tab; indent with spaces"
        elif problem.startswith("found duplicate key"):
            problem = f"the key '{problem.split()[-1]}' occurs a second time"
        elif error.context and error.context_mark and mark and error.context_mark.line != mark.line:
            problem += f" ({error.context}, which starts in line {error.context_mark.line + 1})"
        raise ConfigError(f"{path}{where}: {problem}") from None
    except OSError as error:
        raise ConfigError(f"{path}: unreadable ({error.strerror or error})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not a YAML file in UTF-8 ({' '.join(str(error).split())})") from None
    _require_small(content, str(path))
    if not isinstance(content, dict | None):
        raise ConfigError(f"{path}: has no settings; write them as lines `key: value`")
    return {str(key): value for key, value in (content or {}).items()}
