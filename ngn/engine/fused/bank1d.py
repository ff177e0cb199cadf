"""The fast path for banks of 1D blocks: whole stretches of training inside one call of ``bank1d.cpp``.

:class:`FusedTrainer` is the plain :class:`~ngn.engine.trainer.Trainer` with another ``fit``: the same fields, curves,
checkpoints and final state. R is the number of replicas (1 for a single model), K of candidates, N of samples, h the
hidden width, H the compiled width that h is padded to.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ngn.components.mlp import MLPBank
from ngn.engine import interrupt
from ngn.engine.batches import Batches
from ngn.engine.fused.fits import unsupported, unsupported_whole
from ngn.engine.fused.kernel import NAMES, Samples, check, compiled_width, library
from ngn.engine.optim import adam
from ngn.engine.progress import Progress
from ngn.engine.trainer import Course, Trainer, TrainPlan, _pad_moments
from ngn.gate import GATE_CUTOFF, active_components
from ngn.methods.learner import CapacityLearner
from ngn.methods.ngn import CountGate
from ngn.records import MAX_CURVE_POINTS
from ngn.schedules import CONSTANT, shape_at
from ngn.schema import Shape

CHUNK = 100
"""Steps a call at most: a few hundredths of a second for a replica, so that progress and interrupts are seen."""
RUN_STEPS = 20_000
"""Run-steps a call at most: a second or two, however many replicas there are."""
SCOPES = {"joint": 1, "separate": 2, "body": 3}

_INTEGERS = (
    "replicas", "candidates", "hidden", "samples", "padded", "steps", "first", "threads", "gated", "clip_scope",
)  # fmt: skip
_REALS = ("clip", "delta", "cutoff", "weight_decay", "beta1", "beta2", "eps")
_ARRAYS = (
    "x", "target", "w", "lambda0", "alpha_max", "beta_start", "beta_end", "lr", "lr_boundary", "shapes",
    "p", "m", "v", "tau", "touched", "objective", "task", "t",
)  # fmt: skip


class Job(ctypes.Structure):
    """The kernel's argument, field by field as in ``bank1d.cpp``."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in _INTEGERS),
        *((name, ctypes.c_double) for name in _REALS),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
    ]


def stride(H: int) -> int:
    """Floats of one component in the packed state."""
    return H * H + 4 * H + 16


