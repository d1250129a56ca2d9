"""The meaning of tensor expressions, over NumPy: each stage at once, on the grid of its axes.

Slow and simple; what it computes is what a schedule's loops must compute. A read outside a tensor is an error, also in
the side of a select that is not chosen: generated code evaluates both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.depth import deep
from pullback.ir.errors import InternalError
from pullback.runtime.dtype import numpy_dtype
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir import pairs, philox
from pullback.tir.arithmetic import maximum, minimum, power
from pullback.tir.expr import INTEGERS, Binary, Call, Cast, FloatImm, IntImm, PrimExpr, Select, Var, is_float


@deep
def evaluate(
    outputs: Sequence[Tensor], feeds: Mapping[Tensor, np.ndarray], sizes: Mapping[Var, int] | None = None
) -> list[np.ndarray]:
    """The values of ``outputs``, given those of the placeholders and of the symbolic sizes."""
    run = _Interpreter(feeds, sizes or {})
    with np.errstate(all="ignore"):
        return [run.tensor(output) for output in outputs]


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, evaluated in float64."""
    return np.vectorize(math.erf, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def erfc(x: np.ndarray) -> np.ndarray:
    """1 - erf(x), evaluated in float64."""
    return np.vectorize(math.erfc, otypes=[np.float64])(x.astype(np.float64)).astype(x.dtype)


def cast_array(x: np.ndarray, dtype: str) -> np.ndarray:
    """Conversion of value as the loop IR defines it: float to integer truncates and saturates, NaN gives 0."""
    target = numpy_dtype(dtype)
    if not is_float(x.dtype.name) or dtype not in INTEGERS:
        return x.astype(target)
    info = np.iinfo(target)
    whole = np.trunc(x.astype(np.float64))
    low, high = whole <= float(info.min), whole >= float(info.max)
    result = np.where(low | high | np.isnan(whole), 0, whole).astype(target)
    return np.where(low, target.type(info.min), np.where(high, target.type(info.max), result))


_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": np.floor_divide,
    "floormod": np.mod, "truncmod": np.fmod, "min": minimum, "max": maximum, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "and": np.logical_and,
    "or": np.logical_or, "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x),
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": erf, "erfc": erfc, "floor": np.floor, "ceil": np.ceil,
    "round": np.round, "trunc": np.trunc, "pow": power, "atan2": np.arctan2, "isnan": np.isnan,
    "isinf": np.isinf, "isfinite": np.isfinite, "not": np.invert,
    "multiply_no_nan": lambda a, b: np.where((a == 0) | (b == 0), a.dtype.type(0), a * b),
    "xdivy": lambda a, b: np.where(a == 0, a.dtype.type(0), a / b),
    "fma": lambda a, b, c: (a.astype(np.longdouble) * b + c).astype(a.dtype),
}  # fmt: skip
_REDUCE: dict[str, Callable[..., Any]] = {"sum": np.sum, "prod": np.prod}


