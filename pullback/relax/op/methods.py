"""Methods and indices of tensors, ``x.mean(axis=1)``, ``x.reshape(4, -1)``, ``x.T``, ``x[:, 0]``: calls of ops.

Most are ops of the same name. Where PyTorch's or NumPy's method takes other arguments than the op, it stands in
``METHODS``. ``dim`` and ``keepdim`` are other names of ``axis`` and ``keepdims``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, CallError, NoAttribute, ShapeError, UserError, near
from pullback.ir.foreign import ATTRIBUTES, OPS
from pullback.ir.op import Op
from pullback.ir.words import explained
from pullback.relax.expr import Expr, PrimValue, set_methods
from pullback.relax.op.manipulate.shape import any_rows
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo, as_tuple, format_info
from pullback.tir.expr import PrimExpr

_SAME = [  # methods that are the op itself
    "abs", "acos", "acosh", "all", "any", "argmax", "argmin", "argsort", "asin", "asinh", "astype", "atan", "atan2",
    "atanh", "broadcast_to", "ceil", "clip", "cos", "cosh", "count_nonzero", "cumprod", "cumsum", "diagonal",
    "digamma", "divide", "dot", "equal", "erf", "erfc", "erfinv", "exp", "exp2", "expand_dims", "expm1", "flip",
    "floor", "floor_divide", "fmod", "greater", "greater_equal", "isfinite", "isinf", "isnan", "less", "less_equal",
    "lgamma", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "logit",
    "logsumexp", "matmul", "max", "maximum", "mean", "median", "min", "minimum", "multiply", "nan_to_num", "negative",
    "not_equal", "outer", "prod", "reciprocal", "roll", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sort",
    "sqrt", "square", "squeeze", "subtract", "sum", "take", "tan", "tanh", "topk", "tril", "triu", "trunc", "unbind",
    "nn.log_softmax", "nn.relu", "nn.softmax",
]  # fmt: skip


def _numbers(values: tuple[Any, ...]) -> Any:
    """``x.reshape(2, 3)`` is ``x.reshape((2, 3))``."""
    return values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values


def _transpose(x: Expr, *axes: Any) -> Expr:
    """PyTorch's with two axes, which change places; NumPy's with all of them, or none, which reverses them."""
    rank = len(x.shape)
    if not axes:
        return ops.permute_dims(x)
    if len(axes) == 2:
        order = list(range(rank))
        a, b = (_axis(axis, rank) for axis in axes)
        order[a], order[b] = order[b], order[a]
        return ops.permute_dims(x, order)
    return ops.permute_dims(x, _numbers(axes))


def _axis(axis: Any, rank: int, method: str = "transpose") -> int:
    if not isinstance(axis, int) or not -rank <= axis < rank:
        hint = f"its axes are {-rank} to {rank - 1}" if rank else "it has no axes"
        raise ShapeError(f"{method}: axis {axis!r} is outside a tensor of rank {rank}", hint=hint)
    return axis % rank


def _mT(x: Expr) -> Expr:  # noqa: N802
    return _transpose(x, -2, -1)


def _flatten(x: Expr, start_dim: int = 0, end_dim: int = -1) -> Expr:
    rank = len(x.shape)
    if rank == 0:
        return ops.reshape(x, (1,))
    a, b = (_axis(axis, rank, "flatten") for axis in (start_dim, end_dim))
    if a > b:
        raise ShapeError(f"flatten: start_dim={start_dim} lies behind end_dim={end_dim} in a tensor of rank {rank}")
    joined = x.shape[a : b + 1]
    size = math.prod(joined) if all(isinstance(s, int) for s in joined) else -1
    shape = (*x.shape[:a], size, *x.shape[b + 1 :])
    return ops.reshape(x, any_rows(shape) if a > 0 else shape)


def _expand(x: Expr, *sizes: Any) -> Expr:
    wanted = list(_numbers(sizes))
    lead = len(wanted) - len(x.shape)
    return ops.broadcast_to(x, [x.shape[k - lead] if s == -1 and k >= lead else s for k, s in enumerate(wanted)])


def _clamp(x: Expr, min: Any = None, max: Any = None) -> Expr:
    result = x if min is None else ops.maximum(x, min)
    return result if max is None else ops.minimum(result, max)


def _to(x: Expr, dtype: Any) -> Expr:
    if not isinstance(dtype, str) or dtype.partition(":")[0] in ("cpu", "cuda", "gpu", "mps"):
        raise CallError(f"to() takes the name of a dtype, not {dtype!r}", hint=ATTRIBUTES["to"])
    return ops.astype(x, dtype)


def _type(dtype: str) -> Callable[[Expr], Expr]:
    return lambda x: ops.astype(x, dtype)


def _repeat(x: Expr, *times: Any) -> Expr:
    """PyTorch's: the whole tensor again and again. NumPy's repeats each element: ``R.repeat``."""
    return ops.tile(x, _numbers(times))


def _split(x: Expr, split_size: int | Sequence[int], axis: int = 0) -> tuple[Expr, ...]:
    """PyTorch's: parts of a size, the last of what is left, or of the sizes in a list. ``R.split`` takes the number of
    parts, or where they end."""
    size = x.shape[_axis(axis, len(x.shape), "split")]
    if not isinstance(size, int):
        raise ArgumentError(f"split cuts an axis whose size is known, got the size {size}")
    if isinstance(split_size, (tuple, list)):
        ends = [sum(split_size[: k + 1]) for k in range(len(split_size))]
        if not ends or ends.pop() != size:
            raise ArgumentError(f"split: the sizes {list(split_size)} add up to {sum(split_size)}, the axis has {size}")
    elif not isinstance(split_size, int) or split_size < 1:
        raise ArgumentError(f"split: the size of a part must be an int ≥ 1, got {split_size!r}")
    else:
        ends = list(range(split_size, size, split_size))
    return _items(ops.split(x, ends, axis)) if ends else (x,)


def _items(values: Expr) -> tuple[Expr, ...]:
    return tuple(values[k] for k in range(len(as_tuple(values.struct_info).fields)))


METHODS: dict[str, Callable[..., Any]] = {
    "split": _split,
    "chunk": lambda x, chunks, axis=0: _items(ops.chunk(x, chunks, axis)),
    "reshape": lambda x, *shape: ops.reshape(x, _numbers(shape)),
    "view": lambda x, *shape: ops.reshape(x, _numbers(shape)),
    "permute": lambda x, *axes: ops.permute_dims(x, _numbers(axes)),
    "permute_dims": lambda x, *axes: ops.permute_dims(x, _numbers(axes)),
    "transpose": _transpose,
    "swapaxes": _transpose,
    "t": _transpose,
    "flatten": _flatten,
    "ravel": _flatten,
    "unsqueeze": lambda x, axis: ops.expand_dims(x, axis),
    "expand": _expand,
    "repeat": _repeat,
    "tile": _repeat,
    "clamp": _clamp,
    "pow": lambda x, exponent: ops.power(x, exponent),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "mm": lambda x, y: ops.matmul(x, y),
    "bmm": lambda x, y: ops.matmul(x, y),
    "neg": lambda x: ops.negative(x),
    "detach": lambda x: ops.stop_gradient(x),
    "to": _to,
    "float": _type("float32"),
    "double": _type("float64"),
    "half": _type("float16"),
    "bfloat16": _type("bfloat16"),
    "int": _type("int32"),
    "long": _type("int64"),
    "bool": _type("bool"),
    "dim": lambda x: len(x.shape),
    "numel": lambda x: int(np.prod([int(s) for s in x.shape])),
    "contiguous": lambda x: x,
    "clone": lambda x: x,
    "size": lambda x, axis=None: x.shape if axis is None else x.shape[axis],
}
PROPERTIES: dict[str, Callable[[Expr], Any]] = {
    "T": lambda x: ops.permute_dims(x),
    "mT": _mT,
    "ndim": lambda x: len(x.shape),
}
OPS_AS_METHODS: dict[str, str] = {name.rpartition(".")[2]: name for name in _SAME}
_OTHER_NAMES = {"dim": "axis", "keepdim": "keepdims"}


def _attribute(x: Expr, name: str) -> Any:
    """``x.name``, where that is a method or property of tensors."""
    if name in PROPERTIES:
        return PROPERTIES[name](x)
    method = Op.get(OPS_AS_METHODS[name]) if name in OPS_AS_METHODS else METHODS.get(name)
    if method is None:
        raise _no_method(x, name)
    called = method if isinstance(method, Op) else explained(method, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        return called(x, *args, **{_OTHER_NAMES.get(k, k): v for k, v in kwargs.items()})

    return call


def _no_method(x: Expr, name: str) -> NoAttribute:
    known = [*METHODS, *OPS_AS_METHODS, *PROPERTIES]
    op = next((n for n in (name, f"nn.{name}") if Op.find(f"relax.{n}") is not None), None)
    if op is not None:
        hint = f"ops are functions: R.{op}({Op.get(op).signature})"
    else:
        words = ATTRIBUTES.get(name) or OPS.get(name.lower())
        close = [f"did you mean {n}?" for n in near(name, known)]
        hint = words or next(iter(close), "ops are functions: R.name(x, …)")
    what = f"a graph value of type {format_info(x.struct_info)}"
    return NoAttribute(f"{what} has no attribute {name!r}", hint=hint)


# -- indices


def _item(x: Expr, index: Any) -> Expr:
    """``x[index]``: ints, slices, None and Ellipsis as in NumPy; or one tensor of integers, which takes rows."""
    indices = index if isinstance(index, tuple) else (index,)
    if len(indices) == 1 and _is_tensor(indices[0]):
        return _taken(x, indices[0])
    plain = _without_ellipsis(x, [_plain(x, i) for i in indices])
    axes, begin, end, strides, dropped, added = [], [], [], [], [], []
    axis = place = 0
    for i in plain:
        if i is None:
            added.append(place)
            place += 1
            continue
        size = x.shape[axis]
        if isinstance(i, slice):
            if i != slice(None):
                step = 1 if i.step is None else i.step
                axes.append(axis)
                begin.append(_start(i.start, step))
                end.append(_stop(i.stop, step, size))
                strides.append(step)
            place += 1
        else:
            if isinstance(size, int) and isinstance(i, int) and not -size <= i < size:
                hint = f"the indices of that axis are {-size} to {size - 1}" if size else "that axis is empty"
                raise ShapeError(f"index {i} is outside axis {axis}, whose size is {size}", hint=hint)
            axes.append(axis)
            begin.append(i)
            end.append(_LAST if isinstance(i, int) and i == -1 else i + 1)
            strides.append(1)
            dropped.append(axis)
        axis += 1
    result = ops.strided_slice(x, axes, begin, end, strides) if axes else x
    result = ops.squeeze(result, dropped) if dropped else result
    return ops.expand_dims(result, added) if added else result


_LAST = 2**31 - 1  # an end beyond all: clamped to the size


def _start(start: Any, step: int) -> Any:
    return start if start is not None else 0 if step > 0 else _LAST


def _stop(stop: Any, step: int, size: Any) -> Any:
    return stop if stop is not None else _LAST if step > 0 else -_LAST


def _is_tensor(index: Any) -> bool:
    return isinstance(index, Expr) and isinstance(index.struct_info, TensorStructInfo)


def _taken(x: Expr, index: Expr) -> Expr:
    if index.dtype == "bool":
        hint = "shapes cannot depend on values: choose by element with R.where(mask, x, y)"
        raise UserError("a tensor cannot be indexed by a mask", hint=hint)
    return ops.take(x, index, 0)


def _plain(x: Expr, index: Any) -> Any:
    """An index of one axis: an int, a size, a slice of these, None or Ellipsis."""
    if isinstance(index, slice):
        return slice(*(None if part is None else _plain(x, part) for part in (index.start, index.stop, index.step)))
    if index is None or index is Ellipsis or isinstance(index, PrimExpr):
        return index
    if isinstance(index, PrimValue):
        return index.value
    if not isinstance(index, (bool, np.bool_)):
        try:
            return operator.index(index)
        except TypeError:
            pass
    what = "a tensor among others" if _is_tensor(index) else repr(index)
    hint = "R.take(x, indices, axis) takes rows, R.gather_elements and R.gather_nd single elements"
    raise UserError(f"the index {what} cannot be used: indices are ints, slices, None and Ellipsis", hint=hint)


def _without_ellipsis(x: Expr, indices: Sequence[Any]) -> list[Any]:
    """With the axes that the Ellipsis stands for, and those at the end, written out."""
    rank = len(x.shape)
    used = sum(1 for i in indices if i is not None and i is not Ellipsis)
    places = [k for k, i in enumerate(indices) if i is Ellipsis]
    if len(places) > 1:
        raise ShapeError("an index has one Ellipsis at the most", hint="write the axes between them out as :")
    if used > rank:
        raise ShapeError(f"{used} indices are too many for a tensor of rank {rank}", hint=f"its shape is {x.shape}")
    at = places[0] if places else len(indices)
    return [*indices[:at], *[slice(None)] * (rank - used), *indices[at + bool(places) :]]


set_methods(_attribute, _item)
