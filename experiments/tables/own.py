"""Tables of this project in the form of the paper's. The paper's file does not contain them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.analysis.selection import Selection
from experiments.tables import language, pruned
from experiments.tables.extensions import EXTENSIONS
from experiments.tables.model import MEAN_MSE, MEAN_T, MEDIAN_MSE, PM, Row, Table, column, mean_sd, row
from experiments.tables.one_d import BASELINE, FORMER
from experiments.tables.transfer import NINE, TEN


def _changed(key: str, label: str, overrides: Mapping[str, Any] | None = None) -> Row:
    return row(key, label, seeds=10, runs=BASELINE.with_overrides(overrides or {}))


SENSITIVITY = Table(
    "sensitivity",
    "What the settings of the 1D study do",
    (
        column("t", "learned t", "grown.t", MEAN_T),
        column("integer", "integer", "integer", r"<rate:.0f>\%"),
        column("soft", "soft MSE", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "trunc. MSE", "grown.truncated.mse", MEDIAN_MSE),
    ),
    (
        _changed("baseline", "baseline: width 16, boundary rate 3e-2, joint clip 0.003, cosine body rate, draw 1"),
        _changed("width8", "hidden width 8", {"gate.width": 8}),
        _changed("width32", "hidden width 32", {"gate.width": 32}),
        _changed("rate1e-2", "boundary rate 1e-2", {"train.lr_boundary": 1e-2}),
        _changed("rate2e-2", "boundary rate 2e-2", {"train.lr_boundary": 2e-2}),
        _changed("rate5e-2", "boundary rate 5e-2", {"train.lr_boundary": 5e-2}),
        _changed("rate1e-1", "boundary rate 1e-1", {"train.lr_boundary": 1e-1}),
        _changed("clip_none", "no clipping", {"train.clip": None}),
        _changed("clip_separate", "clip 0.003, body and boundary apart", {"train.clip_scope": "separate"}),
        _changed("clip_body", "clip 0.003, body alone", {"train.clip_scope": "body"}),
        _changed("clip0.03", "joint clip 0.03", {"train.clip": 3e-2}),
        _changed("constant", "constant body rate", {"train.lr_shape.kind": "constant"}),
        _changed("even", "evenly spaced points", {"task.layout": "even"}),
        *(_changed(f"draw{draw}", f"uniform points, draw {draw}", {"task.draw": draw}) for draw in (0, 2, 3, 4)),
    ),
)
"""The 1D baseline, and how it changes with each setting that the paper leaves open."""


DEPTH = Table(
    "depth",
    "Learned depth over ten seeds",
    (
        column("depth", "learned depth", "grown.depth", f"<mean:.1f>{PM}<sd:.1f> (<min:d> to <max:d>)"),
        column("soft", "soft MSE", "grown.soft.mse", MEDIAN_MSE),
        column("truncated", "trunc. MSE", "grown.truncated.mse", "<median:.2e> (<min:.1e> to <max:.1e>)"),
        column("fixed", "fixed MSE", "fixed.truncated.mse", MEDIAN_MSE),
    ),
    tuple(
        row(key, *table.row(key).labels, seeds=10, runs=runs.with_seeds(range(10)))
        for table in (NINE, TEN)
        for key, runs in table.runs.items()
    ),
)
"""The rows of the paper's tables of depth over ten seeds, with their spread. The paper shows seed 0."""

_ACCURACY = mean_sd(".2f", ".2f")
L0_LIMIT = 50.0
"""A limit beyond every draw of the noise: a gate at this limit is open or closed in every step."""


def _one_d(
    key: str, label: str, method: str, overrides: Mapping[str, Any], schedule: str = "paper", **rest: Any
) -> Row:
    """Select ten seeds with the setting before the calibration, for which these experiments were planned."""
    # L0 has its own boundary rate
    former = {name: value for name, value in FORMER.items() if method != "l0" or name == "task.draw"}
    choices = {**dict(BASELINE.choices), "method": method, "schedule": schedule}
    return row(key, label, seeds=10, runs=Selection.of(choices, former | dict(overrides)), **rest)


def _l0(key: str, label: str, overrides: Mapping[str, Any]) -> Row:
    quantities = {"size": "grown.count", "soft": "grown.truncated.mse"}
    return _one_d(key, f"$L_0$, {label}", "l0", overrides, quantities=quantities)


def _learner(method: str, name: str, size: str, *, constant: bool) -> Row:
    """Select ten seeds of a learner with the current setting, with the body's rate scheduled or constant."""
    overrides = {"train.lr_shape.kind": "constant"} if constant else {}
    runs = Selection.of({**dict(BASELINE.choices), "method": method}, overrides)
    key, label = (f"{method}_constant", f"{name}, constant body rate") if constant else (method, f"{name}, as it is")
    return row(key, label, seeds=10, runs=runs, quantities={"soft": "grown.truncated.mse", "size": size})


def _fixed(count: int, r: float) -> Row:
    """Make a row for a fixed model of ``count`` components, which has no soft form; r = 1 has no ordering weights."""
    errors = dict.fromkeys(("soft", "truncated", "median"), "fixed.truncated.mse")
    key, label = f"fixed{count}r{r:g}", f"fixed model of {count} components, $r={r:g}$"
    overrides = {"method.count": count, "gate.r": r}
    return _one_d(key, label, "fixed", overrides, quantities={"size": "config.method.count", **errors})


