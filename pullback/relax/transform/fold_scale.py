"""FoldScale: what scales the output channels of a product with a constant weight goes into the weight.

    y = R.nn.conv2d(x, R.const(w))                  w: (O, I, h, w), b, scale, shift: (O, 1, 1)
    z = R.add(y, R.const(b))                   →    y = R.nn.conv2d(x, R.const(w · scale))
    r = R.ewise_fma(z, R.const(scale),              r = R.add(y, R.const(b · scale + shift))
                    R.const(shift))

A batch norm in its form for inference is such a multiply-add. Products are matmul, linear, convolutions and their
transposes of float32 or float64; what follows is add, subtract, multiply, divide and ewise_fma with constants that
differ along the output channels alone. A value that something else reads stays as it is. The new weight is computed in
float64 and rounded once; a weight that would no longer be finite stays.

Results are rounded otherwise than before: no compiled function gets this pass unless it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.expr import Binding, Call, Constant, Expr, Function
from pullback.relax.mutator import ExprMutator
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.convolution_form import Form
from pullback.relax.struct_info import TensorStructInfo, same_info
from pullback.relax.transform.dead_code_elimination import remove_dead_bindings

_CONVOLUTIONS = {f"relax.nn.conv{rank}d{end}": (rank, bool(end)) for rank in (1, 2, 3) for end in ("", "_transpose")}
_DTYPES = ("float32", "float64")  # a weight of half precision would lose what the scale has been rounded to


@dataclass(frozen=True)
class FoldScale(FunctionPass):
    """Fold scales into constant weights, and merge the constants that are added to the product.

    Checks: weight and scale are constants, the scale differs along the output channels alone, and nobody else reads the
    product. The new weight has to be finite. Results are rounded otherwise than before.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return remove_dead_bindings(_Fold(function).function(function))


@dataclass(frozen=True)
class _Product:
    """A product, and what is done to its output channels since: times ``scale``, plus ``shift`` (None: nothing).

    ``spread``: a value for each output channel as it broadcasts against the weight, which is argument ``number``."""

    call: Call
    number: int
    axis: int  # of the output channels in the result
    channels: int
    spread: Callable[[np.ndarray], np.ndarray]
    bias: int | None = None  # the argument that is added to each output channel
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None

    def times(self, factor: np.ndarray) -> _Product:
        scale = factor if self.scale is None else self.scale * factor
        return replace(self, scale=scale, shift=None if self.shift is None else self.shift * factor)

    def plus(self, term: np.ndarray) -> _Product:
        return replace(self, shift=term if self.shift is None else self.shift + term)

    def folded(self) -> tuple[Call, np.ndarray | None] | None:
        """The call with the scale in its constants, and what is left to add; None where one would not be finite."""
        if self.scale is None:
            return self.call, self.shift
        args = list(self.call.args)
        args[self.number] = _scaled(args[self.number], self.spread(self.scale))
        if self.bias is not None:
            args[self.bias] = _scaled(args[self.bias], self.scale)
        if not all(np.isfinite(a.data).all() for a in args if isinstance(a, Constant)):
            return None
        return Call(self.call.op, tuple(args), self.call.attrs, span=self.call.span), self.shift


def _scaled(constant: Any, factor: np.ndarray) -> Constant:
    data = constant.data
    with np.errstate(all="ignore"):
        return Constant((data.astype(np.float64) * factor).astype(data.dtype), span=constant.span)


