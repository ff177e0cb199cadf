"""Learned sizes for the modules of an existing model, chosen by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from ngn.axis import OrderedAxis
from ngn.budget import BUDGET_COMMIT, Budget, Front, Limits
from ngn.budget.allocation import BudgetLearner
from ngn.checks import Also, snapshot
from ngn.cut.modules import guard_folders
from ngn.cut.truncation import axes_of
from ngn.cuts import kind_of
from ngn.front import FrontLearner
from ngn.learner import Learner
from ngn.learner.hooked import HookedAxis, divided
from ngn.learner.importance import Importance, check, sort
from ngn.methods.base import Capacity
from ngn.methods.batch import GateBatch
from ngn.methods.fixed import Opened
from ngn.methods.ngn import CountGate
from ngn.sizes.base import Bound, Maker, Size, bound, refuse_unknown, usual_gate
from ngn.sizes.found import attach_found, chosen_of, dummy, matched_of, refuse_uncuttable, traced, without_failed
from ngn.sizes.named import TracedSize
from ngn.sizes.trial import failed_trials, parts_of
from ngn.tracing.found import FoundSizes


def learn_sizes(
    model: nn.Module,
    sizes: Mapping[str, Size | None] | FoundSizes | None = None,
    *,
    budget: Budget | Front | None = None,
    at_least: Bound = None,
    at_most: Bound = None,
    example: Any = None,
    also: Also | None = None,
    frozen: bool = False,
    capacity: Maker | None = None,
    by_importance: Importance | None = "magnitude",
    calibration: Iterable[Any] | None = None,
    loss: Callable[..., Any] | None = None,
    **gate: Any,
) -> Learner:
    """Make sizes of ``model`` learnable, in place; no weight is copied.

    Training starts from your model unchanged: every gate is open (1 - 1e-7), without ordering weights. With ``t0=``
    near 0, components grow from few instead.

    Without ``sizes`` everything is learned that :func:`~ngn.sizes.find.find_sizes` finds, and that passes its
    trial. What was found, or merely matched a ``*``, and cannot be cut is left as it is; ``learner.found`` lists it
    with the reason.

    Args:
        sizes: None for all that is found; a choice among it, such as ``find_sizes(model, x).without("head")``; or
            a pattern over the names of ``named_modules()`` → one of ``ngn.Width``, ``ngn.Heads``,
            ``ngn.Channels``, ``ngn.Rank``, ``ngn.Depth``, or None for modules that other patterns are to leave out.
            ``*`` matches anything within one part of a name, ``**`` any number of parts, "" the model. Every matched
            module learns its own size; modules that can only be cut together share one.
        budget: limit on what the deployed model costs, instead of a price: :mod:`ngn.budget.allocation`. A
            :class:`~ngn.budget.Front` trains all sizes: :mod:`ngn.front`.
        at_least, at_most: bounds of every size, in its components: a number, a share of all such as "25%", or a pattern
            over names of sizes → one of both. A size with fewer components than ``at_least`` keeps them all.
        example: an input: a tuple for several arguments, a dictionary for keyword arguments. Default: that of the
            budget, else the model's ``dummy_inputs``. The model is traced on it. The library cuts every size to half
            and to one, and compares outputs, before any training. Or what ``find_sizes`` found before the tensors were
            divided among processes; such sizes are not tried.
        also: further inputs to trace and to try, as for :func:`~ngn.sizes.find.find_sizes`.
        frozen: freeze the present parameters; only sizes, and the terms of ranks, are learned.
        capacity: makes the capacity of (name, K), instead of a :class:`~ngn.methods.ngn.CountGate`.
        by_importance: the score of units (:mod:`ngn.learner.importance`), the best of which stay: "magnitude", or
            "taylor" or "wanda" from ``calibration``. None: the units in front stay. No weight moves.
        calibration: batches of training data, such as the ``DataLoader`` of the training; the first 32 are read.
        loss: how to use a batch, as for ``ngn.fit``. None: batches are as ``example``, and the output has its ``loss``.
        gate: settings of every gate, such as ``lambda0``, ``alpha_max``, ``beta``; those of a size come first. Sizes
            become integers at ``commit`` = 0.9 of training, under a budget at 0.4.

    Returns:
        The learner; its ``names`` are those of the modules.

    Raises:
        ValueError: if a pattern matches no module or none that can be cut, a module named without ``*`` cannot be cut,
            there is no example, or no model is within the budget. The model is not modified.
        TypeError: if ``model``, ``sizes``, a size or ``budget`` has the wrong type.

    >>> import torch, ngn
    >>> from torch import nn
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.norm, self.mlp = nn.LayerNorm(8), nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    ...     def forward(self, x): return x + self.mlp(self.norm(x))
    >>> model, x = nn.Sequential(Block(), Block()), torch.randn(2, 8)
    >>> learner = ngn.learn_sizes(model, {"*.mlp": ngn.Width(16)}, example=x, lambda0=1e-3)
    >>> learner.names, learner.count().tolist()
    (['0.mlp', '1.mlp'], [16, 16])
    >>> ngn.learn_sizes(model, {"*.mpl": ngn.Width(16)})
    Traceback (most recent call last):
    ValueError: no module matches '*.mpl'; did you mean *.mlp, *.mlp.2, *.mlp.1?
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"learn_sizes takes a model, an nn.Module, first; this is a {kind_of(model)}")
    if not (sizes is None or isinstance(sizes, (Mapping, FoundSizes))):
        raise TypeError(f"sizes= is a {kind_of(sizes)}; give names and sizes: {{'blocks.*.mlp': ngn.Width(16)}}")
    if sizes is not None and not (any(sizes.values()) if isinstance(sizes, Mapping) else len(sizes)):
        raise ValueError("sizes= names no size: add one, such as {'blocks.*.mlp': ngn.Width(16)}, or leave it out")
    for pattern, size in sizes.items() if isinstance(sizes, Mapping) else ():
        if not (size is None or isinstance(size, Size)):
            raise TypeError(f"{pattern!r}: {size!r} is not a size; give one such as ngn.Width(16)")
    if isinstance(capacity, (type, nn.Module)):
        raise TypeError("capacity= takes a function of a name and K, such as lambda name, K: ngn.CountGate(K)")
    if not (budget is None or isinstance(budget, Limits)):
        raise TypeError(f"budget={budget!r} is not a budget; give one such as ngn.Budget(parameters='60%')")
    if by_importance is not None:
        check(by_importance, calibration)
    for path, module in model.named_modules():
        if isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            what = f"{path or 'the model'} is a {kind_of(module)}, which would not see the boundaries"
            raise ValueError(f"{what}: call learn_sizes with the module inside it, then wrap the learner")
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise ValueError(f"{path or 'the model'} has no shapes yet: call the model once on data first")
    refuse_unknown(gate)
    if example is None:
        example = sizes.example if isinstance(sizes, FoundSizes) else None if budget is None else budget.example
    if also is None:
        also = next((each.also for each in (sizes, example) if isinstance(each, FoundSizes)), {})
    common = gate if budget is None else {"commit": BUDGET_COMMIT} | gate
    usual = capacity is None
    if budget is not None and budget.several:
        if gate or not usual:
            raise ValueError(f"a front has no gates to learn: leave {'=, '.join(gate) or 'capacity'}= out")
        capacity = lambda name, K: Opened(K)  # noqa: E731

    one: dict[Size, Capacity] = {}

    def maker(size: Size | None) -> Maker:
        def make(name: str, K: int) -> Capacity:
            if size is not None and size in one:
                if one[size].K != K:
                    raise ValueError(
                        f"{name} has {K} {size.unit}, but shares its size with a layer of {one[size].K}: shared=True "
                        "needs equal numbers, so give each kind of layer a pattern and a size of its own"
                    )
                return one[size]
            if capacity is not None:
                made = capacity(name, K)
            else:
                made = usual_gate(K, common) if size is None else size.gate(K, common)
            if not isinstance(made, Capacity):
                raise TypeError(f"capacity= returned a {kind_of(made)} for {name}: return one such as ngn.CountGate(K)")
            if made.K != K:
                raise ValueError(f"capacity= returned one of {made.K} components for {name}, which has {K}: pass it K")
            device = next((p.device for p in model.parameters() if not p.is_meta), None)
            made = made if device is None else made.to(device)
            if size is not None and size.shared:
                made.shared, one[size] = True, made
            return made

        return make

    def settle(axes: Sequence[OrderedAxis]) -> None:
        bound(axes, at_least, at_most)
        if by_importance is not None:
            sort(model, axes, by_importance, calibration, loss)

    put_back = snapshot(model)
    try:
        if frozen:
            model.requires_grad_(False)
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder):
                module.use_nested_tensor = False  # its fast path skips the hooks of the axes
        if budget is not None and budget.kind != "parameters" and budget.example is None:
            example = dummy(model) if example is None else example
            given = example.example if isinstance(example, FoundSizes) else example
            budget = replace(budget, example=given)
        found = _attach(model, sizes, maker, example, also, settle, budget is not None and budget.residual)
        limited: Any = FrontLearner if budget is not None and budget.several else BudgetLearner
        learner: Learner = Learner(model) if budget is None else limited(model, budget)
    except BaseException:
        put_back()
        raise
    guard_folders(model)
    learner.found, learner.also = found, also
    learner.watch.closely = usual
    if usual:  # other capacities may have recorded results, which should stay, to the last bit
        for axis in learner.axes:
            if isinstance(axis, HookedAxis):
                axis.in_weights = True
        if gates := [gate for gate in learner.gates if isinstance(gate, CountGate)]:
            GateBatch(model, gates)
    return learner