class _Interpreter:
    def __init__(self, feeds: Mapping[Tensor, np.ndarray], sizes: Mapping[Var, int]) -> None:
        self.values: dict[Tensor, np.ndarray] = dict(feeds)
        self.sizes = {v: np.asarray(n, np.int64) for v, n in sizes.items()}

    def size(self, extent: int | PrimExpr) -> int:
        return int(self.expr(extent, self.sizes)) if isinstance(extent, PrimExpr) else extent

    def tensor(self, tensor: Tensor) -> np.ndarray:
        if tensor not in self.values:
            if tensor.is_placeholder:
                raise InternalError(f"the placeholder {tensor.name} has no value")
            self.values[tensor] = self.stage(tensor)
        return self.values[tensor]

    def stage(self, tensor: Tensor) -> np.ndarray:
        body = tensor.body
        reduced = body.axes if isinstance(body, Reduce) else ()
        axes = [*tensor.axes, *(a.var for a in reduced)]
        shape = [self.size(s) for s in (*tensor.shape, *(a.extent for a in reduced))]
        grid = dict(self.sizes)
        for n, (axis, size) in enumerate(zip(axes, shape, strict=True)):
            grid[axis] = np.arange(size).reshape(-1, *(1,) * (len(shape) - n - 1))
        source = body.source if isinstance(body, Reduce) else body
        value = np.broadcast_to(self.expr(source, grid), shape)
        if isinstance(body, Reduce):
            value = _reduce(body.kind, value, tuple(range(tensor.ndim, len(shape))))
        return np.array(value, numpy_dtype(tensor.dtype))

    def expr(self, e: Any, grid: Mapping[Var, np.ndarray]) -> Any:
        """The value of a scalar expression at all points of the grid."""
        memo: dict[int, Any] = {}

        def visit(node: PrimExpr) -> Any:
            if id(node) not in memo:
                memo[id(node)] = compute(node)
            return memo[id(node)]

        def compute(node: PrimExpr) -> Any:
            if isinstance(node, Var):
                return grid[node]
            if isinstance(node, (IntImm, FloatImm)):
                return np.asarray(node.value).astype(numpy_dtype(node.dtype))
            if isinstance(node, Binary):
                a, b = visit(node.a), visit(node.b)
                return np.asarray(_BINARY[node.kind](a, b)).astype(numpy_dtype(node.dtype), copy=False)
            if isinstance(node, Select):
                return np.where(visit(node.condition), visit(node.a), visit(node.b))
            if isinstance(node, Cast):
                return cast_array(np.asarray(visit(node.value)), node.dtype)
            if isinstance(node, Call):
                args = [np.asarray(visit(a)) for a in node.args]
                if node.name == "reinterpret":
                    return args[0].view(numpy_dtype(node.dtype))
                if node.name == philox.INTRINSIC:
                    return np.asarray(philox.philox4x32(node.dtype, *args))
                if node.name in (pairs.PAIR, pairs.DOT):
                    return np.asarray(pairs.evaluate(node.name, *args))
                return np.asarray(_CALLS[node.name](*args)).astype(numpy_dtype(node.dtype), copy=False)
            if isinstance(node, TensorLoad):
                return self.load(node, [np.asarray(visit(i)) for i in node.indices])
            raise InternalError(f"a tensor expression cannot hold {type(node).__name__}")

        return visit(e)

    def load(self, node: TensorLoad, indices: list[np.ndarray]) -> np.ndarray:
        array = self.tensor(node.tensor)
        shape = np.broadcast_shapes(*(i.shape for i in indices))
        if 0 in shape:
            return np.empty(shape, array.dtype)
        for axis, (index, size) in enumerate(zip(indices, array.shape, strict=True)):
            if index.min() < 0 or index.max() >= size:
                found = f"{index.min()} … {index.max()}"
                raise InternalError(f"{node.tensor.name} is read at {found} along axis {axis} of size {size}")
        return array[tuple(indices)]


def _reduce(kind: str, value: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    if kind in ("argmax", "argmin"):
        return np.argmax(value, axes[0]) if kind == "argmax" else np.argmin(value, axes[0])
    if kind in _REDUCE:
        return _REDUCE[kind](value, axis=axes, dtype=value.dtype)
    if value.size == 0:
        return np.full([s for n, s in enumerate(value.shape) if n not in axes], _identity(kind, value.dtype))
    return (np.max if kind == "max" else np.min)(value, axis=axes)


def _identity(kind: str, dtype: np.dtype) -> Any:
    """What an empty max or min gives: the smallest or largest value."""
    if dtype == np.bool_:
        return np.bool_(kind == "min")
    if is_float(dtype.name):
        return dtype.type(-math.inf if kind == "max" else math.inf)
    info = np.iinfo(dtype)
    return dtype.type(info.min if kind == "max" else info.max)
