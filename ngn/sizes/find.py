"""Find the sizes of a model, and cut some of them once, without training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ngn.checks import NONE, Also, snapshot
from ngn.methods.fixed import Retained
from ngn.sizes.attach import learn_sizes
from ngn.sizes.base import counts_of
from ngn.tracing.found import FoundSizes, listed
from ngn.tracing.groups import traced_sizes


def find_sizes(model: nn.Module, example: Any, also: Also = NONE) -> SizesToCut:
    """Find all sizes of ``model`` that can be cut, by tracing a pass in eval mode and one in train mode.

    Every dimension of every tensor is followed through the operations of torch. Dimensions that can only be cut
    together form a group: the channels of a stage with its residual sums, the pieces of a concatenation, the heads of
    an attention layer with grouped queries. An operation that is not known fixes what it touches. Nothing is tried yet:
    :func:`~ngn.sizes.attach.learn_sizes` cuts every group to half and to one, and compares outputs.

    Args:
        example: an input: a tuple for several arguments, a dictionary for keyword arguments.
        also: further inputs, by the method that takes them: ``{"forward": [longer], "encode": [x]}``. Give them for
            branches that ``example`` does not take, and for methods that you call. A warning names parameters that no
            pass reaches; sizes of their lengths are not cut.

    Returns:
        The groups; ``print`` shows them, and what is not cut with the reason. Choose among them with ``only`` and
        ``without``, and pass the result to ``learn_sizes``.

    >>> import torch, ngn
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10))
    >>> print(ngn.find_sizes(model, torch.randn(2, 3, 8, 8)))
    size      length  parameters  multiply-adds  members
    0     8 channels       99.7%         100.0%  0, 1, 4
    <BLANKLINE>
    not cut  length  why
    0             3  is that of an input
    4            10  is that of an output
    """
    return SizesToCut(**vars(traced_sizes(model, example, also)))


class SizesToCut(FoundSizes):
    """The sizes of a model; they can be learned, or cut at once."""

    def cut(
        self,
        counts: Mapping[str, int | str],
        by_importance: Any = "magnitude",
        calibration: Iterable[Any] | None = None,
        loss: Callable[..., Any] | None = None,
    ) -> nn.Module:
        """Cut once, without training: return a plain copy with the best units; the model stays as it is.

        Args:
            counts: pattern over the names of groups → how many units stay, or a share of them such as "50%".
            by_importance, calibration, loss: the score of units, as for ``learn_sizes``. Or a dictionary of scores by
                the name of a group, one for each unit; other groups are then scored by magnitude.

        Raises:
            ValueError: if there is no such group or count, or the copy computes something else on the example than the
                model with the other units masked.

        >>> import torch, ngn
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 12), torch.nn.ReLU(), torch.nn.Linear(12, 2))
        >>> ngn.find_sizes(model, torch.randn(3, 4)).cut({"0": 5})[0]
        Linear(in_features=4, out_features=5, bias=True)
        """
        kept = counts_of(counts, {group.name: group.length for group in self}, "cut")
        scores = by_importance if isinstance(by_importance, Mapping) else {}
        chosen = {}
        for name, n in kept.items():
            group, score = self[name], scores.get(name)
            if not 1 <= int(n) <= group.length:
                raise ValueError(f"{name}: {n:g} of {group.length} {group.unit} cannot stay: give 1 to {group.length}")
            if score is not None and len(score) != group.length:
                raise ValueError(f"{name}: {len(score)} scores for {group.length} {group.unit}")
            if score is not None:
                group = replace(group, order=torch.as_tensor(score).argsort(descending=True, stable=True).tolist())
            chosen[name] = group
        if unknown := [name for name in scores if name not in chosen]:
            raise ValueError(f"scores of {listed(unknown)}, which is not cut; scores are for {listed([*chosen])}")
        put_back = snapshot(self.model)
        try:
            learner = learn_sizes(
                self.model,
                self.chosen(chosen),
                capacity=lambda name, K: Retained(K, int(kept[name])),
                by_importance="magnitude" if scores else by_importance,
                calibration=calibration,
                loss=loss,
            )
            if left := [name for name in chosen if name not in learner.names]:
                reasons = [fixed.reason for fixed in learner.found.fixed if left[0] in fixed.members]
                raise ValueError(f"{listed(left)} cannot be cut: {'; '.join(reasons)}")
            return learner.deploy(example=self.example, unsettled="allow")
        finally:
            put_back()