class _State:
    """The parameters and Adam's moments of a learner as the kernel keeps them.

    body: float32 [3, R, K, P], the parameters and both moments; tau: float64 [R, 3], tau and its moments;
    touched: int64 [R], leading components whose moments may differ from zero.
    """

    def __init__(self, learner: CapacityLearner, optimizer: torch.optim.Optimizer) -> None:
        group = learner.groups[0]
        assert isinstance(group.bank, MLPBank)
        self.bank, self.optimizer = group.bank, optimizer
        self.tau_parameter = group.capacity.tau if isinstance(group.capacity, CountGate) else None
        self.R, self.K, self.h = learner.replicas or 1, group.bank.K, group.bank.sizes[1]
        self.H = compiled_width(self.h)
        self.body = torch.zeros(3, self.R, self.K, stride(self.H))
        self.tau = torch.zeros(self.R, 3, dtype=torch.float64)
        with torch.no_grad():
            for packed, own in self._pairs():
                packed.copy_(own)
        moved = (self.body[1:] != 0).any(-1).any(0)
        self.touched = (moved * torch.arange(1, self.K + 1)).amax(-1)

    def _views(self, packed: Tensor) -> dict[str, Tensor]:
        """What [R, K, P] holds, by the names and shapes of the bank's parameters."""
        h, H = self.h, self.H
        at = [0, H, 2 * H, 2 * H + H * H, 3 * H + H * H, 4 * H + H * H]
        lead = packed.shape[:-1]
        return {
            "W1": packed[..., at[0] : at[0] + h].unsqueeze(-2),
            "b1": packed[..., at[1] : at[1] + h],
            "W2": packed[..., at[2] : at[3]].view(*lead, H, H)[..., :h, :h],
            "b2": packed[..., at[3] : at[3] + h],
            "W3": packed[..., at[4] : at[4] + h].unsqueeze(-1),
            "b3": packed[..., at[5] : at[5] + 1],
        }

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """(view of the packed state, tensor it stands for): parameters, and moments where the optimiser has any."""
        pairs = []
        for name in NAMES:
            p = getattr(self.bank, name)
            state = self.optimizer.state.get(p, {})
            own = [p.detach(), *(state[key] for key in ("exp_avg", "exp_avg_sq") if state)]
            for packed, tensor in zip(self.body, own, strict=False):
                pairs.append((self._views(packed)[name], tensor if self.bank.replicas else tensor.unsqueeze(0)))
        if self.tau_parameter is not None:
            state = self.optimizer.state.get(self.tau_parameter, {})
            own = [self.tau_parameter.detach(), *(state[key] for key in ("exp_avg", "exp_avg_sq") if state)]
            pairs += [(self.tau[:, i], tensor.view(self.R)) for i, tensor in enumerate(own)]
        return pairs

    def copy(self) -> tuple[Tensor, ...]:
        """What :meth:`restore` brings back."""
        return self.body.clone(), self.tau.clone(), self.touched.clone()

    def restore(self, copied: tuple[Tensor, ...]) -> None:
        """Put the state back to an earlier copy, in place: the kernel knows the arrays by address."""
        for mine, value in zip((self.body, self.tau, self.touched), copied, strict=True):
            mine.copy_(value)

    @torch.no_grad()
    def unpack(self, step: int) -> None:
        """Give the learner and the optimiser the state after ``step`` steps."""
        for p in (q for group in self.optimizer.param_groups for q in group["params"]):
            state = self.optimizer.state[p]
            if not state:
                state |= {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
            state["step"] = torch.tensor(float(step))
        for packed, own in self._pairs():
            own.copy_(packed)


class _Kernel:
    """The kernel with everything of a training that stays the same from call to call."""

    def __init__(self, learner: CapacityLearner, batches: Batches, plan: TrainPlan, state: _State) -> None:
        self.kernel, self.plan, self.state = library(), plan, state
        capacity = learner.groups[0].capacity
        samples = Samples.of(batches)
        gated = isinstance(capacity, CountGate)
        shapes = capacity.shapes if isinstance(capacity, CountGate) else (CONSTANT,) * 3
        self.shapes: tuple[Shape, ...] = (*shapes, plan.lr_shape)
        nothing = torch.zeros(state.R, dtype=torch.float64)
        scalars = {
            name: getattr(capacity, name) if gated else nothing
            for name in ("lambda0", "alpha_max", "beta_start", "beta_end")
        } | {"lr": torch.as_tensor(plan.lr), "lr_boundary": torch.as_tensor(plan.lr_boundary)}
        self.arrays = {
            "x": samples.x,
            "target": samples.target,
            "w": capacity.weights().reshape(state.R, state.K).double().contiguous(),
            **{name: v.double().expand(state.R).contiguous() for name, v in scalars.items()},
            **dict(zip("pmv", state.body, strict=True)),
            "tau": state.tau,
            "touched": state.touched,
        }
        self.numbers = {
            "replicas": state.R, "candidates": state.K, "hidden": state.H,
            "samples": samples.count, "padded": len(samples.x), "gated": int(gated),
            "clip_scope": 0 if plan.clip is None else SCOPES[plan.clip_scope],
            "clip": plan.clip or 0.0, "delta": capacity.delta if gated else 0.5, "cutoff": GATE_CUTOFF,
            "weight_decay": plan.weight_decay,
        }  # fmt: skip
        (self.numbers["beta1"], self.numbers["beta2"]) = state.optimizer.defaults["betas"]
        self.numbers["eps"] = state.optimizer.defaults["eps"]

    def advance(self, first: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """Do steps first ... first + steps - 1; returns objective, task loss and t before each, float64 [R, steps]."""
        fractions = [(first + n) / self.plan.steps for n in range(steps)]
        shapes = torch.tensor([[shape_at(shape, f) for shape in self.shapes] for f in fractions], dtype=torch.float64)
        found = {name: torch.empty(self.state.R, steps, dtype=torch.float64) for name in ("objective", "task", "t")}
        arrays = self.arrays | found | {"shapes": shapes}
        job = Job(
            **self.numbers, steps=steps, first=first, threads=torch.get_num_threads(),
            **{name: arrays[name].data_ptr() for name in _ARRAYS},
        )  # fmt: skip
        check(self.kernel.ngn_bank1d_advance(ctypes.byref(job)))
        return found["objective"], found["task"], found["t"]


@dataclass
class FusedTrainer(Trainer):
    """:class:`Trainer` by the kernel, with its fields and its contract.

    A replica's numbers are the same bits alone, in any stack, with any number of threads and however the training is
    cut by checkpoints. Against the plain trainer they differ by rounding. ``on_step`` is called, and checkpoints are
    written, every ``chunk`` steps at most. ``threads`` of torch share the replicas.

    Raises:
        ValueError: from ``fit``, if the kernel cannot do this training (see :func:`unsupported`).
    """

    engine = "fused"

    chunk: int = CHUNK

    def fit(self) -> Course:
        """Train to the end, from the newest checkpoint if there is one."""
        learner, plan = self.learner, self.plan
        reason = unsupported(learner, self.batches, self.loss, plan) or unsupported_whole(learner)
        if reason is not None:
            raise ValueError(f"not a training for the kernel: {reason}")
        count = learner.replicas or 1
        body, controllers = learner.body_parameters(), learner.controller_parameters()
        lr, lr_boundary = (torch.as_tensor(r, dtype=torch.float64).expand(count) for r in (plan.lr, plan.lr_boundary))
        optimizer = adam(body, controllers, lr, lr_boundary, weight_decay=plan.weight_decay)
        bad = torch.full((count,), -1, dtype=torch.int64)
        start, before, resumed = self._resume(optimizer, bad)
        kept = np.unique(np.linspace(0, plan.steps - 1, MAX_CURVE_POINTS).astype(int))
        state = _State(learner, optimizer)
        kernel = _Kernel(learner, self.batches, plan, state)
        capacity = learner.groups[0].capacity
        growing = isinstance(capacity, CountGate) and capacity.growing
        chunk = max(1, min(self.chunk, RUN_STEPS // count))
        began = saved = time.monotonic()
        with Progress(self.title, plan.steps, start, count, self.progress) as bar:
            done = start
            while done < plan.steps:
                first = done
                if growing and self._make_room(first, optimizer, state):
                    state = _State(learner, optimizer)
                    kernel = _Kernel(learner, self.batches, plan, state)
                saved_state = state.copy() if growing else None
                objective, task, t = kernel.advance(first, min(chunk, plan.steps - first))
                if saved_state is not None and (enough := self._enough(first, t)) < t.shape[1]:
                    # A component was missing from then on: only the steps before count.
                    state.restore(saved_state)
                    objective, task, t = kernel.advance(first, enough)
                done = first + t.shape[1]
                finite = torch.isfinite(objective)
                where = torch.where(finite.all(1), -1, first + finite.to(torch.int8).argmin(1))
                bad = torch.where(bad < 0, where, bad)
                for step in kept[(kept >= first) & (kept < done)].tolist():
                    at = step - first
                    self._points.append((step, objective[:, at], task[:, at], t[:, at, None]))
                if self.on_step is not None or bar.due() or done == plan.steps:
                    state.unpack(done)
                    if bar.due() or (bar.shown and done == plan.steps):
                        bar.show(done, self._state())
                    if self.on_step is not None:
                        self.on_step(done)
                now, stopping = time.monotonic(), interrupt.asked()
                if (stopping or now - saved >= self.checkpoint_seconds) and done < plan.steps:
                    state.unpack(done)
                    self._save(done, optimizer, bad, before + now - began, resumed)
                    saved = now
                    interrupt.stop()
        learner.set_progress(1.0)
        learner.begin_step(None)
        return Course(self._curves(), bad.numpy(), before + time.monotonic() - began, resumed)

    def _make_room(self, first: int, optimizer: torch.optim.Optimizer, state: _State) -> bool:
        """Allocate what step ``first`` needs, by the plain trainer's rule; whether parameters have grown."""
        state.unpack(first)
        self.learner.set_progress(first / self.plan.steps)
        grown = self.learner.make_room()
        if grown:
            _pad_moments(optimizer)
        return grown

    def _enough(self, first: int, t: Tensor) -> int:
        """How many of the steps from ``first`` on had all the components that they need; at least one.

        t: the boundaries before each of these steps, [R, steps]. The first step has had its room made.
        """
        capacity = self.learner.groups[0].capacity
        assert isinstance(capacity, CountGate)
        for n in range(1, t.shape[1]):
            capacity.set_progress((first + n) / self.plan.steps)
            own = t[:, n].reshape(capacity.tau.shape)
            if active_components(own, capacity.K + 1, capacity.beta, capacity.delta) > capacity.K:
                return n
        return t.shape[1]