class _Fold(ExprMutator):
    def __init__(self, function: Function) -> None:
        super().__init__()
        expressions = [*(b.value for b in function.bindings), function.body.body]
        self.reads = Counter(v for e in expressions for v in used_vars(e))
        self.products: dict[Expr, _Product] = {}  # by new variables that are read once

    def rewrite_binding(self, binding: Binding) -> None:
        value = self.expr(binding.value)
        found, is_changed = self.product(value)
        if found is not None and is_changed:
            value = self.written(found, value)
        self.bind(binding.var, value)
        if found is not None and self.reads[binding.var] == 1:
            self.products[self.env[binding.var]] = found

    def written(self, product: _Product, otherwise: Expr) -> Expr:
        """The value with its scale folded."""
        folded = product.folded()
        if folded is None:
            return otherwise
        call, shift = folded
        if shift is None:
            return call
        info: Any = call.struct_info
        shape = (product.channels, *(1,) * (info.ndim - 1 - product.axis))
        term = shift.reshape(shape).astype(info.dtype)
        return ops.add(self.builder.emit(call), Constant(term)) if np.isfinite(term).all() else otherwise

    def product(self, value: Any) -> tuple[_Product | None, bool]:
        """The product that a value is, and whether it can be written with fewer operations."""
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return None, False
        name, args = value.op.short, value.args
        if name not in ("add", "subtract", "multiply", "divide", "ewise_fma"):
            return _product_of(value), False
        places = [0] if name in ("subtract", "divide") else [0, 1]
        place = next((k for k in places if args[k] in self.products), None)
        if place is None:
            return None, False
        found = self.products[args[place]]
        others = [a for k, a in enumerate(args) if k != place]
        terms = [t for a in others if (t := _by_channel(a, found, value)) is not None]
        if len(terms) < len(others):
            return None, False
        first = terms[0]
        with np.errstate(all="ignore"):
            if name == "ewise_fma":
                return found.times(first).plus(terms[1]), True
            if name in ("multiply", "divide"):
                return found.times(first if name == "multiply" else 1.0 / first), True
            return found.plus(first if name == "add" else -first), found.shift is not None or found.scale is not None


def _product_of(call: Call) -> _Product | None:
    """The product of a value with a constant weight that a call computes."""
    infos: list[Any] = [call.struct_info, *(a.struct_info for a in call.args)]
    if not all(isinstance(i, TensorStructInfo) and i.dtype == infos[0].dtype for i in infos):
        return None
    if infos[0].dtype not in _DTYPES or infos[0].ndim == 0:
        return None
    op: Any = call.op
    args: Any = call.args
    name, last = op.name, infos[0].ndim - 1
    weight: Any = args[1] if len(args) > 1 else None
    if name in _CONVOLUTIONS and isinstance(weight, Constant):
        return _convolution(call, weight)
    if name == "relax.linear" and all(isinstance(a, Constant) for a in args[1:]):
        bias = 2 if len(args) > 2 else None
        return _Product(call, 1, last, weight.data.shape[0], lambda v: v[:, None], bias)
    if name == "relax.matmul" and isinstance(weight, Constant) and weight.data.ndim > 1:
        return _Product(call, 1, last, weight.data.shape[-1], lambda v: v)
    if name == "relax.matmul" and isinstance(args[0], Constant) and args[0].data.ndim > 1 and infos[2].ndim > 1:
        return _Product(call, 0, last - 1, args[0].data.shape[-2], lambda v: v[:, None])
    return None


def _convolution(call: Call, weight: Constant) -> _Product:
    op: Any = call.op
    rank, is_transpose = _CONVOLUTIONS[op.name]
    form = Form.of(op.name, rank, is_transpose, dict(call.attrs))
    result = form.x if is_transpose else form.y
    outputs, inputs = form.w.standard_array(weight.data).shape[:2]  # of a transpose, the data go in as outputs

    def spread(values: np.ndarray) -> np.ndarray:
        table = values[:, None]
        if is_transpose:  # group g: rows of the weight that read its data, columns of its results
            table = np.repeat(values.reshape(form.groups, inputs), outputs // form.groups, axis=0)
        return form.w.own_array(table.reshape(*table.shape, *(1,) * rank))

    channels = inputs * form.groups if is_transpose else outputs
    return _Product(call, 1, result.letters.index("C"), channels, spread)


def _by_channel(expr: Expr, product: _Product, value: Call) -> np.ndarray | None:
    """A constant as float64 values of the output channels; None where it is none, or differs along other axes."""
    info: Any = product.call.struct_info
    if not isinstance(expr, Constant) or not same_info(info, value.struct_info):
        return None
    data = expr.data.astype(np.float64)
    sizes = (1,) * (info.ndim - data.ndim) + data.shape
    if len(sizes) != info.ndim or any(size != 1 for k, size in enumerate(sizes) if k != product.axis):
        return None
    return np.broadcast_to(data.reshape(-1), (product.channels,))
