"""Orienting a DAG: its stages get the order of axes in which the results lie in memory.

    y[n, c, h, w] = f(x[n, c, h, w])                    y[n, h, w, c] = f(x[n, c, h, w])
    out[n, h, w, c] = y[n, c, h, w]             →       (out is y)

A result that only permutes the axes of a stage becomes that stage, computed in the result's order; so do, in turn, the
stages that it reads element by element.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.te.graph import body_expr, loads_of, stages
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir.expr import PrimExpr, Var
from pullback.tir.visitor import Mutator

Order = tuple[int, ...]  # the old axis at each place


def orient(outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The same outputs, each computed in its own order; the very same tensors where nothing has to be turned."""
    orders = _orders(outputs)
    if all(order == tuple(range(len(order))) for order in orders.values()) and not _copies(outputs):
        return tuple(outputs)
    turn = _Turn(orders)
    result = [turn.tensor(t) for t in outputs]
    found: dict[Tensor, Tensor] = {}  # two outputs are never one tensor
    for tensor in result:
        found.setdefault(_without_copy(tensor, result), tensor)
    stages_of = {tensor: stage for stage, tensor in found.items()}
    return tuple(stages_of.get(t, t) for t in result)


def _orders(outputs: Sequence[Tensor]) -> dict[Tensor, Order]:
    """The order of axes of each stage; outputs keep theirs."""
    orders: dict[Tensor, Order] = {t: tuple(range(t.ndim)) for t in outputs}
    copies = [t for t in outputs if isinstance(t.body, TensorLoad)]  # what they copy has their order, whoever reads it
    for stage in [*copies, *reversed(stages(outputs))]:
        order = orders.setdefault(stage, tuple(range(stage.ndim)))
        axes = [stage.axes[k] for k in order]
        for load in loads_of(stage):
            if load.tensor.is_placeholder or load.tensor in orders or load.tensor.ndim != len(axes):
                continue
            places = [_place(i, axes) for i in load.indices]
            if sorted(places) == list(range(len(axes))):  # the index at k moves with the axis at places[k]
                orders[load.tensor] = tuple(places.index(k) for k in range(len(axes)))
    return orders


def _place(index: PrimExpr, axes: Sequence[Var]) -> int:
    return next((k for k, axis in enumerate(axes) if axis is index), -1)


class _Turn(Mutator):
    """Rebuilds stages with their axes in new orders."""

    def __init__(self, orders: dict[Tensor, Order]) -> None:
        super().__init__()
        self.orders = orders
        self._turned: dict[Tensor, Tensor] = {}

    def tensor(self, tensor: Tensor) -> Tensor:
        if tensor.is_placeholder:
            return tensor
        if tensor not in self._turned:
            order = self.orders[tensor]
            source = self.expr(body_expr(tensor))
            body = Reduce(tensor.body.kind, source, tensor.body.axes) if isinstance(tensor.body, Reduce) else source
            shape, axes = tuple(tensor.shape[k] for k in order), tuple(tensor.axes[k] for k in order)
            self._turned[tensor] = Tensor(tensor.name, shape, tensor.dtype, axes, body)
        return self._turned[tensor]

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if not isinstance(node, TensorLoad):
            return super()._expr(node)
        indices = [self.expr(i) for i in node.indices]
        if not node.tensor.is_placeholder:
            indices = [indices[k] for k in self.orders[node.tensor]]
        return TensorLoad(self.tensor(node.tensor), tuple(indices))


def _copies(outputs: Sequence[Tensor]) -> bool:
    return any(_without_copy(t, outputs) is not t for t in outputs)


def _without_copy(tensor: Tensor, outputs: Sequence[Tensor]) -> Tensor:
    """The stage that an output copies element by element, unless it is an output itself."""
    body = tensor.body
    if not isinstance(body, TensorLoad) or body.tensor.is_placeholder or body.tensor in outputs:
        return tensor
    whole = body.tensor.shape == tensor.shape  # not its beginning
    same = whole and all(i is a for i, a in zip(body.indices, tensor.axes, strict=True))
    return _without_copy(body.tensor, outputs) if same else tensor
