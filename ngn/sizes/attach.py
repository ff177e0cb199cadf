"""Learned sizes put on a model that exists, by the names of its modules."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from ngn.budget import BUDGET_COMMIT, Budget, BudgetLearner
from ngn.checks import axes_of
from ngn.learner import CapacityLearner
from ngn.methods.base import Capacity
from ngn.sizes.base import Maker, Size
from ngn.sizes.refusals import refuse_uncuttable, unchanged_on_error
from ngn.sizes.trial import refuse_different


def learn_sizes(
    model: nn.Module,
    sizes: Mapping[str, Size],
    *,
    budget: Budget | None = None,
    example: Any = None,
    frozen: bool = False,
    capacity: Maker | None = None,
    **gate: Any,
) -> CapacityLearner:
    """Make sizes of ``model`` learnable; it is changed, its weights stay the objects that they are.

    The start is the model as it was: weights that exist have all gates open (the boundary lies beyond the last
    component, where its gate is 1 - 1e-7) and no ordering weights. With ``t0=`` near 0 they grow instead.

    Args:
        sizes: what is learned in which modules: a pattern over the names of ``named_modules()`` → one of ``ngn.Width``,
            ``ngn.Heads``, ``ngn.Channels``, ``ngn.Rank``, ``ngn.Depth``. ``*`` stands for anything within one part of a
            name, ``**`` for any number of parts, "" for the model. Every matched module has a size of its own.
        budget: what the deployed model may cost, in place of a price: :class:`~ngn.budget.BudgetLearner`.
        example: an input (a tuple for several arguments, a dictionary for named ones; by itself that of the budget), on
            which every size is cut to half and to one for a trial, before anything is trained: what the cut model
            computes has to be what the model computes without the others.
        frozen: whether the present parameters are frozen, so that sizes (and terms of ranks) alone are learned.
        capacity: makes the capacity of (name, K), in place of a :class:`~ngn.methods.ngn.CountGate`.
        gate: settings of every gate, such as ``lambda0``, ``alpha_max``, ``beta``; those of a size come first. Sizes
            are integers from ``commit`` = 0.9 of training on, under a budget from 0.5 on.

    Returns:
        The learner; its ``names`` are those of the modules.

    Raises:
        ValueError: if a pattern matches no module, a module has no such size or none that can be cut, or no model is
            within the budget. The model is left as it was.
        TypeError: if a size or the budget is none.

    >>> import torch, ngn
    >>> from torch import nn
    >>> mlp = lambda: nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    >>> model = nn.ModuleDict({"blocks": nn.ModuleList(nn.ModuleDict({"mlp": mlp()}) for _ in range(2))})
    >>> learner = ngn.learn_sizes(model, {"blocks.*.mlp": ngn.Width(16)}, lambda0=1e-3)
    >>> learner.names, learner.count().tolist()
    (['blocks.0.mlp', 'blocks.1.mlp'], [16, 16])
    >>> ngn.learn_sizes(model, {"block.*.mlp": ngn.Width(16)})
    Traceback (most recent call last):
    ValueError: no module matches 'block.*.mlp'; near are: blocks.*.mlp, blocks.*.mlp.*, blocks.*
    """
    if not isinstance(model, nn.Module) or not isinstance(sizes, Mapping):
        raise TypeError(
            "learn_sizes takes a model and which of its modules get which size, such as {'blocks.*.mlp': "
            f"ngn.Width(16)}}, not a {type(model).__name__} and a {type(sizes).__name__}"
        )
    for pattern, size in sizes.items():
        if not isinstance(size, Size):
            raise TypeError(f"{pattern!r} takes a size such as ngn.Width(16), not {size!r}")
    if not (budget is None or isinstance(budget, Budget)):
        raise TypeError(f"budget= takes what is limited, such as ngn.Budget(parameters='60%'), not {budget!r}")
    for path, module in model.named_modules():
        if isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            raise ValueError(
                f"{path or 'the model'} is a {type(module).__name__} already, which would miss the boundaries: learn "
                "the sizes of what it holds, and wrap the learner"
            )
        if any(map(is_lazy, module.parameters(recurse=False))):
            raise ValueError(f"{path or 'the model'} has no shapes yet: call the model once before")
    matched = {pattern: _matches(model, pattern) for pattern in sizes}
    with unchanged_on_error(model):
        if frozen:
            model.requires_grad_(False)
        common = gate if budget is None else {"commit": BUDGET_COMMIT} | gate
        for pattern, size in sizes.items():

            def make(name: str, K: int, size: Size = size) -> Capacity:
                made = size.gate(K, common) if capacity is None else capacity(name, K)
                like = next(model.parameters(), None)
                return made if like is None or like.is_meta else made.to(like.device)

            for name in matched[pattern]:
                size.attach(model, name, make)
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder):
                module.use_nested_tensor = False  # its way past the layers' forward passes would miss the axes
        axes = axes_of(model)
        names = [axis.name for axis in axes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two sizes are called {', '.join(twice)}: put one of them on a module inside")
        if example is None and budget is not None:
            example = budget.example
        refuse_uncuttable(model, axes, tried=example is not None)
        if example is not None:
            refuse_different(model, axes, example)
        learner = CapacityLearner(model) if budget is None else BudgetLearner(model, budget)
    learner.watch.closely = capacity is None
    return learner


def _matches(model: nn.Module, pattern: str) -> list[str]:
    """Names of the modules that ``pattern`` matches."""
    steps = {"**.": r"(?:.*\.)?", "**": ".*", "*": r"[^.]*"}
    expression = re.sub(r"\*\*\.|\*\*|\*|[^*]+", lambda m: steps.get(m[0]) or re.escape(m[0]), pattern)
    names = [name for name, _ in model.named_modules()]
    if matched := [name for name in names if re.fullmatch(expression, name) and bool(name) == bool(pattern)]:
        return matched
    general = [*dict.fromkeys(re.sub(r"(?<![^.])\d+(?![^.])", "*", name) for name in names if name)]
    near = difflib.get_close_matches(pattern, general, cutoff=0.4) or general[:3]
    raise ValueError(f"no module matches {pattern!r}; near are: {', '.join(near)}")
