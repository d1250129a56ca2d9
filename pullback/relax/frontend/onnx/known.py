"""Values that are known when a model is imported: what shapes are made of.

ONNX computes shapes by nodes: Shape, Gather, Concat, Reshape. Such values are followed beside the graph values: an
array of ints, or of ints and symbolic sizes. Whatever is a constant is known as it is. Converters ask for values by
:func:`ints`, :func:`number` and :func:`array`, which raise :class:`NeedsValue` where a value depends on data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import Constant, Expr, const
from pullback.relax.struct_info import dim
from pullback.tir.expr import IntImm, PrimExpr, as_expr
from pullback.tir.polynomial import Polynomial, same

Sizes = dict[Expr, np.ndarray]  # by graph value: an array of ints and symbolic sizes

_sizes: ContextVar[Sizes] = ContextVar("pullback_onnx_sizes")
SIZE_LIMIT = 1 << 10  # of an array of sizes that is followed


class NeedsValue(UserError):
    """A value decides a shape or an attribute, and depends on data; ``inputs`` are the names of the model's inputs that
    it depends on."""

    def __init__(
        self, message: str, *, inputs: tuple[str, ...], span: Any = None, hint: str | None = None
    ) -> None:  # fmt: skip
        super().__init__(message, span=span, hint=hint)
        self.inputs = inputs


class Unknown(Exception):
    """The value of this graph value was asked for, and is not known."""

    def __init__(self, value: Expr) -> None:
        super().__init__()
        self.value = value


class Items(tuple):
    """A sequence of graph values: ONNX's SequenceConstruct and its kin, whose length is known at import."""


class Known:
    """What a converter returns whose result is an array of ints and symbolic sizes."""

    def __init__(self, sizes: Any, dtype: str = "int64") -> None:
        self.array, self.dtype = _canonical(_objects(sizes)), dtype

    @property
    def is_constant(self) -> bool:
        return all(isinstance(s, (int, bool)) for s in self.array.reshape(-1))

    def expr(self) -> Expr:
        """The array as a graph value."""
        if self.is_constant:
            return const(self.array.astype(self.dtype))
        numbers = list(self.array.reshape(-1))
        flat = op.shape_to_tensor(tuple(0 if isinstance(s, int) and s < 0 else s for s in numbers))
        if any(isinstance(s, int) and s < 0 for s in numbers):  # what is no size
            flat = op.add(flat, const(np.asarray([min(s, 0) if isinstance(s, int) else 0 for s in numbers])))
        shaped = flat if self.array.ndim == 1 else op.reshape(flat, self.array.shape)
        return shaped if self.dtype == "int64" else op.astype(shaped, self.dtype)


def _objects(value: Any) -> np.ndarray:
    """An array of objects; NumPy would look for numbers inside of symbolic sizes."""
    if isinstance(value, np.ndarray):
        return value.astype(object)
    items = value if isinstance(value, (list, tuple)) else [value]
    found = np.empty(len(items), object)
    for k, item in enumerate(items):
        found[k] = item
    return found if isinstance(value, (list, tuple)) else found.reshape(())


def _canonical(array: np.ndarray) -> np.ndarray:
    return _objects([_plain(s) for s in array.reshape(-1)]).reshape(array.shape)


def _plain(size: Any) -> Any:
    if isinstance(size, (bool, np.bool_)):
        return bool(size)
    if isinstance(size, (int, np.integer)):
        return int(size)
    if isinstance(size, IntImm):
        return size.value
    return dim(size) if isinstance(size, PrimExpr) and size.dtype == "int64" else size


def following(sizes: Sizes) -> Any:
    """Follow values in ``sizes`` from now on; returns a token for :func:`followed`."""
    return _sizes.set(sizes)


def followed(token: Any) -> None:
    """No longer follow them."""
    _sizes.reset(token)


def known(value: Any) -> np.ndarray | None:
    """What is known of a graph value: an array of its dtype, or of ints and symbolic sizes (dtype object), or None."""
    if isinstance(value, Constant):
        return np.asarray(value.data)
    return _sizes.get().get(value)


def asked(value: Any) -> np.ndarray:
    """:func:`known`, or Unknown raised."""
    found = known(value)
    if found is None:
        raise Unknown(value)
    return found


def array(value: Any) -> np.ndarray:
    """A value without symbolic sizes as an array."""
    found = asked(value)
    if found.dtype == object:
        raise Unknown(value)
    return found


def ints(value: Any) -> list[Any]:
    """The numbers, ints or symbolic sizes, of a tensor of integers of rank 1 or 0."""
    return [_plain(s) for s in asked(value).reshape(-1)]


def whole(value: Any) -> Any:
    """The one number, an int or a symbolic size, of a tensor of integers."""
    found = ints(value)
    if len(found) != 1:
        raise UserError(f"one number is expected, got {len(found)}")
    return found[0]


def numbers(value: Any) -> list[Any]:
    """The numbers of a tensor, as Python's."""
    return array(value).reshape(-1).tolist()


def number(value: Any) -> Any:
    """The one number of a tensor, as Python's int, float or bool."""
    found = numbers(value)
    if len(found) != 1:
        raise UserError(f"one number is expected, got {len(found)}")
    return found[0]


def is_given(value: Any) -> bool:
    """Whether an optional input is there, and not empty."""
    return value is not None and 0 not in (value.struct_info.shape or ())


