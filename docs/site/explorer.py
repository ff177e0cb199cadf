"""The data of the page with the slider: one training of every size, from the records of the comparison with rivals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.core.paths import ROOT
from experiments.store.records import Store
from experiments.studies import rivals
from experiments.studies.rivals import CUT, FRONTS, LIMITS, WORKS

PARTS = {"mlp": "hidden units", "attn": "heads"}
LAYERS = {
    "front20": {f"layer{n // 3 + 1}.{n % 3}.conv1": f"block {n + 1}: channels" for n in range(9)},
    "front_stories": {
        "tokens": "residual stream: features",
        **{f"layers.{n}.{part}": f"layer {n + 1}: {what}" for n in range(2) for part, what in PARTS.items()},
    },
}
"""Work → what its sizes are, by their names."""
SAID = {"teacher": ", with a teacher", "residual": ", residual stream narrowed, too"}
TIMES = ROOT / "benchmarks" / "results" / "front.json"
"""What ``benchmarks/bench_front.py`` measured."""


def trainings() -> Iterator[dict[str, Any]]:
    """Yield what the page shows of each training with the time of all separate ones: sizes, costs and scores by share,
    and the separate trainings beside."""
    results, timed = rivals.read(rivals.FOLDER), json.loads(TIMES.read_text())
    ours = rivals.fronts(Store(rivals.FOLDER))
    for name, made, seeds in sorted(ours, key=lambda front: ([*LAYERS].index(front[0]), " time" in front[1])):
        work, measured = WORKS[name], {member["share"]: member for member in timed[name][made]}
        digits = f".{work.digits}f"
        own = results[(results.work == name) & (results.equal == "steps")]
        steps = []
        for share in sorted(seeds[0], key=int):
            there = own[own.share == int(share)]
            beside = {
                method: {"at": float(of.part.mean()), "score": float(of.score.mean()), "seeds": len(of),
                         "text": rivals.mean(of.score, digits)}
                for method, of in there.groupby("method", sort=False)
                if method not in (*FRONTS, CUT, "as given")
            }  # fmt: skip
            of_made = there[there.method == made]
            costs = {members[share]["cost"] for members in seeds}
            assert costs == {measured[int(share)]["cost"]}, f"run benchmarks/bench_front.py again: {name}, {costs}"
            sizes = measured[int(share)]["sizes"]
            steps.append(
                {
                    "share": int(share),
                    "part": float(of_made.part.mean()),
                    "cost": costs.pop(),
                    "sizes": [sizes[layer] for layer in LAYERS[name] if layer in sizes],
                    "score": float(of_made.score.mean()),
                    "text": rivals.mean(of_made.score, digits),
                    "times": measured[int(share)]["times"],
                    "beside": beside,
                }
            )
        yield {
            "title": work.title + next((text for word, text in SAID.items() if word in made), ""),
            "unit": work.unit.replace(", %", " in %").capitalize(),
            "better": work.better,
            "cost": LIMITS[work.limited],
            "layers": [label for layer, label in LAYERS[name].items() if layer in sizes],
            "seeds": len(seeds),
            "timed": f"batch of {timed[name]['batch']}, one thread of {timed['machine']['cpu']}",
            "steps": steps,
        }


def page() -> str:
    """Return the HTML of the slider, with its data in it."""
    text = json.dumps([*trainings()]).replace("<", r"\u003c")
    return Path(__file__).with_name("explorer.html").read_text().replace("DATA", text, 1)
