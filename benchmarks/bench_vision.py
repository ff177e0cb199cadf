"""Measure how fast the convolution and graph models train, as ratios to a plain list of modules.

    python benchmarks/bench_vision.py [--quick] [--rounds N]

Every variant runs in separate processes, which gives each its own peak memory. The variants take turns; the median over
rounds counts. All variants keep both cores busy and so share the memory bandwidth. All K branches are open and
computed. The tables include other forms of the same convolutions: channels-last, bf16, one grouped convolution.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # also where the package is not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_models import trained
from processes import Rate, measure, options, throughput

from experiments.models.conv import ConvBank
from experiments.models.gcn import GCNBank, GraphInput
from experiments.runs import host

BATCH = 128
Run = Callable[[int], None]
"""Makes a number of training steps."""


@dataclass(frozen=True)
class Images:
    """A convolution study: its branches and its images."""

    K: int
    channels: tuple[int, int]
    image: tuple[int, int, int]

    def data(self) -> tuple[Tensor, Tensor]:
        source = torch.Generator().manual_seed(0)
        return torch.randn(BATCH, *self.image, generator=source), torch.randint(10, (BATCH,), generator=source)

    @property
    def flat(self) -> int:
        """Number of entries of a branch's last map."""
        return self.channels[1] * (self.image[1] // 4) * (self.image[2] // 4)


class Gate(nn.Module):
    """Compute gates [K] by hand, for a boundary above the last component."""

    def __init__(self, K: int) -> None:
        super().__init__()
        self.tau = nn.Parameter(torch.tensor(float(K), dtype=torch.float64))
        self.K, self.w = K, 0.5 ** torch.arange(K)

    def t(self) -> Tensor:
        return F.softplus(self.tau)

    def forward(self) -> Tensor:
        return (self.w * torch.sigmoid(4 * (self.t() - torch.arange(self.K) + 0.5))).float()


class Modules(nn.Module):
    """The gated sum over a list of modules."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches, self.gate = nn.ModuleList(branches), Gate(len(branches))

    def forward(self, x: Tensor) -> Tensor:
        out: Any = sum(g * branch(x) for g, branch in zip(self.gate(), self.branches, strict=True))
        return out


class Grouped(nn.Module):
    """The same branches as one convolution and one grouped convolution."""

    def __init__(self, study: Images) -> None:
        super().__init__()
        K, (first, second) = study.K, study.channels
        self.gate, self.shape = Gate(K), (K, study.flat)
        self.first = nn.Conv2d(study.image[0], K * first, 3, padding=1)
        self.second = nn.Conv2d(K * first, K * second, 3, padding=1, groups=K)
        self.V = nn.Parameter(torch.zeros(K, study.flat, 10))
        self.v = nn.Parameter(torch.zeros(K, 10))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(F.max_pool2d(self.second(F.relu(F.max_pool2d(self.first(x), 2))), 2))
        g = self.gate()
        out: Tensor = torch.einsum("nkf,kfo,k->no", h.reshape(-1, *self.shape), self.V, g) + g @ self.v
        return out


def by_hand(model: Modules | Grouped, x: Tensor, y: Tensor, bf16: bool = False) -> Run:
    """Return a plain training loop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)

    def run(steps: int) -> None:
        for _ in range(steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = F.cross_entropy(model(x), y) + 1e-4 * model.gate.t()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def branch_modules(study: Images) -> Modules:
    first, second = study.channels
    return Modules([
        nn.Sequential(
            nn.Conv2d(study.image[0], first, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(first, second, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(study.flat, 10),
        )
        for _ in range(study.K)
    ])  # fmt: skip


def convolution(study: Images, form: str) -> Run:
    """Build one variant of a convolution study; ``form`` is its name in :data:`CONVOLUTION`."""
    x, y = study.data()
    what, *options = form.split()
    if what in ("modules", "grouped"):
        model = branch_modules(study) if what == "modules" else Grouped(study)
        if "channels-last" in options:
            x, model = x.contiguous(memory_format=torch.channels_last), model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return by_hand(model, x, y, "bf16" in options)
    bank = ConvBank(study.image, study.channels, 10, study.K, [0, 1] if "stacked" in options else 0)
    return trained(bank, "ungated" not in options, x, y, float(study.K))


def graph(form: str) -> Run:
    """Build one variant of the graph study, on a synthetic graph of Cora's size."""
    from torch_geometric.nn import GCNConv

    source = torch.Generator().manual_seed(0)
    nodes, features = 2708, 1433
    one_way = torch.randint(nodes, (2, 5278), generator=source)
    edges = torch.cat([one_way, one_way.flip(0)], 1)
    x = (torch.rand(nodes, features, generator=source) < 0.0127).float()
    targets, y = torch.arange(140), torch.randint(7, (140,), generator=source)

    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCNConv(features, 16), GCNConv(16, 7)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.second(torch.relu(self.first(x, edges)), edges)[targets]
            return out

    if form == "modules":
        return by_hand(Modules([Branch() for _ in range(8)]), x, y)
    bank = GCNBank(features, 16, 7, 8, list(range(10)) if form == "torch stacked" else 0)
    return trained(bank, form != "torch ungated", GraphInput.of(x, edges, targets), y, 8.0)


@dataclass(frozen=True)
class VisionVariant:
    """A row of the table: a ``form`` of the study; each of two processes trains ``seeds`` at once."""

    letter: str
    name: str
    form: str
    seeds: int = 1


CONVOLUTION = (
    VisionVariant("a", "list of modules, one process per seed", "modules"),
    VisionVariant("a", "the same, channels-last", "modules channels-last"),
    VisionVariant("a", "the same, channels-last, bf16", "modules channels-last bf16"),
    VisionVariant("a", "one grouped convolution", "grouped"),
    VisionVariant("a", "the same, channels-last", "grouped channels-last"),
    VisionVariant("a", "the same, channels-last, bf16", "grouped channels-last bf16"),
    VisionVariant("b", "torch engine, one seed", "torch"),
    VisionVariant("b", "the same, ungated", "torch ungated"),
    VisionVariant("c", "torch engine, 2 stacked seeds", "torch stacked", 2),
)
GRAPH = (
    VisionVariant("a", "list of GCNConv, one process per seed", "modules"),
    VisionVariant("b", "torch engine, one seed", "torch"),
    VisionVariant("b", "the same, ungated", "torch ungated"),
    VisionVariant("c", "torch engine, 10 stacked seeds", "torch stacked", 10),
)
STUDIES: dict[str, tuple[str, tuple[VisionVariant, ...], Callable[[str], Run]]] = {
    "mnist": (
        "MNIST convolution, K = 8, channels 8-16, batch 128",
        CONVOLUTION,
        lambda form: convolution(Images(8, (8, 16), (1, 28, 28)), form),
    ),
    "cifar10": (
        "CIFAR-10 convolution, K = 16, channels 16-16, batch 128",
        CONVOLUTION,
        lambda form: convolution(Images(16, (16, 16), (3, 32, 32)), form),
    ),
    "cora": ("a graph of Cora's size, K = 8", GRAPH, graph),
}


def timed(run: Run, seconds: float) -> float:
    """Return steps per second, measured for about ``seconds`` after one untimed step."""
    run(1)
    began = time.perf_counter()
    run(1)
    steps = max(1, int(seconds / (time.perf_counter() - began)))
    began = time.perf_counter()
    run(steps)
    return steps / (time.perf_counter() - began)


@contextmanager
def prepared(request: dict[str, Any]) -> Iterator[Rate]:
    """Measure in one process."""
    if request["study"] == "matmul":
        yield lambda: {"rate": throughput("matmul", request["seconds"] / 2)}
        return
    with host.tuned_for_training():  # as in every training that writes a record; the same for all variants
        run = STUDIES[request["study"]][2](request["form"])
        yield lambda: {"rate": timed(run, request["seconds"]) * request["seeds"]}


def step_flops(study: str) -> float | None:
    """Count operations in convolutions and matrix products of a step of the plain modules; None if sparse."""
    if study == "cora":
        return None
    run = STUDIES[study][2]("modules")
    with FlopCounterMode(display=False) as counter:
        run(1)
    return float(counter.get_total_flops())


def bench(study: str, seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Return one row per variant: median rate, median ratio to the first variant in a round, peak memory."""
    variants = STUDIES[study][1]
    found: dict[VisionVariant, list[dict[str, float]]] = {v: [] for v in variants}
    matmul = []
    for _ in range(rounds):
        for v in variants:
            request = {"study": study, "form": v.form, "seeds": v.seeds, "seconds": seconds}
            found[v].append(measure(__file__, request, processes=2, threads=1))
        matmul.append(measure(__file__, {"study": "matmul", "seconds": seconds}, processes=2, threads=1)["rate"])
    flops, base = step_flops(study), [one["rate"] for one in found[variants[0]]]
    rows: list[dict[str, Any]] = []
    for v, each in found.items():
        rate = statistics.median(one["rate"] for one in each)
        rows.append({
            "letter": v.letter, "name": v.name, "rate": rate,
            "ratio": statistics.median(one["rate"] / b for one, b in zip(each, base, strict=True)),
            "of_matmul": None if flops is None else rate * flops / statistics.median(matmul),
            "peak_mib": max(one["peak_mib"] for one in each), "imported_mib": max(one["imported_mib"] for one in each),
        })  # fmt: skip
    return rows


def table(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """Format the rows as text."""
    lines = [
        f"{title}: training, two processes of one thread",
        f"   {'variant':38} {'run-steps/s':>12} {'x (a)':>7} {'of matmul':>9} {'peak MiB':>8} {'imports':>8}",
    ]
    for row in rows:
        share = "" if row["of_matmul"] is None else f"{row['of_matmul']:.1%}"
        lines.append(
            f"{row['letter']:2} {row['name']:38} {row['rate']:12.2f} {row['ratio']:7.2f} {share:>9} "
            f"{row['peak_mib']:8.0f} {row['imported_mib']:8.0f}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    given = options("Training of the convolution and graph models, as ratios.", arguments, prepared)
    if given is None:
        return
    for study, (title, _, _) in STUDIES.items():
        print(table(title, bench(study, 0.1 if given.quick else 2.0, given.rounds)), flush=True)


if __name__ == "__main__":
    main()
