"""The TinyStories rows of table 8, on a slice of the text."""

from __future__ import annotations

from experiments.analysis.selection import Selection
from experiments.analysis.tables import OwnTable, Row, column, row


def _stories(gate: str, label: str, seeds: int) -> Row:
    return row(gate, label, seeds=seeds, runs=Selection.of({"task": "tinystories", "gate": gate}, seeds=range(seeds)))


_BITS = "<median:.4f>"
STORIES = OwnTable(
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
    text=(
        "The TinyStories rows of table 8, trained on 4,045 stories instead of two million. The models have two "
        "layers and 128 entries, use characters as tokens, and see ten million characters each, so no number can "
        "be compared with a published one. The unit is bits per character of the validation text: all nats, "
        "divided by ln 2 and the characters without the marks between stories. Lower is better. The record "
        "shows samples of each model's text and the bits of every smaller prefix."
    ),
    rank=4,
)
"""The TinyStories rows of table 8 on a slice of the text, with small models and a budget of ten million characters. The
text is not the paper's, so these numbers are not compared with its numbers."""
