"""Convert the files of the comparison with rivals to records, once.

    python scripts/convert_rivals.py benchmarks/results/rivals

NGN and its sizes from scratch, two files, become the phases of one record. Peaks of memory, measured by themselves, go
into the records of seed 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from experiments.config.compose import compose
from experiments.config.identity import run_id, scientific
from experiments.config.numerics import numerics
from experiments.contract.config import Config
from experiments.methods.pruning import Cut
from experiments.store.record import Record
from experiments.store.records import Store
from experiments.store.result import Result
from experiments.studies.rivals import FOLDER, METHODS, WORKS

Unit = dict[str, Any]
SCRATCH = "NGN's sizes from scratch"
DIFFERS = (
    "no run of the suite: seconds are processor seconds; steps, rates and batches are those of `config`, but the rate "
    "was the lesser of a ramp and a cosine over all steps"
)
SCORED = "; characters and start tokens were averaged together"
PLAIN = "; images were mirrored, not moved, and standardised by 121 and 63"


def name_of(unit: Unit) -> str:
    if unit["work"] == "transformer" and unit["scale"] == "small":
        return "transformer_small"
    return {"longer20": "trained20", "longer56": "trained56"}.get(unit["work"], unit["work"])


def config_of(unit: Unit, path: Path, phases: list[str]) -> Config:
    work, (method, own) = WORKS[name_of(unit)], METHODS[unit["method"]]
    settings, choices = unit["settings"], {**work.choices, "method": method}
    kind = unit.get("limited", "parameters")
    both = {"limit.macs": None, "limit.parameters": None}
    share = {} if unit["share"] == 100 else {f"limit.{kind}": f"{unit['share']}%"}
    overrides: dict[str, Any] = {
        **both, **share, **{k: v for k, v in work.overrides.items() if k.startswith(("gate.", "task."))}, **own,
        "train.steps": settings["steps"], "train.batch": settings["batch"], "train.lr": settings["lr"],
        "train.lr_boundary": settings["lr_boundary"], "train.weight_decay": settings.get("weight_decay", 0.0),
        "train.autocast": settings.get("autocast", "none"), "gate.K": settings["K"], "seed.value": unit["seed"],
        "task.split": "validation" if unit["scored"] == "validation" else "test",
    }  # fmt: skip
    if method == "ngn":
        overrides["phases"] = phases
        overrides.setdefault("schedule.commit", settings["commit"])
    if method == "gradual":
        overrides["schedule.commit"] = settings["commit"]
    if "strength" in settings and unit["method"] in ("MorphNet", "BAR", "Sheared-LLaMA's masks"):
        overrides["method.strength"] = settings["strength"]
    if unit["method"] == "Torch-Pruning, sparsity":
        overrides["method.sparsity"] = settings["strength"]
    if work.score != "accuracy":
        overrides["task.held"] = settings["held"]
    base = unit.get("base")
    if base and base["name"].startswith(("own", "ripe")):
        choices["model"] = "local"
        overrides |= {"model.path": f"results/rivals/base/{base['name']}20.safetensors".replace("2020", "20")}
        overrides["gate.blocks"] = 3
    if unit["share"] == 100:  # as in every run of a whole module
        overrides |= {f"limit.{work.limited}": "100%"}
    config = compose(choices, overrides)
    if isinstance(config.method, Cut) and "method.at" not in own and config.method.cut_at(config) != settings["before"]:
        if not getattr(config.method, "sparsity", 0):
            config = compose(choices, overrides | {"method.at": settings["before"]})
    return config


def counts_of(shapes: dict[str, list[int]]) -> list[int]:
    if "tokens.weight" in shapes:
        ends, per = ("mlp.0.weight", "attn.q_proj.weight"), {"attn.q_proj.weight": 16}
        width = shapes["tokens.weight"][1]
        per["attn.q_proj.weight"] = max(1, width // 4) if shapes["layers.0.attn.q_proj.weight"][0] % 16 else 16
        found = []
        for layer in range(2):
            for end in ends:
                found.append(shapes[f"layers.{layer}.{end}"][0] // per.get(end, 1))
        return found
    end = "mlp.up_proj.weight" if "model.embed_tokens.weight" in shapes else "conv1.weight"
    return [shape[0] for name, shape in shapes.items() if name.endswith(f".{end}")]


def result_of(unit: Unit, peak: float | None) -> Result:
    work, settings = WORKS[name_of(unit)], unit["settings"]
    kind, whole = unit.get("limited", "parameters"), unit["share"] == 100
    cost, most = unit.get("cost", unit["parameters"]), unit.get("dense_cost", unit["dense"])
    outside = unit["dense"] - most if kind == "parameters" else 0
    batch = settings["batch"]
    latency = unit["latency"]
    budget: Any = {"kind": kind, "limit": float(outside + most * unit["share"] // 100), "cost": float(cost + outside)}
    if outside:
        budget["outside"] = outside
    return Result(
        status="complete",
        count=counts_of(unit["shapes"]),
        truncated={work.score: unit["score"]},
        parameters={"candidate": unit["dense"], "deployed": unit["parameters"]},
        steps=settings["steps"],
        seconds=unit["processor_seconds"],
        peak_memory_mib=peak,
        cost={
            "samples": batch,
            "multiply_adds": {"candidate": most * batch, "deployed": cost * batch} if kind == "macs" else {},
            "milliseconds": {"candidate": latency["dense_ms"], "deployed": latency["dense_ms"] * latency["ratio"]},
            "ratios": {"batch": latency["ratio"], **{n: unit["latency_at"][n] for n in ("16", "1") if "latency_at" in unit}},
        },
        budget=None if whole else budget,
    )  # fmt: skip


def main(folder: Path) -> None:
    paths = [path for path in sorted(folder.rglob("*.json")) if path.parent.name != "peak"]
    all_units = {path: json.loads(path.read_text()) for path in paths}
    peaks = {
        (u["work"], u["method"], u["share"]): u["peak_mib"]
        for u in (json.loads(path.read_text()) for path in sorted(folder.rglob("peak/*.json")))
    }

    def key(path: Path, unit: Unit) -> tuple[Any, ...]:
        return (path.parent, unit["work"], unit["share"], unit["seed"], unit.get("equal", "steps"))

    scratch = {key(p, u): p for p, u in all_units.items() if u["method"] == SCRATCH}
    store, done, used, used_peaks = Store(FOLDER), Counter[str](), set(), set()
    for path, unit in all_units.items():
        if unit["method"] == SCRATCH:
            continue
        second = scratch.get(key(path, unit)) if unit["method"] == "NGN" and path.parent.name != "search" else None
        phases = ["grown", "fixed"] if second else ["grown"]
        config = config_of(unit, path, phases)
        members = {"grown": path} | ({"fixed": second} if second else {})
        results = {}
        for phase, file in members.items():
            one = all_units[file]
            known = (one["work"], one["method"], one["share"])
            full = path.parent.name == "full" and known in peaks
            results[phase] = result_of(one, peaks[known] if full else None)
            used_peaks |= {known} if full else set()
            used.add(file)
            if file != path:
                assert one["machine"] == unit["machine"] or print("other machine", file)
        names = " and ".join(file.relative_to(folder.parents[2]).as_posix() for file in members.values())
        more = SCORED if "transformer" in unit["work"] else PLAIN if unit["work"] == "resnet20" else ""
        added = subprocess.run(
            ["git", "log", "--diff-filter=A", "--format=%aI", "-1", "--", path], capture_output=True, text=True
        ).stdout.strip()
        record = Record(
            schema=1,
            run_id=run_id(config),
            status="complete",
            config=scientific(config),
            phases=results,
            time={"started": added, "seconds": round(sum(r.seconds for r in results.values()), 3)},
            execution={"device": "cpu", "engine": "torch", "replicas": 1, "threads": 1},
            hardware=unit["machine"],
            packages=unit["packages"],
            data=unit["data"],
            base=unit.get("base"),
            code={"commit": unit["commit"], "clean": True, "source": "git", "numerics": numerics(config)},
            converted=f"{names}: {DIFFERS}{more}; `started` is when the file was kept",
        ).json()
        if not store.write(record, {}):
            print("twice", path, run_id(config))
        done[f"{path.parent.name} {unit['work']}"] += 1
    print(len(all_units), "files", len(used), "used", sum(done.values()), "records", done, len(peaks), len(used_peaks))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
