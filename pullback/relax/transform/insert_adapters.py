"""Bottleneck adapters behind layers: h + U·act(D·h + d) + u in the place of a layer's result h (Houlsby et al. 2019).

A layer is what has its name in the spans of its calls: a module that was traced, or a layer of another framework. In a
function without such names it is the line of a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.ir.node import span_scope
from pullback.relax import op
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Binding, DataflowVar, Expr, Function, Tuple, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.struct_info import TensorStructInfo, as_tensor

ACTIVATIONS = {"gelu": op.nn.gelu, "relu": op.nn.relu, "silu": op.nn.silu, "tanh": op.tanh}


@dataclass(frozen=True)
class LayerAdapter:
    """The adapter of one layer of a function, whose four parameters are the function's: ``down`` (size, width) with its
    bias (size,), ``up`` (width, size) with its bias (width,), along ``axis`` of the layer's result."""

    layer: str
    down: Var
    down_bias: Var
    up: Var
    up_bias: Var
    activation: str = "gelu"
    axis: int = -1

    @staticmethod
    def made_of(layer: str, parts: Iterable[Var], activation: str, axis: int) -> LayerAdapter:
        """``parts``: the four parameters, in their order."""
        down, down_bias, up, up_bias = parts
        return LayerAdapter(layer, down, down_bias, up, up_bias, activation, axis)

    def of(self, h: Expr) -> Expr:
        """The adapter's result for the layer's."""
        rank = as_tensor(h.struct_info).ndim
        axes = [k for k in range(rank) if k != self.axis % rank] + [self.axis % rank]
        is_last = axes == list(range(rank))
        x = h if is_last else op.permute_dims(h, axes)
        inner = ACTIVATIONS[self.activation](op.linear(x, self.down, self.down_bias))
        added = op.linear(inner, self.up, self.up_bias)
        return op.add(h, added if is_last else op.permute_dims(added, [axes.index(k) for k in range(rank)]))


def layer_names(function: Function) -> list[str]:
    """The layers of a function, with those that they are in; of one without layers, its variables."""
    found: dict[str, None] = {}
    for binding in function.bindings:
        parts = (_layer(binding) or "").split(".")
        found |= dict.fromkeys(".".join(parts[: k + 1]) for k in range(len(parts)))
    found.pop("", None)
    return list(found) or [binding.var.name for binding in function.bindings]


def result_of(function: Function, layer: str, states: int) -> Var:
    """The variable of a layer's result: the one tensor that others read of what it computes. The function's last
    ``states`` results are new values of states, which are no results of a layer. An ArgumentError where there are none
    or several."""
    body = function.body.body
    results: Sequence[Any] = body.fields if isinstance(body, Tuple) else (body,)
    new_states = set(results[len(results) - states :]) if states else set()
    has_layers = any(_layer(b) for b in function.bindings)
    inside = {b.var for b in function.bindings if _is_in(b, layer, has_layers)}
    read: dict[Var, None] = {}
    for binding in function.bindings:
        if binding.var not in inside and binding.var not in new_states:
            read |= dict.fromkeys(v for v in used_vars(binding.value) if v in inside)
    read |= {v: None for v in results if v in inside and v not in new_states}
    if len(read) != 1:
        listed = ", ".join(v.name for v in read) or "nothing"
        raise ArgumentError(
            f"layer {layer} has no one result behind which an adapter would be: others read {listed}",
            hint="take a layer that is called once, and returns one tensor",
        )
    return next(iter(read))


def width_of(result: Var, layer: str, axis: int) -> int:
    """The size of a layer's result along an axis; a ShapeError where it is no number, or there is no such axis."""
    info = result.struct_info
    width = None
    if isinstance(info, TensorStructInfo) and info.shape is not None and -info.ndim <= axis < info.ndim:
        width = info.shape[axis]
    if not isinstance(width, int):
        raise ShapeError(f"the result of layer {layer}, {info}, has no fixed size along axis {axis}")
    return width


def with_adapters(function: Function, adapters: Iterable[LayerAdapter], states: int) -> Function:
    """The function with adapters, whose parameters are parameters of it already."""
    found = {result_of(function, a.layer, states): a for a in adapters}
    return _Insert(found).function(function) if found else function


def _layer(binding: Binding) -> str | None:
    return binding.value.span.layer if binding.value.span is not None else None


def _is_in(binding: Binding, layer: str, has_layers: bool) -> bool:
    if not has_layers:
        return binding.var.name == layer
    name = _layer(binding) or ""
    return name == layer or name.startswith(f"{layer}.")


class _Insert(ExprMutator):
    def __init__(self, adapters: dict[Var, LayerAdapter]) -> None:
        super().__init__()
        self.adapters = adapters

    def rewrite_binding(self, binding: Binding) -> None:
        super().rewrite_binding(binding)
        adapter = self.adapters.get(binding.var)
        if adapter is None:
            return
        emit = self.builder.emit if isinstance(binding.var, DataflowVar) else self.builder.emit_output
        with span_scope(binding.value.span):
            self.env[binding.var] = emit(adapter.of(self.env[binding.var]), f"{binding.var.name}_adapted")
