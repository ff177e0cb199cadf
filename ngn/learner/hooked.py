"""The axis of a size in an existing model: hooks call it, so no forward pass is rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ngn.axis import OrderedAxis
from ngn.checks import value_of
from ngn.cut.modules import remove_calls
from ngn.cuts import Cut
from ngn.tracing.found import Consumer, Polynomial


class HookedAxis(OrderedAxis):
    """An ordered axis called by hooks, on the inputs of other modules or around layers.

    The coefficients multiply the input of a consumer, h, or its weight, W: (W c) h = W (c h), up to rounding. In
    training it is the weight if that is trained and has fewer entries than the input. Frozen weights keep the input, as
    their gradient would cost a product of its own; so do quantised and parametrised ones. A weight that tensor
    parallelism has divided takes the coefficients itself: its process sees only a part of the input.

    Truncation removes the axis and its hooks as soon as no coefficient differs from one. What lies between the modules
    that produce the units and those that read them does not matter: a removed unit reaches no product.

    Args, beside those of :class:`~ngn.axis.OrderedAxis`:
        units: number of units that importance can sort, a multiple of K; None for none.
        consumers: the products that read units that a trace has found.
        costs, normalised: by kind, the cost of the model as a function of all sizes that the trace has found; whether
            norms run over the components, so that they can be cut, but not masked.
    """

    hooked = True

    def __init__(
        self,
        *others: Any,
        units: int | None = None,
        consumers: Sequence[Consumer] = (),
        costs: Mapping[str, Polynomial | None] | None = None,
        normalised: bool = False,
        **settings: Any,
    ) -> None:
        self.consumers, self.normalised = tuple(consumers), normalised
        super().__init__(*others, **settings)
        self.units, self.costs = units, costs or {}
        self.seen = all(consumer.by_input for consumer in consumers)
        """Whether hooks see the input of all that reads the components."""
        self.in_weights = False
        """Whether coefficients may multiply the weight of a consumer; you may set it."""
        self._gated: list[tuple[nn.Module, dict[str, Any], str, Any]] = []
        """Weights replaced during the pass of a module: (module, table of parameters, name, weight)."""
        self._written: tuple[int, int] | None = None
        """(id, version) of a layer's input, to detect writes into it."""
        folded = all(any(cut.fold for cut in self._of(each)) for each in consumers)
        if not folded and not bool((self.capacity.weights() == 1).all()):
            raise ValueError(f"{self.name}: a tied weight reads its units, so ordering weights must be one: set r=1")
        self.moved()

    def _of(self, consumer: Consumer) -> list[Any]:
        own = [cut for cut in self.cuts if (cut.module, cut.dim) == (consumer.holder, consumer.dim)]
        return [cut for cut in own if cut.name == consumer.name] or own  # a hook may compute a weight of other tensors

    worth: Tensor | None = None
    """The sum of squared Taylor scores of each component, float64 [K], where units were sorted by them."""

    def moved(self) -> None:
        """Note, for each consumer, the place of every entry that it reads; a last place for entries of other sizes."""
        self._units: list[Tensor | None] = []  # None where a consumer reads the components alone
        for consumer in self.consumers:
            cuts, n = self._of(consumer), self.places
            value = value_of(consumer.holder, cuts[0].name if cuts else consumer.name)
            units = torch.full((value.shape[consumer.dim],), n)
            for cut in cuts:
                units[cut.start : cut.start + n * cut.width] = torch.arange(n).repeat_interleave(cut.width)
            self._units.append(None if len(cuts) == 1 and not bool((units == n).any()) else units)

    def sort(self, by_importance: Sequence[int]) -> None:
        super().sort(by_importance)
        self.moved()

    def closed(self, scale: Tensor | None) -> None:
        super().closed(scale)
        self.consumers, self._units = (), []

    def attach(self, *sites: nn.Module) -> None:
        """Let hooks of all that reads the components call the axis, which becomes a child of the first module.

        ``sites``: modules whose first input is the activation with the axis, beside the ``consumers``. It is a
        ValueError if one of them already has an axis.
        """
        if any(hasattr(site, "size") or taken_by(site) for site in sites):
            raise ValueError(
                f"{self.name or 'the model'}: its consumer already has a learned size. If two patterns match it, "
                "remove one. If learn_sizes was called on this model before, use that learner, or build the model anew"
            )
        everything = [*dict.fromkeys((*sites, *(consumer.site for consumer in self.consumers)))]
        for site in everything:
            if site in sites or any(consumer.by_input for consumer in self.consumers if consumer.site is site):
                site.register_forward_pre_hook(self.before, with_kwargs=True)
                site.register_forward_hook(self.after, always_call=True)
            else:
                site.register_forward_pre_hook(self.before_weights)
                site.register_forward_hook(self.after, prepend=True, always_call=True)
        number = 1
        while hasattr(everything[0], name := "size" if number == 1 else f"size_{number}"):
            number += 1
        everything[0].add_module(name, self)

    def detach(self) -> None:
        """Undo :meth:`attach`."""
        for consumer in self.consumers:
            remove_calls(consumer.site, lambda part: part is self)

    def dim_at(self, consumer: nn.Module) -> int:
        """Return the dimension of the axis in the input of ``consumer``: the last, or a convolution's channels."""
        if isinstance(consumer, _ConvNd):
            return -1 - len(consumer.kernel_size)
        return -1 if isinstance(consumer, nn.Linear) else self.dim

    def along(self, consumer: nn.Module, values: Tensor, h: Tensor) -> Tensor:
        """Values of the places, for each entry that a consumer reads of its input ``h``."""
        number = next((n for n, each in enumerate(self.consumers) if each.site is consumer and each.by_input), None)
        return self._spread(values, number, h, self.dim_at(consumer))

    def _spread(self, values: Tensor, number: int | None, h: Tensor, dim: int) -> Tensor:
        """Values of the places, for each entry of ``h`` that consumer ``number`` reads; one for other entries."""
        units = None if number is None else self._units[number]
        if number is None or units is None:
            return self.repeated(values, h, dim)
        if units.device != values.device:
            units = self._units[number] = units.to(values.device)
        return torch.cat([values, values.new_ones(1)])[units]

    def before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        """Multiply the first input, by position or keyword, or the weight; a forward pre-hook of a consumer."""
        if self.called and (capacity := self.capacity) is not None and capacity.all_open:
            return None
        name = None if args else next(iter(kwargs))
        h = args[0] if name is None else kwargs[name]
        if (cut := self._weight_for(module, h)) is not None:
            weight: Any = module._parameters["weight"]
            if (factor := self.factor(weight, cut.dim)) is not None:
                self._gate(module, module, "weight", weight * like(factor, weight))
            return None
        if (c := self.coefficients()) is not None:
            h = h * self.along(module, c.to(h), h).view(-1, *[1] * (-1 - self.dim_at(module)))
        return ((h, *args[1:]), kwargs) if name is None else ((), kwargs | {name: h})

    def _gate(self, module: nn.Module, holder: nn.Module, name: str, value: Any) -> None:
        """Put a tensor in the place of a parameter or buffer for a pass of ``module``; gradients flow to both."""
        table: dict[str, Any] = holder._buffers if name in holder._buffers else holder._parameters
        self._gated.append((module, table, name, table[name]))
        table[name] = value

    def before_weights(self, module: nn.Module, args: Any) -> None:
        """Put gated weights in the place of those that ``module`` reads; a forward pre-hook."""
        c = self.coefficients()
        for number, consumer in enumerate(self.consumers if c is not None else ()):
            if consumer.site is module:
                weight: Any = getattr(consumer.holder, consumer.name)
                factor = self._spread(c.to(weight.dtype), number, weight, consumer.dim)  # type: ignore[union-attr]
                factor = factor.view(-1, *[1] * (weight.dim() - 1 - consumer.dim))
                self._gate(module, consumer.holder, consumer.name, weight * factor)

    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Put the weights back that were replaced; a forward hook, called after errors, too."""
        while self._gated and self._gated[-1][0] is module:
            _, table, name, weight = self._gated.pop()
            table[name] = weight

    def _weight_for(self, consumer: nn.Module, h: Tensor) -> Cut | None:
        """The cut of the weight of ``consumer`` to multiply in place of its input ``h``; None for the input."""
        weight = consumer._parameters.get("weight")
        if not divided(weight):
            # threads may share a model where nothing is trained, so there the module stays as it is
            if not self.in_weights or not torch.is_grad_enabled() or torch.compiler.is_compiling():
                return None
            if type(weight) is not nn.Parameter or not weight.requires_grad or weight.numel() >= h.numel():
                return None
        own = (cut for cut in self.cuts if cut.module is consumer and cut.name == "weight")
        whole = (cut for cut in own if cut.start == 0 and cut.fold and weight.shape[cut.dim] == self.places * cut.width)  # type: ignore[union-attr]
        return next(whole, None)

    def before_layer(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the version of the input; a forward pre-hook of a layer of a residual stack."""
        if not torch.compiler.is_compiling():
            h = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
            self._written = None if h is None or h.is_inference() else (id(h), h._version)

    def after_layer(self, k: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """Turn the output h + F(h), or a tuple that begins with it, into h + c_k F(h); a forward hook of layer k.

        h is the first positional argument, or the first keyword argument of the output's shape. It is a ValueError if
        there is none, or if the layer has overwritten it.
        """
        c = self.coefficients()
        y = output[0] if isinstance(output, tuple) else output
        shaped = (value for value in kwargs.values() if isinstance(value, Tensor) and value.shape == y.shape)
        h = args[0] if args else next(shaped, None)
        if h is None:
            raise ValueError(f"{self.name}: no input of a layer has the shape of its output, {list(y.shape)}")
        if c is not None:
            seen, version = (None, None) if torch.compiler.is_compiling() else self._written or (None, None)
            if seen is not None and seen == id(h) and version != h._version:
                raise ValueError(
                    f"{self.name}: a layer overwrites its input in place; write x = x + f(x), not x += f(x)"
                )
            y = torch.lerp(h.to(y.dtype), y, c[k].to(y.dtype))  # exactly y for c_k = 1
        return (y, *output[1:]) if isinstance(output, tuple) else y

    def shrunk(self, kept: Tensor) -> None:
        """Also give the hooks of the layers that are left their new numbers."""
        super().shrunk(kept)
        for layers in (getattr(cut.module, cut.name) for cut in self.cuts):
            for number, layer in enumerate(layers if isinstance(layers, nn.ModuleList) else ()):
                for key, hook in layer._forward_hooks.items():
                    if isinstance(hook, partial) and getattr(hook.func, "__self__", None) is self:
                        layer._forward_hooks[key] = partial(hook.func, number)


def divided(weight: Any) -> bool:
    """Whether a weight is a ``DTensor``, divided among processes."""
    return hasattr(weight, "device_mesh")


def like(factor: Tensor, weight: Any) -> Tensor:
    """``factor``, the same in every process, for ``weight``: as a ``DTensor`` if that is one."""
    if not divided(weight):
        return factor
    from torch.distributed.tensor import DTensor, Replicate

    mesh = weight.device_mesh
    return DTensor.from_local(factor, mesh, [Replicate()] * mesh.ndim, run_check=False)


def taken_by(consumer: nn.Module) -> list[HookedAxis]:
    """Return the axes that multiply the input of ``consumer``."""
    hooks = consumer._forward_pre_hooks.values()
    return [hook.__self__ for hook in hooks if getattr(hook, "__func__", None) is HookedAxis.before]  # type: ignore[attr-defined]
