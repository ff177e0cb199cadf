"""The axis of a size in a model that exists: hooks call it, so that no forward pass has to be rewritten."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ngn.axis import OrderedAxis


class HookedAxis(OrderedAxis):
    """An ordered axis that hooks call on what other modules take, or around layers.

    Truncation removes the axis and its hooks once it has nothing to multiply by.
    """

    hooked = True
    _written: tuple[int, int] | None = None
    """Which tensor a layer is given, and how often that has been written into."""

    def dim_at(self, consumer: nn.Module) -> int:
        """The dimension of the activation where ``consumer`` takes it: of a linear map the last, of a convolution that
        of its channels."""
        if isinstance(consumer, _ConvNd):
            return -1 - len(consumer.kernel_size)
        return -1 if isinstance(consumer, nn.Linear) else self.dim

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Forward pre-hook, with keywords, of a module whose first input is the activation with the axis."""
        dim = self.dim_at(module)
        if args:
            return (self._scaled(args[0], dim), *args[1:]), kwargs
        name = next(iter(kwargs))
        return (), kwargs | {name: self._scaled(kwargs[name], dim)}

    def before_layer(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forward pre-hook of a layer of a residual stack: note what has been written into its input so far."""
        if not torch.compiler.is_compiling():
            h = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
            self._written = None if h is None or h.is_inference() else (id(h), h._version)

    def after_layer(self, k: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Forward hook of layer k of a residual stack: h + F(h) → h + c_k F(h). A tuple has h + F(h) in front; h is the
        first argument, by keywords the first of that shape."""
        c = self.coefficients()
        y = output[0] if isinstance(output, tuple) else output
        shaped = (value for value in kwargs.values() if isinstance(value, Tensor) and value.shape == y.shape)
        h = args[0] if args else next(shaped, None)
        if h is None:
            raise ValueError(f"{self.name}: a layer is given nothing of the shape of what it gives")
        if c is not None:
            seen, version = (None, None) if torch.compiler.is_compiling() else self._written or (None, None)
            if seen is not None and seen == id(h) and version != h._version:
                raise ValueError(f"{self.name}: a layer adds to its input in place, which is lost then: x = x + f(x)")
            y = torch.lerp(h.to(y.dtype), y, c[k].to(y.dtype))  # exactly y for c_k = 1
        return (y, *output[1:]) if isinstance(output, tuple) else y


def taken_by(consumer: nn.Module) -> HookedAxis | None:
    """The axis whose activation ``consumer`` takes; None if no hook calls one."""
    for called in consumer._forward_pre_hooks.values():
        if getattr(called, "__func__", None) is HookedAxis.before:
            return getattr(called, "__self__", None)
    return None


def call_before(axis: HookedAxis, *consumers: nn.Module) -> None:
    """Have ``axis`` called on what each of the ``consumers`` is given; it is a child of the first.

    Raises:
        ValueError: if a consumer has an axis already.
    """
    for consumer in consumers:
        if hasattr(consumer, "size") or taken_by(consumer) is not None:
            raise ValueError(
                f"{axis.name or 'the model'}: another size ends at the same module. Either two of these patterns name "
                "it, or the model has learned sizes already: go on with that learner, or build the model anew"
            )
        consumer.register_forward_pre_hook(axis.before, with_kwargs=True)
    consumers[0].add_module("size", axis)
