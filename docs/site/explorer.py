"""The data of the page with the slider: one training of every size, from the records of the comparison with rivals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.core.paths import ROOT
from experiments.store.records import Store
from experiments.studies import rivals
from experiments.studies.rivals import CUT, FRONTS, LIMITS, WORKS

LAYERS = {
    "front20": [f"block {number}: channels" for number in range(1, 10)],
    "front_stories": [f"layer {number}: {what}" for number in (1, 2) for what in ("hidden units", "heads")],
}
"""Work → what its sizes are, in the order of a record's counts."""
TIMES = ROOT / "benchmarks" / "results" / "front.json"
"""What ``benchmarks/bench_front.py`` measured."""


def trainings() -> Iterator[dict[str, Any]]:
    """Yield what the page shows of each training with the time of all separate ones: sizes, costs and scores by share,
    and the separate trainings beside."""
    results, timed = rivals.read(rivals.FOLDER), json.loads(TIMES.read_text())
    ours = rivals.fronts(Store(rivals.FOLDER))
    for name, made, seeds in sorted(ours, key=lambda front: ([*LAYERS].index(front[0]), "teacher" not in front[1])):
        work, times = WORKS[name], {tuple(member["count"]): member["times"] for member in timed[name]["members"]}
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
            sizes = np.mean([members[share]["count"] for members in seeds], axis=0).tolist()
            steps.append(
                {
                    "share": int(share),
                    "part": float(of_made.part.mean()),
                    "cost": float(np.mean([members[share]["cost"] for members in seeds])),
                    "sizes": sizes,
                    "score": float(of_made.score.mean()),
                    "text": rivals.mean(of_made.score, digits),
                    "times": times.get(tuple(sizes)),
                    "beside": beside,
                }
            )
        yield {
            "title": work.title + (", with a teacher" if "teacher" in made else ""),
            "unit": work.unit.replace(", %", " in %").capitalize(),
            "better": work.better,
            "cost": LIMITS[work.limited],
            "layers": LAYERS[name],
            "seeds": len(seeds),
            "timed": f"batch of {timed[name]['batch']}, one thread of {timed['machine']['cpu']}",
            "steps": steps,
        }


def page() -> str:
    """Return the HTML of the slider, with its data in it."""
    text = json.dumps([*trainings()]).replace("<", r"\u003c")
    return Path(__file__).with_name("explorer.html").read_text().replace("DATA", text, 1)
