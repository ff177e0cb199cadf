"""Learned widths of feed-forward layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ngn.axis import inputs, outputs
from ngn.sizes.base import ByImportance, Maker, Size, by_unit, entries, has_linear, is_linear, linear


class Width(Size):
    """The width of a feed-forward layer: ``K`` slices of neighbouring hidden units.

    If the module has only these linear layers, their shapes identify them. In layers of BERT and
    ``nn.TransformerEncoder``, their names do.

    Args:
        K, by_importance, round_to, gate: see :class:`Size`; K = None for single units.
        up, down: names, inside the module, of the linear layers into the hidden units, and of the one out of them.

    >>> import torch, ngn
    >>> mlp = torch.nn.Sequential(torch.nn.Linear(4, 12), torch.nn.GELU(), torch.nn.Linear(12, 4))
    >>> learner = ngn.learn_sizes(mlp, {"": ngn.Width(6, t0=1.2)})
    >>> learner.deploy(example=torch.randn(3, 4), unsettled="allow")
    Sequential(
      (0): Linear(in_features=4, out_features=4, bias=True)
      (1): GELU(approximate='none')
      (2): Linear(in_features=4, out_features=4, bias=True)
    )
    """

    unit = "slices"

    def __init__(
        self,
        K: int | None = None,
        by_importance: ByImportance = None,
        up: Sequence[str] = (),
        down: str = "",
        **gate: Any,
    ) -> None:
        super().__init__(K, by_importance, **gate)
        self.up, self.down = ([up] if isinstance(up, str) else [*up]), down

    def attach(self, model: nn.Module, name: str, make: Maker) -> None:
        module = model.get_submodule(name)
        ups, down = self._maps(module, name)
        units = entries(down)[0]
        if wrong := [up for up in ups if entries(up)[1] != units]:
            raise ValueError(f"{name or 'the model'}: {wrong[0]} does not have the {units} outputs that {down} needs")
        K = self.divided(name, units)
        parts = [*module.modules()]
        if isinstance(module, nn.Sequential):
            parts = parts[parts.index(ups[0]) + 1 : parts.index(down)]
        elif units in (entries(ups[0])[0], entries(down)[1]):
            parts = []  # a norm of this size may be of the hidden units or of the residual stream
        through = [-1, 1] if isinstance(module, nn.Sequential) else []
        having = by_unit(parts, units, name or "the model", through)
        cuts = [cut for part in (*ups, *having) for cut in outputs(part, units // K)]
        self.axis(name, K, make, cuts + inputs(down, units // K), [down], units=units)

    def _maps(self, module: nn.Module, name: str) -> tuple[list[nn.Module], nn.Module]:
        named = [(self.up, self.down)] if self.down else []
        for up, down in named or _FEED_FORWARD:
            if named or has_linear(module, [*up, down]):
                return [linear(module, name, path) for path in up], linear(module, name, down)
        maps = [m for m in module.modules() if is_linear(m)]
        for number, last in reversed([*enumerate(maps)]):
            ups = maps[:number] + maps[number + 1 :]
            if len(ups) > 1 and (isinstance(module, nn.Sequential) or entries(ups[0])[0] == entries(last)[0]):
                continue  # they may be applied one after the other
            if last is not maps[-1] and entries(last)[1] != entries(ups[0])[0]:
                continue  # this reading would invert a fused up projection, or attention
            if ups and all(entries(up) == (entries(ups[0])[0], entries(last)[0]) for up in ups):
                return ups, last
        shapes = ", ".join(
            f"{path} {' -> '.join(map(str, entries(m)))}" for path, m in module.named_modules() if is_linear(m)
        )
        raise ValueError(
            f"{name or type(module).__name__}: shapes alone do not tell its up and down layers "
            f"({shapes or 'no linear layers'}); name them: ngn.Width(up=[...], down=...)"
        )


_FEED_FORWARD = [(["intermediate.dense"], "output.dense"), (["linear1"], "linear2"), (["fc1"], "fc2")]
