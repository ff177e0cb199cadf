"""A trainer whose steps run in a compiled kernel, about a hundred per call (``training.h``).

:class:`KernelTrainer` is the plain :class:`~ngn.train.trainer.Trainer` with another ``fit``. Fields, curves,
checkpoints and final state are the same. R is the number of replicas (1 for a single model), G the number of ordered
groups, and P the number of floats in a replica's parameters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from experiments.models.kernels.libraries import library
from experiments.models.kernels.supported import Layout, layout_of, unsupported
from experiments.models.trainer import StudyTrainer
from ngn.budget.allocation import BudgetLearner
from ngn.gate import COMMITTED
from ngn.learner import Learner
from ngn.methods.base import Weighted, active_components
from ngn.methods.ngn import CountGate
from ngn.schedules import CONSTANT, GATE_CUTOFF, Shape, shape_at
from ngn.train.batches import Batches
from ngn.train.plan import History, TrainPlan, groups_of, pad_moments
from ngn.train.progress import ProgressLine
from ngn.train.trainer import CURVE_POINTS

CHUNK = 100
"""Most steps per call. A replica needs a few hundredths of a second for them, so progress and interrupts show soon."""
RUN_STEPS = 20_000
"""Most run-steps per call, in units of the 1D study: a call takes a second or two for any number of replicas."""
SCOPES = {"joint": 1, "separate": 2, "body": 3}
"""``clip_scope`` of the plan → its code in the kernel."""


class _State:
    """A learner's parameters and Adam's moments in the arrays of the kernel.

    body: parameters and both moments, float32 [3, R, P]; tau: tau and its moments, float64 [R, G, 3];
    touched: number of leading components whose moments may differ from zero, int64 [R, G].
    """

    def __init__(self, learner: Learner, layout: Layout, optimizer: torch.optim.Optimizer) -> None:
        self.layout, self.optimizer, self.stacked = layout, optimizer, learner.replicas is not None
        capacities = [group.capacity for group in learner.axes]
        self.taus = [capacity.tau for capacity in capacities if isinstance(capacity, CountGate)]
        self.R = learner.replicas or 1
        self.body = torch.zeros(3, self.R, layout.parameters)
        self.tau = torch.zeros(self.R, len(capacities), 3, dtype=torch.float64)
        with torch.no_grad():
            for packed, parameter in self._pairs():
                packed.copy_(parameter)
        self.touched = torch.zeros(self.R, len(capacities), dtype=torch.int64)
        moved = (self.body[1:] != 0).any(0)
        for g, group in enumerate(layout.groups):
            if group.learned:
                last = layout.components(group, moved).any(-1) * torch.arange(group.bare + 1, group.K + 1)
                self.touched[:, g] = last.amax(-1)

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Return pairs (view of the arrays, tensor of the learner or optimiser): parameters and existing moments."""
        pairs = []
        for p, view in self.layout.views():
            for packed, tensor in zip(self.body, self._own(p), strict=False):
                pairs.append((view(packed), tensor if self.stacked else tensor.unsqueeze(0)))
        for g, tau in enumerate(self.taus):
            pairs += [(self.tau[:, g, i], tensor.view(self.R)) for i, tensor in enumerate(self._own(tau))]
        return pairs

    def _own(self, p: Tensor) -> list[Tensor]:
        state = self.optimizer.state.get(p, {})
        return [p.detach(), *(state[key] for key in ("exp_avg", "exp_avg_sq") if state)]

    def copy(self) -> tuple[Tensor, ...]:
        """Copy the state for :meth:`restore`."""
        return self.body.clone(), self.tau.clone(), self.touched.clone()

    def restore(self, copied: tuple[Tensor, ...]) -> None:
        """Restore an earlier copy, in place, because the kernel knows the arrays by address."""
        for mine, value in zip((self.body, self.tau, self.touched), copied, strict=True):
            mine.copy_(value)

    @torch.no_grad()
    def unpack(self, step: int) -> None:
        """Copy the state after ``step`` steps into the learner and the optimiser."""
        for p in (q for group in self.optimizer.param_groups for q in group["params"]):
            state = self.optimizer.state[p]
            if not state:
                state |= {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
            state["step"] = torch.tensor(float(step))
        for packed, parameter in self._pairs():
            parameter.copy_(packed)


class _Kernel:
    """The kernel, with all values of a training that do not change from call to call."""

    def __init__(self, learner: Learner, batches: Batches, plan: TrainPlan, state: _State) -> None:
        layout, R = state.layout, state.R
        self.plan, self.state, self.committed = plan, state, False
        capacities = [group.capacity for group in learner.axes]
        gate = capacities[0] if isinstance(capacities[0], CountGate) else None
        shapes = (CONSTANT,) * 3 if gate is None else gate.shapes
        self.placed = isinstance(learner, BudgetLearner)
        self.reordered = any(isinstance(c, Weighted) and not c.order.constant for c in capacities)
        self.shapes: tuple[Shape, ...] = (*shapes, plan.lr_shape)
        inputs, targets = batches.at(0)
        x, target = layout.sample_arrays(inputs, targets)
        nothing = torch.zeros(R, dtype=torch.float64)
        beta1, beta2 = state.optimizer.defaults["betas"]
        self.values: dict[str, int | float | Tensor] = {
            "replicas": R, "groups": len(capacities), "parameters": layout.parameters, "hidden": layout.hidden,
            "samples": len(targets), "padded": x.shape[-1], "gated": 2 if self.placed else int(gate is not None),
            "clip_scope": 0 if plan.clip is None else SCOPES[plan.clip_scope],
            "clip": plan.clip or 0.0, "delta": 0.5 if gate is None else gate.delta, "cutoff": GATE_CUTOFF,
            "weight_decay": plan.weight_decay, "beta1": beta1, "beta2": beta2, "eps": state.optimizer.defaults["eps"],
            "x": x, "target": target,
            **{name: torch.tensor([getattr(group, attribute) for group in layout.groups])
               for name, attribute in (("candidates", "K"), ("offset", "offset"), ("bare", "bare"))},
            "w": torch.cat([c.weights().reshape(R, c.K).double() for c in capacities], 1).contiguous(),
            **{name: torch.stack([(getattr(c, name) if gate else nothing).double().expand(R) for c in capacities], 1)
               for name in ("lambda0", "alpha_max", "beta_start", "beta_end", "kappa")},
            **{name: torch.as_tensor(rate, dtype=torch.float64).expand(R).contiguous()
               for name, rate in (("lr", plan.lr), ("lr_boundary", plan.lr_boundary))},
            **dict(zip("pmv", state.body, strict=True)), "tau": state.tau, "touched": state.touched,
            "slopes": torch.zeros(R, len(capacities), dtype=torch.float64),
        }  # fmt: skip
        if self.placed:
            self._free()

    def commit(self, gates: Sequence[CountGate]) -> None:
        """Fix the boundaries at their rounded values, with sharp gates and without penalties."""
        self.committed = True
        self.state.tau.zero_()
        for g, gate in enumerate(gates):
            self.state.tau[:, g, 0] = gate.settled_tau().detach()
        self._free()
        self._sharpen(torch.full(self.state.touched.shape, COMMITTED, dtype=torch.float64))

    def _free(self) -> None:
        """Take the penalties away."""
        for name in ("lambda0", "alpha_max", "kappa"):
            self.values[name] = torch.zeros(self.state.touched.shape, dtype=torch.float64)

    def _sharpen(self, beta: Tensor) -> None:
        """Set the sharpness, [R, G], at all progress."""
        self.values["beta_start"] = self.values["beta_end"] = beta

    def follow(self, gates: Sequence[CountGate]) -> None:
        """Copy this step's ordering weights from the gates and, until the commit, their boundaries and sharpness."""
        R = self.state.R
        weights = [gate.weights() if (mask := gate.mask()) is None else gate.weights() * mask for gate in gates]
        self.values["w"] = torch.cat([w.reshape(R, -1) for w in weights], 1).contiguous()
        if not self.committed:
            self.state.tau[..., 0] = torch.stack([gate.tau.detach().expand(R) for gate in gates], 1)
            self._sharpen(torch.stack([gate.beta.expand(R) for gate in gates], 1))

    def give_slopes(self, gates: Sequence[CountGate]) -> None:
        """Give the boundaries their gradients in the last step."""
        slopes = self.values["slopes"]
        assert isinstance(slopes, Tensor)
        for gate, slope in zip(gates, slopes.unbind(1), strict=True):
            gate.tau.grad = slope.reshape(gate.tau.shape).clone()

    def advance(self, first: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """Do the steps first ... first + steps - 1. Return, before each step, objective and task loss, float64
        [R, steps], and t, float64 [R, steps, G]."""
        fractions = [(first + n) / self.plan.steps for n in range(steps)]
        shapes = torch.tensor([[shape_at(shape, f) for shape in self.shapes] for f in fractions], dtype=torch.float64)
        R, G = self.state.touched.shape
        objective, task = torch.empty(2, R, steps, dtype=torch.float64)
        t = torch.empty(R, steps, G, dtype=torch.float64)
        changing: dict[str, int | float | Tensor] = {
            "steps": steps, "first": first, "threads": torch.get_num_threads(), "shapes": shapes,
            "objective": objective, "task": task, "t": t,
        }  # fmt: skip
        layout = self.state.layout
        compiled = library(layout.kernel)
        assert compiled is not None  # ``unsupported`` has checked it
        compiled.call(layout.function, self.values | changing)
        return objective, task, t


@dataclass
class KernelTrainer(StudyTrainer):
    """A :class:`StudyTrainer` that runs the kernel. It has the same fields and the same contract.

    The results of a replica are the same bits in any stack, with any number of threads, and with any interruptions.
    They differ from the plain trainer's by rounding. At most ``chunk`` steps pass between calls of ``on_step`` and
    between checkpoints. Torch's threads share the replicas.

    Under a budget, torch moves the boundaries and computes the weights, so a call does one step: until the commit, or
    until the end if ordering weights change.

    Raises:
        ValueError: from ``fit``, if no kernel can do this training (see ``unsupported``).
    """

    learner: Learner
    engine = "fused"

    chunk: int = CHUNK

    def fit(self) -> History:
        """Train to the end, from the newest checkpoint if there is one."""
        learner, plan = self.learner, self.plan
        reason = unsupported(learner, self.batches, self.loss, plan)
        if reason is None and self.model is not None:
            reason = "the model is wrapped in another model"
        if reason is not None:
            raise ValueError(f"no compiled kernel can do this training: {reason}")
        newest, count = self._restored(), learner.replicas or 1
        self._trained = learner.body_parameters(), learner.controller_parameters()
        optimizer = torch.optim.Adam(groups_of(*self._trained, plan)[0])  # holds the moments; the kernel does the steps
        bad = torch.full((count,), -1, dtype=torch.int64)
        start, before, resumed = self._resume(newest, optimizer, bad)
        kept = np.unique(np.linspace(0, plan.steps - 1, CURVE_POINTS).astype(int))
        state = _State(learner, layout_of(learner.model), optimizer)
        kernel = _Kernel(learner, self.batches, plan, state)
        gates = [group.capacity for group in learner.axes if isinstance(group.capacity, CountGate)]
        growing = any(gate.growing for gate in gates)
        commit_step = _commit_step(gates[0].commit if gates else None, plan.steps)
        chunk = max(1, min(self.chunk, int(RUN_STEPS / (count * state.layout.cost))))
        began = saved = time.monotonic()
        with ProgressLine(self.title, plan.steps, start, count, self.progress) as bar:
            done = start
            while done < plan.steps:
                first = done
                if growing and self._make_room(first, optimizer, state):
                    state = _State(learner, layout_of(learner.model), optimizer)
                    kernel = _Kernel(learner, self.batches, plan, state)
                if first >= commit_step and not kernel.committed:
                    state.unpack(first)
                    learner.set_progress(first / plan.steps)
                    kernel.commit(gates)
                single = kernel.placed and (kernel.reordered or not kernel.committed)
                if single:  # the learner moves the boundaries, and weights may change
                    learner.set_progress(first / plan.steps)
                    learner.before_step(first)
                    kernel.follow(gates)
                saved_state = state.copy() if growing and not single else None
                every = self.evaluate_every or plan.steps
                stop = commit_step if first < commit_step else plan.steps
                end = min(first + (1 if single else chunk), (first // every + 1) * every, stop)
                objective, task, t = kernel.advance(first, end - first)
                if saved_state is not None and (enough := self._enough(first, t)) < t.shape[1]:
                    # From step ``enough`` on, a component was missing: repeat only the steps before it.
                    state.restore(saved_state)
                    objective, task, t = kernel.advance(first, enough)
                if single and not kernel.committed:
                    kernel.give_slopes(gates)
                    learner.after_backward(first)
                done = first + t.shape[1]
                finite = torch.isfinite(objective)
                where = torch.where(finite.all(1), -1, first + finite.to(torch.int8).argmin(1))
                bad = torch.where(bad < 0, where, bad)
                for step in kept[(kept >= first) & (kept < done)].tolist():
                    at = step - first
                    self._keep(step, objective[:, at], task[:, at], t[:, at])
                if self.on_step is not None or bar.due() or done == plan.steps:
                    state.unpack(done)
                    if bar.due() or (bar.drawn and done == plan.steps):
                        bar.show(done, self._standing())
                    if self.on_step is not None:
                        self.on_step(done)
                if done % every == 0 and done < plan.steps:
                    state.unpack(done)
                    learner.set_progress((done - 1) / plan.steps)
                    self._report(done)
                now = time.monotonic()
                if self._due(now - saved, done == plan.steps):
                    state.unpack(done)
                    self._save(done, optimizer, bad, before + now - began, resumed)
                    saved = now
        return self._finish(bad, before - began, resumed)

    def _make_room(self, first: int, optimizer: torch.optim.Optimizer, state: _State) -> bool:
        """Allocate the components that step ``first`` needs, by the plain trainer's rule. Return whether any were."""
        state.unpack(first)
        self.learner.set_progress(first / self.plan.steps)
        grown = self.learner.make_room()
        if grown:
            pad_moments(optimizer)
        return grown

    def _enough(self, first: int, t: Tensor) -> int:
        """Return how many steps from ``first`` on had all components that they need: at least one.

        t: the boundaries before each of these steps, [R, steps, G]. The first step has all its components.
        """
        for n in range(1, t.shape[1]):
            for g, group in enumerate(self.learner.axes):
                capacity = group.capacity
                assert isinstance(capacity, CountGate)
                capacity.set_progress((first + n) / self.plan.steps)
                own = t[:, n, g].reshape(capacity.tau.shape)
                if active_components(own, capacity.K + 1, capacity.beta, capacity.delta) > capacity.K:
                    return n
        return t.shape[1]


def _commit_step(commit: float | None, steps: int) -> int:
    """Return the first of ``steps`` steps with a progress of at least ``commit``; ``steps`` without a commit."""
    if commit is None:
        return steps
    return next(step for step in range(int(commit * steps), steps + 1) if step / steps >= commit)