def _attach(
    model: nn.Module,
    sizes: Mapping[str, Size | None] | FoundSizes | None,
    maker: Callable[[Size | None], Maker],
    example: Any,
    also: Also,
    settle: Callable[[Sequence[OrderedAxis]], None],
    residual: bool,
) -> FoundSizes | None:
    """Make sizes learnable; return those of a trace, without what fails its trial, or None without a trace."""
    matched = matched_of(model, sizes) if isinstance(sizes, Mapping) else []
    named = [(name, size) for size, names, _ in matched if not isinstance(size, TracedSize) for name in names]
    found: FoundSizes | None = None
    axes: list[HookedAxis] = []
    wanted: list[set[str]] = []
    if residual or not isinstance(sizes, Mapping) or len(named) < sum(len(names) for _, names, _ in matched):
        given = next((each for each in (sizes, example) if isinstance(each, FoundSizes)), None)
        found = traced(model, given, example, also, residual)
        make = maker(None)
        if isinstance(sizes, Mapping):
            found, make, wanted = chosen_of(found, matched, maker)
        example, axes = found.example, attach_found(model, found, make)
    elif isinstance(example, FoundSizes):
        example = example.example
    for name, size in named:
        size.attach(model, name, maker(size))
    everything = axes_of(model)
    names = [axis.name for axis in everything]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two sizes have the name {', '.join(twice)}: put one of them on a module inside")
    settle(everything)
    without_values = any(p.is_meta or divided(p) for p in model.parameters())
    refuse_uncuttable(model, everything)
    if example is None and any(size.tried for _, size in named):
        example = dummy(model)
    failed = {} if example is None or without_values else failed_trials(model, everything, example, also)
    bad = {axis.name for axis in failed}
    for axis, reason in failed.items():
        if axis not in axes or any(axis.name in names and names <= bad for names in wanted):
            raise ValueError(f"{axis.name}: {reason}; {parts_of(model, axis)}. Leave it out")
    if found is None:
        return None
    kept = without_failed(found, axes, failed)
    if residual and not any(group.normalised for group in kept):
        warnings.warn("residual=True narrows nothing: print(learner.found) says what fixes each size", stacklevel=4)
    if not kept.groups and not named:
        raise ValueError(f"no size of this model can be cut:\n{kept if kept.fixed else 'no layer has a weight matrix'}")
    return kept