def _held_out(
    key: str, label: str, task: str, gate: str, overrides: Mapping[str, Any], seeds: Iterable[int], phase: str
) -> Row:
    """Select runs with separate seeds that are evaluated on held-out training data."""
    runs = Selection.of({"task": task, "gate": gate}, {"task.split": "validation", **overrides}, seeds)
    score = f"{phase}.truncated.accuracy"
    return row(
        key,
        label,
        seeds=len(runs.seeds),
        runs=runs,
        formats={"soft": (_ACCURACY,), "truncated": (_ACCURACY,), "median": ("<median:.2f>",)},
        quantities={"size": f"{phase}.t", "soft": f"{phase}.soft.accuracy", "truncated": score, "median": score},
    )


def _cora(key: str, label: str, overrides: Mapping[str, Any]) -> Row:
    return _held_out(key, f"Cora, held out, {label}", "cora", "gcn", overrides, range(100, 110), "grown")


def _mnist_from_high(key: str, label: str, overrides: Mapping[str, Any]) -> Row:
    phases = {"phases": ("grown", "from_high")}
    title = f"MNIST convolution from high, held out, {label}"
    return _held_out(key, title, "mnist", "conv", phases | dict(overrides), range(100, 102), "from_high")


def _cifar(key: str, label: str, overrides: Mapping[str, Any]) -> Row:
    alone = {"phases": ("grown",)} | dict(overrides)
    title = f"CIFAR-10 convolution, held out, {label}"
    return _held_out(key, title, "cifar10", "conv", alone, range(100, 103), "grown")


SUSPECTS = Table(
    "suspects",
    "What may explain a disagreement",
    (
        column("size", "t or count", "grown.t", MEAN_T),
        column("soft", "soft", "grown.soft.mse", MEAN_MSE),
        column("truncated", "truncated", "grown.truncated.mse", MEAN_MSE),
        column("median", "trunc., median", "grown.truncated.mse", MEDIAN_MSE),
    ),
    (
        _l0("l0", "limit ln 100", {}),
        _l0("l0_limit", "limit 50", {"method.limit": L0_LIMIT}),
        _l0(
            "l0_constant",
            "limit 50, constant body rate",
            {"method.limit": L0_LIMIT, "train.lr_shape.kind": "constant"},
        ),
        _l0("l0_width", "limit 50, hidden width 32", {"method.limit": L0_LIMIT, "gate.width": 32}),
        *(
            _learner(method, name, size, constant=constant)
            for method, name, size in (("awnn", "AWNN", "grown.count"), ("ste", "straight-through", "grown.t"))
            for constant in (False, True)
        ),
        _one_d("decay", "learn $r$ and $t$", "decay", {}),
        _one_d("decay_no_alpha", r"learn $r$ and $t$, $\alpha=0$", "decay", {}, "no_alpha"),
        *(_fixed(count, r) for count in (7, 8) for r in (0.5, 1.0)),
        _cora("cora", "as it is", {}),
        _cora("cora_no_decay", "no weight decay", {"train.weight_decay": 0.0}),
        _cora("cora_short", "rate 1e-2, 200 steps", {"train.lr": 1e-2, "train.steps": 200}),
        _mnist_from_high("mnist", "as it is", {}),
        _mnist_from_high("mnist_rate", "boundary rate 1e-1", {"train.lr_boundary": 1e-1}),
        _cifar("cifar10", "as it is", {}),
        _cifar("cifar10_rate", "boundary rate 1e-1", {"train.lr_boundary": 1e-1}),
        _cifar("cifar10_long", "20 epochs", {"train.epochs": 20}),
    ),
)
"""Planned experiments on lines of docs/disagreements.md, each next to the unchanged runs; see docs/log.md."""


def _stories(gate: str, label: str, seeds: int) -> Row:
    return row(gate, label, seeds=seeds, runs=Selection.of({"task": "tinystories", "gate": gate}, seeds=range(seeds)))


_BITS = "<median:.4f>"
STORIES = Table(
    "stories",
    "TinyStories slice (3.5 MB): bits per validation character, medians",
    (
        column("t", "learned t", "grown.t", r"\texttt{[<median:.2f*, >]}"),
        column("integer", "integer", "integer", r"<rate:.0f>\%"),
        column("soft", "soft", "grown.soft.bits_per_character", _BITS),
        column("truncated", "trunc", "grown.truncated.bits_per_character", _BITS),
        column("fixed", "fixed", "fixed.truncated.bits_per_character", _BITS),
        column("high", "from high, trunc", "from_high.truncated.bits_per_character", _BITS),
        column("prunes_back", "prunes back?", "prunes_back", "<aggregate:word>"),
    ),
    (
        _stories("heads", r"attention heads ($\times 2$ layers)", 3),
        _stories("slices", r"FFN blocks ($\times 2$ layers)", 3),
        _stories("heads_slices", r"heads + FFN blocks ($\times 2$ layers)", 1),
        _stories("states", r"Mamba state dim. $N$ ($\times 2$ layers)", 1),
    ),
)
"""The TinyStories rows of table 8 on a slice of the text, with small models and a budget of ten million characters. The
text is not the paper's, so these numbers are not compared with its numbers."""

OWN = (SENSITIVITY, DEPTH, SUSPECTS, STORIES, *language.SMOLLM2, *pruned.SMOLLM2, *EXTENSIONS)
