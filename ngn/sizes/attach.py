"""Learned sizes for the modules of an existing model, chosen by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from ngn.allocation import BudgetLearner
from ngn.axis import OrderedAxis
from ngn.budget import BUDGET_COMMIT, Budget
from ngn.checks import axes_of
from ngn.importance import Importance, check, sort
from ngn.learner import CapacityLearner
from ngn.methods.base import Capacity
from ngn.methods.batch import GateBatch
from ngn.methods.ngn import CountGate
from ngn.sizes.base import Maker, Size, usual_gate
from ngn.sizes.found import Settle, attach_found
from ngn.sizes.hooked import HookedAxis
from ngn.sizes.refusals import refuse_uncuttable, unchanged_on_error
from ngn.sizes.trial import refuse_different
from ngn.tracing.found import FoundSizes
from ngn.tracing.groups import find_sizes


def learn_sizes(
    model: nn.Module,
    sizes: Mapping[str, Size] | FoundSizes | None = None,
    *,
    budget: Budget | None = None,
    example: Any = None,
    frozen: bool = False,
    capacity: Maker | None = None,
    by_importance: Importance | None = None,
    calibration: Iterable[Any] | None = None,
    loss: Callable[..., Any] | None = None,
    **gate: Any,
) -> CapacityLearner:
    """Make sizes of ``model`` learnable, in place; no weight is copied.

    Training starts from your model unchanged: every gate is open (1 - 1e-7), without ordering weights. With ``t0=``
    near 0, components grow from few instead.

    Without ``sizes`` everything is learned that :func:`~ngn.tracing.groups.find_sizes` finds, and that passes its
    trial. What was found and fails is left as it is; ``learner.found`` lists it with the reason.

    Args:
        sizes: None for all that is found; a choice among it, such as ``find_sizes(model, x).without("head")``; or
            a pattern over the names of ``named_modules()`` → one of ``ngn.Width``, ``ngn.Heads``,
            ``ngn.Channels``, ``ngn.Rank``, ``ngn.Depth``. ``*`` matches anything within one part of a name, ``**``
            any number of parts, "" the model. Every matched module learns its own size.
        budget: limit on what the deployed model costs, instead of a price: :class:`~ngn.allocation.BudgetLearner`.
        example: an input: a tuple for several arguments, a dictionary for keyword arguments. Default: that of the
            budget. The library cuts every size to half and to one, and compares outputs, before any training.
        frozen: freeze the present parameters; only sizes, and the terms of ranks, are learned.
        capacity: makes the capacity of (name, K), instead of a :class:`~ngn.methods.ngn.CountGate`.
        by_importance: the score of units (:mod:`ngn.importance`), the best of which stay: "magnitude", or "taylor" or
            "wanda" from ``calibration``. None: the units in front stay. No weight moves.
        calibration: batches of training data, such as the ``DataLoader`` of the training; the first 32 are read.
        loss: how to use a batch, as for ``ngn.fit``. None: batches are as ``example``, and the output has its ``loss``.
        gate: settings of every gate, such as ``lambda0``, ``alpha_max``, ``beta``; those of a size come first. Sizes
            become integers at ``commit`` = 0.9 of training, under a budget at 0.4.

    Returns:
        The learner; its ``names`` are those of the modules.

    Raises:
        ValueError: if a pattern matches no module, a module has no such size, a size cannot be cut, or no model is
            within the budget. The model is not modified.
        TypeError: if ``model``, ``sizes``, a size or ``budget`` has the wrong type.

    >>> import torch, ngn
    >>> from torch import nn
    >>> mlp = lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    >>> model = nn.ModuleDict({"blocks": nn.ModuleList(nn.ModuleDict({"mlp": mlp()}) for _ in range(2))})
    >>> learner = ngn.learn_sizes(model, {"blocks.*.mlp": ngn.Width(16)}, lambda0=1e-3)
    >>> learner.names, learner.count().tolist()
    (['blocks.0.mlp', 'blocks.1.mlp'], [16, 16])
    >>> ngn.learn_sizes(model, {"block.*.mlp": ngn.Width(16)})
    Traceback (most recent call last):
    ValueError: no module matches 'block.*.mlp'; did you mean blocks.*.mlp, blocks.*.mlp.*, blocks.*?
    """
    if not isinstance(model, nn.Module) or not (sizes is None or isinstance(sizes, (Mapping, FoundSizes))):
        raise TypeError(
            f"learn_sizes got a {type(model).__name__} and a {type(sizes).__name__}; it takes a model and a dictionary "
            "of names and sizes: ngn.learn_sizes(model, {'blocks.*.mlp': ngn.Width(16)})"
        )
    for pattern, size in sizes.items() if isinstance(sizes, Mapping) else ():
        if not isinstance(size, Size):
            raise TypeError(f"{pattern!r}: {size!r} is not a size; give one such as ngn.Width(16)")
    if not (budget is None or isinstance(budget, Budget)):
        raise TypeError(f"budget={budget!r} is not a budget; give one such as ngn.Budget(parameters='60%')")
    if by_importance is not None:
        check(by_importance, calibration)
    for path, module in model.named_modules():
        if isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            raise ValueError(
                f"{path or 'the model'} is a {type(module).__name__}, which would not see the boundaries: call "
                "learn_sizes with the module inside it, then wrap the learner"
            )
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise ValueError(f"{path or 'the model'} has no shapes yet: call the model once on data first")
    if example is None:
        example = sizes.example if isinstance(sizes, FoundSizes) else None if budget is None else budget.example
    common = gate if budget is None else {"commit": BUDGET_COMMIT} | gate

    def maker(gate_of: Callable[[int, dict[str, Any]], CountGate]) -> Maker:
        def make(name: str, K: int) -> Capacity:
            made = gate_of(K, common) if capacity is None else capacity(name, K)
            parameter = next(model.parameters(), None)
            return made if parameter is None or parameter.is_meta else made.to(parameter.device)

        return make

    def settle(axes: Sequence[OrderedAxis]) -> None:
        if by_importance is not None:
            sort(model, axes, by_importance, calibration, loss)

    with unchanged_on_error(model):
        if frozen:
            model.requires_grad_(False)
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder):
                module.use_nested_tensor = False  # its fast path skips the hooks of the axes
        found = None
        if isinstance(sizes, Mapping):
            _attach_named(model, sizes, maker, example, settle)
        else:
            found = _attach_found(model, sizes, maker(usual_gate), example, settle)
        learner = CapacityLearner(model) if budget is None else BudgetLearner(model, budget)
    learner.found = found
    learner.watch.closely = capacity is None
    if capacity is None:  # other capacities may have recorded results, which should stay, to the last bit
        for axis in learner.axes:
            if isinstance(axis, HookedAxis):
                axis.in_weights = True
        GateBatch(model, [axis.capacity for axis in learner.axes if isinstance(axis.capacity, CountGate)])
    return learner


def _attach_found(model: nn.Module, found: FoundSizes | None, make: Maker, example: Any, settle: Settle) -> FoundSizes:
    """Make what was found learnable, without what fails its trial."""
    if found is None:
        example = dummy(model) if example is None else example
        found = find_sizes(model, example)
    elif found.model is not model:
        raise ValueError("these sizes were found in another model: call find_sizes with this one")
    kept = attach_found(model, found, make, settle)
    if not kept.groups:
        raise ValueError(f"no size of this model can be cut:\n{kept}")
    refuse_uncuttable(model, axes_of(model), tried=True)
    return kept


def dummy(model: nn.Module) -> Any:
    """The input that a model of transformers brings with it.

    Raises:
        ValueError: if there is none.
    """
    if not (inputs := getattr(model, "dummy_inputs", None)):
        raise ValueError(
            "sizes are found by tracing the model: pass example=, an input of it (a tuple for several arguments, a "
            "dictionary for keyword arguments)"
        )
    return dict(inputs)


def _attach_named(
    model: nn.Module, sizes: Mapping[str, Size], maker: Callable[..., Maker], example: Any, settle: Settle
) -> None:
    """Make the sizes of the modules that match each pattern learnable.

    Raises:
        ValueError: as :func:`learn_sizes`.
    """
    matched = {pattern: _matches(model, pattern) for pattern in sizes}
    for pattern, size in sizes.items():
        for name in matched[pattern]:
            size.attach(model, name, maker(size.gate))
    axes = axes_of(model)
    names = [axis.name for axis in axes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two sizes have the name {', '.join(twice)}: put one of them on a module inside")
    settle(axes)
    refuse_uncuttable(model, axes, tried=example is not None)
    if example is not None:
        refuse_different(model, axes, example)


def _matches(model: nn.Module, pattern: str) -> list[str]:
    """Return the names of the modules that ``pattern`` matches."""
    parts = {"**.": r"(?:.*\.)?", "**": ".*", "*": r"[^.]*"}
    expression = re.sub(r"\*\*\.|\*\*|\*|[^*]+", lambda m: parts.get(m[0]) or re.escape(m[0]), pattern)
    names = [name for name, _ in model.named_modules()]
    if matched := [name for name in names if re.fullmatch(expression, name) and bool(name) == bool(pattern)]:
        return matched
    general = [*dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names if name)]
    near = difflib.get_close_matches(pattern, general, cutoff=0.4) or general[:3]
    raise ValueError(f"no module matches {pattern!r}; did you mean {', '.join(near)}?")
