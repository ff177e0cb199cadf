"""Numbers of the form "mean ± deviation" in sections of docs/ that name a study, against the records of that study.

Such a number may also be published, or stand in a table of the paper under the stated setting.
"""

import re
from functools import cache

import numpy as np
import page_samples
import pytest

from experiments.analysis.compare import MOST_SEEDS
from experiments.analysis.terminal import tex_to_text
from experiments.config.identity import flatten
from experiments.core.paths import ROOT
from experiments.studies import STUDIES, macros

_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
PAIR = re.compile(rf"({_NUMBER}) ± ({_NUMBER})")
NAMED = re.compile(r"stud(?:y|ies) `(\w+)`|tables? \*(\w+)\*")
ELSEWHERE = {"6.10 ± 1.04", "78.94 ± 1.97", "2.20 ± 0.40"}
"""Runs of a review, which are no records of this project; their sections say so."""


def sections(page):
    """(heading, text in one line, names of studies) of every section that names a study."""
    for section in re.split(r"\n(?=#)", page.read_text()):
        text = " ".join(section.split())
        names = {name for found in NAMED.findall(text) for name in found if name in STUDIES}
        if names:
            yield section.splitlines()[0], text, names


def unit(printed):
    """One unit of the last printed digit: 0.01 of 4.84, 1e-4 of 6.7e-3."""
    digits, _, exponent = printed.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def fits(printed, pair):
    """Whether a pair rounds to what is printed, up to the rounding of floating-point sums."""
    return all(abs(float(text) - number) <= 0.501 * unit(text) for text, number in zip(printed, pair, strict=True))


def numbers(run):
    """Every number of a run and of its companions; of lists each of the first two and the sum."""
    found = {}

    def add(name, value):
        if isinstance(value, list) and value and all(type(one) in (int, float) for one in value):
            found.update({f"{name}.{at}": float(one) for at, one in enumerate(value[:2])})
            found[f"{name}.sum"] = float(sum(value))
        elif type(value) in (int, float):
            found[name] = float(value)

    for prefix, of in {"": run, **run.companions}.items():
        for phase, content in of.record["phases"].items():
            for name, value in flatten(content).items():
                add(f"{prefix}/{phase}.{name}", value)
    return found


@cache
def of_selection(selection):
    """Mean and deviation of every number, over all seeds, the first ten or three, and the others."""
    rows = [(run.seed, numbers(run)) for run in page_samples.own_reader().collect(selection).runs]
    pairs = []
    for first, end in ((0, None), (0, 10), (10, None), (0, 3), (3, None)):
        own = [row for seed, row in rows if seed >= first and (end is None or seed < end)]
        for name in set.intersection(*map(set, own)) if len(own) > 1 else ():
            values = np.array([row[name] for row in own])
            pairs.append((float(values.mean()), float(values.std())))
    return tuple(pairs)


def of_the_tables():
    """What the paper's tables print, ours and published."""
    items = page_samples.own_report().items
    texts = [tex_to_text(text) for item in items for text in (item.cell.text, item.published_text)]
    return [(float(mean), float(sd)) for text in texts for mean, sd in PAIR.findall(text)]


def missing(text, known):
    """The printed pairs of a text that are none of the known ones."""
    printed = [found for found in PAIR.findall(text) if " ± ".join(found) not in ELSEWHERE]
    return [" ± ".join(pair) for pair in printed if not any(fits(pair, one) for one in known)]


@pytest.mark.slow
def test_numbers_beside_a_study_are_those_of_its_records():
    wrong, printed = {}, of_the_tables()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for heading, text, names in sections(page) if page.name != "results.md" else ():
            if PAIR.search(text):
                own = [pair for name in names for selection in STUDIES[name].make() for pair in of_selection(selection)]
                stated = [pair for row in rows_of(names) for pair in of_selection(row)]
                wrong[f"{page.name} {heading}"] = missing(text, [*printed, *own, *stated])
    assert wrong
    assert not any(wrong.values()), wrong


def rows_of(names):
    """The rows of the paper's tables whose task is that of a study, with all their seeds."""
    tasks = {dict(selection.choices).get("task") for name in names for selection in STUDIES[name].make()[:1]}
    return [
        row.runs.with_seeds(range(MOST_SEEDS))
        for table in macros()
        for row in table.rows
        if row.runs is not None and dict(row.runs.choices).get("task") in tasks
    ]
