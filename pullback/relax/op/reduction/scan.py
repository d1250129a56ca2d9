"""Running sums, running products, and the first-order linear recurrence of which their gradients are made.

    linear_recurrence:   s[k] = a[k]·s[k - 1] + b[k],     s[-1] = 0

    adjoint:   g[k] = ds[k] + a[k + 1]·g[k + 1]  (the same backwards),    db = g,    da[k] = g[k]·s[k - 1]

    y = cumprod x:   dx[k] = Π_{j<k} x[j] · h[k],   h[k] = dy[k] + x[k + 1]·h[k + 1]

No division: a zero among the factors is no special case. Sums of half-precision types run in float32. Each line is
added up in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import UserError
from pullback.ir.op import Op, define
from pullback.relax.op.family import (
    expect_dtype,
    expect_same_dtype,
    in_wide,
    known_shape,
    normalize_axis,
    rule_in_wide,
    specialize,
    wide,
)
from pullback.relax.op.kernel import Lines, reversed_place
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, format_info, same_info
from pullback.tir import (
    Allocate,
    Buffer,
    For,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    cast,
    const,
    loop,
    maximum,
    minimum,
    select,
    seq,
    store,
)  # fmt: skip

_COLUMNS = 64  # lines side by side, of neighbours in memory


def _lines(op: str, shape: Sequence[Any], axis: int) -> Lines:
    return Lines(tuple(shape), normalize_axis(op, axis, len(shape)))


def running(
    out: Buffer, axis: int, backwards: bool, exclusive: bool, start: float, step: Callable[..., PrimExpr]
) -> Stmt:
    """``state = step(state, index)`` along each line of the axis, from ``start`` on; ``out`` is what the state becomes,
    or with ``exclusive`` what it was. Lines that lie side by side in memory are lanes of vectors."""
    kind = wide(out.dtype)

    def walk(
        lines: Lines, index_of: Callable[[PrimExpr], tuple], across: Callable[[Stmt], Stmt], at: Any, size: int
    ) -> Stmt:
        state = Buffer("state", (size,), kind, "local")

        def element(k: PrimExpr) -> Stmt:
            index = index_of(reversed_place(lines, k, backwards))
            take = store(out, index, cast(out.dtype, state[at]))
            move = store(state, (at,), step(state[at], index))
            return across(seq(take, move) if exclusive else seq(move, take))

        begin = across(store(state, (at,), const(start, kind)))
        return Allocate(state, seq(begin, loop("k", as_expr(lines.length), element)))

    inner = out.shape[-1]
    if axis == len(out.shape) - 1 or not isinstance(inner, int) or inner < 2:
        lines = Lines(tuple(out.shape), axis)
        return lines.each(lambda line: walk(lines, lambda k: lines.place(line, k), lambda s: s, as_expr(0), 1))
    width = min(inner, _COLUMNS)
    blocks = -(-inner // width)
    lines = Lines((*out.shape[:-1], blocks), axis)

    def block(line: PrimExpr) -> Stmt:
        lane = Var("j")
        first = line % blocks * width
        count = as_expr(width) if inner % width == 0 else minimum(as_expr(inner) - first, width)

        def index_of(k: PrimExpr) -> tuple:
            return (*lines.place(line, k)[:-1], first + lane)

        return walk(lines, index_of, lambda body: For(lane, count, body, "vectorized"), lane, width)

    return lines.each(block)


# -- neighbours


def _shift_infer(x: TensorStructInfo, *, axis: int, back: bool) -> TensorStructInfo:
    normalize_axis("grad.shift", axis, len(known_shape("grad.shift", x)))
    return x


def _shift_te(x: te.Tensor, *, axis: int, back: bool) -> te.Tensor:
    at = normalize_axis("grad.shift", axis, x.ndim)

    def element(*i: PrimExpr) -> PrimExpr:
        near = i[at] + 1 if back else i[at] - 1
        exists = near < x.shape[at] if back else near >= 0
        held = minimum(near, as_expr(x.shape[at]) - 1) if back else maximum(near, 0)
        return select(exists, x[(*i[:at], held, *i[at + 1 :])], const(0, x.dtype))

    return te.compute(x.shape, element, "shift")


def _shift(x: np.ndarray, *, axis: int, back: bool) -> np.ndarray:
    result = np.zeros_like(x)
    to, come = np.moveaxis(result, axis, 0), np.moveaxis(x, axis, 0)
    to[slice(None, -1) if back else slice(1, None)] = come[slice(1, None) if back else slice(None, -1)]
    return result


define(
    "grad.shift",
    "x | axis, back=False",
    infer=_shift_infer,
    te=_shift_te,
    numpy=_shift,
    gradient=lambda dy, y, x, *, axis, back: (ops.grad.shift(dy, axis=axis, back=not back),),
    zeros="makes",
    family="scan",
    doc="Each element is its neighbour before it along the axis, or with ``back`` the one behind it; where there is\n"
    "none, 0.",
    samples=[
        sample((5,), axis=0),
        sample((3, 4), axis=0, back=True),
        sample((2, 3, 4), axis=1),
        sample((3, 1), axis=-1),
        sample((0, 3), axis=0, back=True),
    ],
)

# -- the recurrence


def _recurrence_infer(a: TensorStructInfo, b: TensorStructInfo, *, axis: int, reverse: bool) -> TensorStructInfo:
    shape = known_shape("linear_recurrence", b, "b")
    known_shape("linear_recurrence", a, "a")
    expect_dtype("linear_recurrence", b, "float")
    expect_same_dtype("linear_recurrence", a, b)
    if not same_info(a, b):
        raise UserError(f"linear_recurrence: a and b must have one shape, got {format_info(a)} and {format_info(b)}")
    normalize_axis("linear_recurrence", axis, len(shape))
    return b


def _recurrence_kernel(inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, axis: int, reverse: bool) -> Stmt:
    (a, b), (out,) = inputs, outputs
    kind = wide(out.dtype)

    def step(state: PrimExpr, index: tuple[PrimExpr, ...]) -> PrimExpr:
        return cast(kind, a[index]) * state + cast(kind, b[index])

    return running(out, normalize_axis("linear_recurrence", axis, len(out.shape)), reverse, False, 0.0, step)


def _recurrence(a: np.ndarray, b: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
    own, result = (np.moveaxis(v, axis, 0) for v in (a, b)), np.empty_like(b)
    factors, terms = own
    out, state = np.moveaxis(result, axis, 0), np.zeros_like(np.moveaxis(b, axis, 0)[:1])
    for k in reversed(range(len(out))) if reverse else range(len(out)):
        state = factors[k : k + 1] * state + terms[k : k + 1]
        out[k : k + 1] = state
    return result


def _recurrence_gradient(ds: Any, s: Any, a: Any, b: Any, *, axis: int, reverse: bool) -> tuple[Any, Any]:
    g = ops.linear_recurrence(ops.grad.shift(a, axis=axis, back=not reverse), ds, axis=axis, reverse=not reverse)
    return g * ops.grad.shift(s, axis=axis, back=reverse), g


define(
    "linear_recurrence",
    "a, b | axis=-1, reverse=False",
    infer=_recurrence_infer,
    kernel=_recurrence_kernel,
    numpy=in_wide(_recurrence),
    gradient=rule_in_wide(_recurrence_gradient),
    zeros="mixes",
    family="scan",
    doc="s[k] = a[k]·s[k - 1] + b[k] along an axis, s[-1] being 0; with ``reverse`` from the other end:\n"
    "s[k] = a[k]·s[k + 1] + b[k].",
    samples=[
        sample((5,), (5,)),
        sample((3, 4), (3, 4), axis=0, reverse=True),
        sample((2, 3, 70), (2, 3, 70), axis=1),
        sample((2, 5, 3), (2, 5, 3), axis=-1, reverse=True),
        sample((1, 1), (1, 1)),
        sample((0, 3), (0, 3), axis=0),
    ],
)

# -- running sums and products


class _Running(Op):  # as users call it: all elements as one line, and another dtype
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        (x,), attrs = self.signature.bind(self.short, args, kwargs)
        if attrs["dtype"] is not None and attrs["dtype"] != x.dtype:
            x = ops.astype(x, attrs["dtype"])
        if attrs["axis"] is None:
            x = ops.reshape(x, [-1])
        axis = 0 if attrs["axis"] is None else attrs["axis"]
        return super().__call__(x, **{**attrs, "axis": axis, "dtype": None})


def _running_op(name: str, numpy: Any, start: float, step: Callable[..., PrimExpr], gradient: Any, doc: str) -> None:
    def infer(x: TensorStructInfo, *, axis: int, dtype: str | None, exclusive: bool, reverse: bool) -> TensorStructInfo:
        normalize_axis(name, axis, len(known_shape(name, x)))
        expect_dtype(name, x, "number")
        return x

    def kernel(
        inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, axis: int, exclusive: bool, reverse: bool, **_: Any
    ) -> Stmt:
        (x,), (out,) = inputs, outputs
        kind = wide(out.dtype)
        return running(
            out, normalize_axis(name, axis, len(out.shape)), reverse, exclusive, start,
            lambda state, index: step(state, cast(kind, x[index])),
        )  # fmt: skip

    def meaning(x: np.ndarray, *, axis: int, exclusive: bool, reverse: bool, **_: Any) -> np.ndarray:
        x = np.flip(x, axis) if reverse else x
        result = numpy(x, axis, dtype=x.dtype)
        if exclusive:
            result = np.roll(result, 1, axis)
            np.moveaxis(result, axis, 0)[:1] = start
        return np.ascontiguousarray(np.flip(result, axis) if reverse else result)

    op = define(
        name,
        "data | axis=None, dtype=None, exclusive=False, reverse=False",
        infer=infer,
        kernel=kernel,
        numpy=in_wide(meaning),
        gradient=rule_in_wide(
            lambda dy, y, x, *, axis, dtype, exclusive, reverse: (gradient(dy, x, axis, exclusive, reverse),)
        ),
        family="scan",
        doc=doc,
        samples=[
            sample((17,), axis=0),
            sample((3, 5), axis=1, reverse=True),
            sample((2, 4, 3), axis=1, exclusive=True),
            sample((3, 4, 70), axis=-2, exclusive=True, reverse=True),
            sample([[1.0, 0.0, 2.0, 0.0], [3.0, 1.0, 0.0, 2.0]], axis=1),
            sample(Ints((3, 5), -3, 4), axis=0),
            sample((1,), axis=0, exclusive=True),
            sample((0, 3), axis=0),
            sample((3, 0), axis=0),
        ],
    )
    specialize(op, _Running)


def _cumsum_gradient(dy: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    return ops.cumsum(dy, axis=axis, exclusive=exclusive, reverse=not reverse)


def _cumprod_gradient(dy: Any, x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    before = ops.cumprod(x, axis=axis, exclusive=True, reverse=reverse)
    if exclusive:
        dy = ops.grad.shift(dy, axis=axis, back=not reverse)
    return before * ops.linear_recurrence(
        ops.grad.shift(x, axis=axis, back=not reverse), dy, axis=axis, reverse=not reverse
    )


_running_op(
    "cumsum", np.cumsum, 0, lambda state, x: state + x, _cumsum_gradient,
    "Running sums along an axis (None: of all elements as one line), in another dtype if one is given; ``exclusive``:\n"
    "without the element itself; ``reverse``: from the end.",
)  # fmt: skip
_running_op(
    "cumprod", np.cumprod, 1, lambda state, x: state * x, _cumprod_gradient,
    "Running products along an axis (None: of all elements as one line), in another dtype if one is given;\n"
    "``exclusive``: without the element itself; ``reverse``: from the end.",
)  # fmt: skip