def static(sizes: Sequence[Any], what: str) -> list[int]:
    """Sizes that have to be numbers."""
    if not all(isinstance(s, int) for s in sizes):
        raise UserError(
            f"{what} must be known sizes, got {tuple(map(str, sizes))}",
            hint="fix symbolic sizes: from_onnx(model, shape_dict={name: shape})",
        )
    return list(sizes)


def product(sizes: Sequence[Any]) -> Any:
    """The number of elements of a shape, which may be symbolic."""
    return _plain(math.prod(sizes)) if sizes else 1


def quotient(a: Any, b: Any) -> Any:
    """⌊a / b⌋ of sizes, without a quotient where b divides all terms of a."""
    if isinstance(b, int) and b > 0:
        found = Polynomial.of(a)
        if all(factor % b == 0 for factor in found.terms.values()):
            return _plain(Polynomial({m: factor // b for m, factor in found.terms.items()}, found.atoms).expr())
    return _plain(as_expr(a) // b)


def left_over(old: Sequence[Any], wanted: Sequence[Any]) -> Any:
    """The size that a shape ``wanted`` lacks to have as many elements as the shape ``old``."""
    kept, divisors = list(old), []
    for size in wanted:
        place = next((k for k, other in enumerate(kept) if same(size, other)), None)
        if place is None:
            divisors.append(size)
        else:
            kept.pop(place)
    total, rest = product(kept), product(divisors)
    return total if same(rest, 1) else quotient(total, rest)


# -- nodes whose inputs are sizes


def _slice(data: np.ndarray, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> np.ndarray:
    starts, ends = list(map(int, starts)), list(map(int, ends))
    axes = range(len(starts)) if axes is None else [int(a) % data.ndim for a in axes]
    steps = [1] * len(starts) if steps is None else list(map(int, steps))
    index: list[Any] = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = data.shape[axis]
        stop: int | None = end if end >= 0 else end + size
        if step < 0 and (stop is None or stop < 0):
            stop = None
        index[axis] = slice(start, stop, step)
    return data[tuple(index)]


def _divided(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)  # rounded towards 0
    return quotient(a, b)


def _minimum(a: Any, b: Any) -> Any:
    return _extremum(a, b, 0)


def _maximum(a: Any, b: Any) -> Any:
    return _extremum(a, b, 1)


def _extremum(a: Any, b: Any, which: int) -> Any:
    from pullback.tir.expr import maximum, minimum

    if isinstance(a, int) and isinstance(b, int):
        return max(a, b) if which else min(a, b)
    if same(a, b):
        return a
    return maximum(a, b) if which else minimum(a, b)


def _equal(a: Any, b: Any) -> Any:
    """Whether sizes are equal, where that can be told; sizes are not negative."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if same(a, b):
        return True
    if (isinstance(a, int) and a < 0) or (isinstance(b, int) and b < 0):
        return False
    raise Undecided


class Undecided(Exception):
    """A question about symbolic sizes that has no answer here."""


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    return np.frompyfunc(function, 2, 1)


def _reduce_prod(data: np.ndarray, axes: Any = None, *, keepdims: int = 1, **_: Any) -> np.ndarray:
    if axes is not None or data.ndim != 1:
        raise Undecided
    total = product(list(data))
    return _objects([total] if keepdims else total)


def _axes(axes: Any, given: Any) -> Any:
    return given if given is not None else None if axes is None else [int(a) for a in axes]


def _unsqueeze(data: np.ndarray, axes: Any = None, **attrs: Any) -> np.ndarray:
    return np.expand_dims(data, tuple(_axes(axes, attrs.get("axes"))))


def _squeeze(data: np.ndarray, axes: Any = None, **attrs: Any) -> np.ndarray:
    found = _axes(axes, attrs.get("axes"))
    return np.squeeze(data, tuple(found) if found is not None else None)


def _concat(*parts: np.ndarray, axis: int = 1) -> np.ndarray:
    return np.concatenate([_objects(p) for p in parts], axis)


def _reshape(data: np.ndarray, shape: Any, **_: Any) -> np.ndarray:
    return data.reshape([int(s) for s in shape])


def _where(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(condition.astype(bool), x, y)


def _cast(x: np.ndarray, *, to: int, **_: Any) -> np.ndarray:
    if to not in (6, 7):
        raise Undecided
    return x


_EVALUATED: dict[str, Callable[..., Any]] = {
    "Identity": lambda x: x,
    "Cast": _cast,
    "Gather": lambda data, indices, axis=0: np.take(data, np.asarray(indices, np.int64), axis),
    "Concat": _concat,
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": _elementwise(_divided),
    "Equal": _elementwise(_equal),
    "Min": lambda *x: _fold(_minimum, x),
    "Max": lambda *x: _fold(_maximum, x),
    "ReduceProd": _reduce_prod,
    "Where": _where,
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(s) for s in shape))),
}


def _fold(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> Any:
    result: Any = arrays[0]
    for other in arrays[1:]:
        result = np.frompyfunc(function, 2, 1)(result, other)
    return result


def evaluated(op_type: str, inputs: Sequence[np.ndarray | None], attrs: dict[str, Any]) -> np.ndarray | None:
    """What a node of ai.onnx gives for sizes, or None where it cannot be told."""
    function = _EVALUATED.get(op_type)
    if function is None:
        return None
    try:
        result = _objects(function(*inputs, **attrs))
    except (Undecided, TypeError, ValueError, UserError):  # what sizes are not made for is computed when it runs
        return None
    return result if result.size <= SIZE_LIMIT else None
