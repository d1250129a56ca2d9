"""Attention: softmax(scale · query·keyᵀ + bias) · value, and its adjoints, without scores in memory.

The tensor expressions stand in ``te/attention.py``; the schedule of that name makes one kernel of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import Op, define
from pullback.relax.expr import Expr, const
from pullback.relax.op.family import (
    collapse_like,
    composite,
    expect_dtype,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    narrowed,
    specialize,
    wide,
    widened,
)
from pullback.relax.op.linear_algebra.matmul import transposed
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Sample, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, TupleStructInfo, as_int, format_shape, same_shape
from pullback.te.attention import Attention, heads_per_key
from pullback.tir.polynomial import same

_MASKS = (None, "TopLeft", "BottomRight")


def _infer(
    query: TensorStructInfo,
    key: TensorStructInfo,
    value: TensorStructInfo,
    bias: TensorStructInfo | None = None,
    *,
    scale: float | None,
    causal_mask: str | None,
    window_size: int | None,
    name: str = "nn.attention",
) -> TensorStructInfo:
    operands = {"query": query, "key": key, "value": value}
    for label, info in operands.items():
        shape = known_shape(name, info, label)
        expect_dtype(name, info, "float", label)
        if len(shape) != 4:
            message = f"{name}: {label} must have the shape (batch, length, heads, size), got {format_shape(shape)}"
            raise ShapeError(message, hint="reshape (batch, length, heads·size) with R.reshape")
    q, k, v = query.sizes, key.sizes, value.sizes
    _expect_fit(name, q, k, v)
    expect_same_dtype(name, *operands.values(), *([] if bias is None else [bias]))
    if bias is not None:
        scores = (q[0], q[2], q[1], k[1])
        given = known_shape(name, bias, "bias")
        pairs = zip(reversed(given), reversed(scores), strict=False)
        if len(given) > len(scores) or not all(same(g, 1) or same(g, s) for g, s in pairs):
            wanted = f"(batch, heads, rows, keys) = {format_shape(scores)}"
            raise ShapeError(f"{name}: bias of shape {format_shape(given)} does not broadcast to {wanted}")
    _expect_options(name, scale, causal_mask, window_size)
    return TensorStructInfo((*q[:3], v[3]), query.dtype)


def _expect_fit(name: str, q: tuple[Dim, ...], k: tuple[Dim, ...], v: tuple[Dim, ...]) -> None:
    """Raise a ShapeError unless the sizes of query, key and value fit."""
    fits = [
        ("batch", same(q[0], k[0]) and same(q[0], v[0])),
        ("length of key and value", same(k[1], v[1])),
        ("number of heads of key and value", same(k[2], v[2])),
        ("size of query and key", same(q[3], k[3])),
    ]
    for label, holds in fits:
        if not holds:
            shapes = f"{format_shape(q)}, {format_shape(k)} and {format_shape(v)}"
            hint = "the layouts are (B, S, N, H), (B, T, M, H) and (B, T, M, V)"
            raise ShapeError(f"{name}: the {label} differs: query, key and value are {shapes}", hint=hint)
    static = isinstance(q[2], int) and isinstance(k[2], int) and k[2] > 0
    if not same(q[2], k[2]) and not same(k[2], 1) and not (static and q[2] % k[2] == 0):
        message = f"{name}: the {q[2]} heads of query must be a multiple of the {k[2]} heads of key and value"
        raise ShapeError(message, hint="each head of key and value serves as many heads of query")


def _expect_options(name: str, scale: Any, causal_mask: Any, window_size: Any) -> None:
    if causal_mask not in _MASKS:
        raise UserError(f"{name}: causal_mask must be None, 'TopLeft' or 'BottomRight', got {causal_mask!r}")
    if window_size is not None:
        raise UserError(f"{name}: window_size is not supported", hint="add a bias of -inf outside the window")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, (int, float))):
        raise UserError(f"{name}: scale must be a number or None, got {scale!r}")


def _scale(size: Dim, scale: float | None) -> float | None:
    """The factor of the scores, by default 1/√H; None where that has to wait for a symbolic H."""
    if scale is not None:
        return float(scale)
    return 1.0 / math.sqrt(max(size, 1)) if isinstance(size, int) else None


def _offset(rows: Any, keys: Any, causal_mask: str | None) -> Any:
    """Row i sees the keys up to i + offset; TVM's rule, in which rows and keys may be more or fewer."""
    if causal_mask is None:
        return None
    if causal_mask == "TopLeft":
        return 0
    if isinstance(rows, int) and isinstance(keys, int):
        return abs(rows - keys)
    return tir.maximum(rows - keys, keys - rows)


def _attention(
    query: te.Tensor, key: te.Tensor, value: te.Tensor, bias: te.Tensor | None, scale: Any, causal_mask: str | None
) -> Attention:
    offset = _offset(query.shape[1], key.shape[1], causal_mask)
    dtype, size = wide(query.dtype), query.shape[3]
    factor = _scale(size, scale)
    value_of = tir.call("rsqrt", tir.cast(dtype, size)) if factor is None else tir.const(factor, dtype)
    return Attention(query, key, value, bias, value_of, offset, dtype)


# -- NumPy


def _heads_first(x: np.ndarray, repeats: int = 1) -> np.ndarray:
    """(B, S, N, H) as (B, N, S, H), each head ``repeats`` times."""
    return np.repeat(np.moveaxis(x, 2, 1), repeats, 1)


def _weights(query: Any, key: Any, bias: Any, scale: Any, causal_mask: str | None) -> np.ndarray:
    """The probabilities (B, N, S, T); 0 in rows that see nothing."""
    group = as_int(heads_per_key(query.shape[2], key.shape[2]))
    x = np.matmul(_heads_first(query), np.swapaxes(_heads_first(key, group), 2, 3)) * query.dtype.type(
        _scale(query.shape[3], scale)
    )
    x = x if bias is None else x + bias
    offset = _offset(query.shape[1], key.shape[1], causal_mask)
    if offset is not None:
        x = np.where(np.tril(np.ones(x.shape[2:], np.bool_), offset), x, x.dtype.type(-np.inf))
    lowest = np.finfo(x.dtype).min
    e = np.exp(x - np.max(x, 3, keepdims=True, initial=lowest))
    total = np.sum(e, 3, keepdims=True)
    return e / np.where(total == 0, x.dtype.type(1), total)


def _forward(
    query: Any, key: Any, value: Any, bias: Any = None, *, scale: Any, causal_mask: Any, window_size: Any
) -> np.ndarray:
    group = as_int(heads_per_key(query.shape[2], key.shape[2]))
    p = _weights(query, key, bias, scale, causal_mask)
    return np.moveaxis(np.matmul(p, _heads_first(value, group)), 1, 2)


def _backward(
    dy: Any, out: Any, query: Any, key: Any, value: Any, bias: Any = None, *, scale: Any, causal_mask: Any
) -> tuple[np.ndarray, ...]:
    heads = key.shape[2]
    group = as_int(heads_per_key(query.shape[2], heads))
    p = _weights(query, key, bias, scale, causal_mask)
    dy, out, q = map(_heads_first, (dy, out, query))
    k, v = (_heads_first(x, group) for x in (key, value))
    dx = p * (np.matmul(dy, np.swapaxes(v, 2, 3)) - np.sum(dy * out, 3, keepdims=True))
    dx = dx * query.dtype.type(_scale(query.shape[3], scale))

    def grouped(x: np.ndarray) -> np.ndarray:
        parts = x.reshape(x.shape[0], heads, group, *x.shape[2:])
        return np.moveaxis(np.sum(parts, 2), 1, 2)

    dk = grouped(np.matmul(np.swapaxes(dx, 2, 3), q))
    dv = grouped(np.matmul(np.swapaxes(p, 2, 3), dy))
    return np.moveaxis(np.matmul(dx, k), 1, 2), dk, dv


def _backward_array(dy: np.ndarray, *rest: np.ndarray, **attrs: Any) -> tuple[np.ndarray, ...]:
    kind = np.float32 if wide(dy.dtype.name) != dy.dtype.name else dy.dtype
    results = _backward(dy.astype(kind), *(r.astype(kind) for r in rest), **attrs)
    return tuple(r.astype(dy.dtype) for r in results)


# -- adjoints


class _Plain:
    """The parts of attention as plain ops, heads first: what adjoints of adjoints, and of the bias, are made of. The
    operands have the type in which it is computed."""

    def __init__(self, operands: Sequence[Any], scale: Any, causal_mask: str | None) -> None:
        query, key, value, *rest = operands
        bias = rest[0] if rest else None
        self.heads, self.group = key.shape[2], heads_per_key(query.shape[2], key.shape[2])
        factor, size = _scale(query.shape[3], scale), query.shape[3]
        self.scale = ops.rsqrt(ops.full((), size, query.dtype)) if factor is None else factor
        self.q, self.k, self.v = self.rows(query), self.keys(key), self.keys(value)
        x = ops.matmul(self.q, transposed(self.k)) * self.scale
        x = x if bias is None else x + bias
        lowest = const(-math.inf, x.dtype)
        offset = _offset(query.shape[1], key.shape[1], causal_mask)
        if offset is not None:
            last = ops.expand_dims(ops.arange(query.shape[1]), 1) + ops.full((), offset, "int64")
            x = ops.where(ops.less_equal(ops.arange(key.shape[1]), last), x, lowest)
        self.p = masked(ops.not_equal(x, lowest), ops.nn.softmax(x))

    def rows(self, x: Any) -> Any:
        """(B, S, N, H) as (B, N, S, H)."""
        return ops.permute_dims(x, [0, 2, 1, 3])

    def keys(self, x: Any) -> Any:
        """(B, T, M, H) as (B, N, T, H): each head once for each of its group."""
        x = self.rows(x)
        return x if self.group == 1 else ops.repeat(x, self.group, 1)

    def of_keys(self, x: Any) -> Any:
        """The adjoint of :meth:`keys`."""
        if self.group != 1:
            batch, _, length, size = x.shape
            x = ops.sum(ops.reshape(x, (batch, self.heads, self.group, length, size)), 2)
        return self.rows(x)


def _gradient(
    dy: Any,
    y: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    *,
    scale: Any,
    causal_mask: Any,
    window_size: Any,
) -> tuple[Any, ...]:
    operands = (query, key, value) if bias is None else (query, key, value, bias)
    parts = ops.grad.attention(dy, y, *operands, scale=scale, causal_mask=causal_mask)
    if bias is None:
        return parts[0], parts[1], parts[2]
    plain = _Plain([*map(widened, operands)], scale, causal_mask)
    d, o = plain.rows(widened(dy)), plain.rows(widened(y))
    dx = plain.p * (ops.matmul(d, transposed(plain.v)) - ops.sum(d * o, 3, True))
    return parts[0], parts[1], parts[2], narrowed(collapse_like(dx, bias), bias.dtype)


def _second_gradient(
    adjoints: Any,
    results: Any,
    dy: Any,
    out: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    *,
    scale: Any,
    causal_mask: Any,
) -> tuple[Any, ...]:
    """The reverse sweep over dp = dy·vᵀ, dx = p(dp - Σ dy·out)·scale, dq = dx·k, dk = dxᵀ·q, dv = pᵀ·dy."""
    operands = (query, key, value) if bias is None else (query, key, value, bias)
    dtype, (dy, out), adjoints = dy.dtype, map(widened, (dy, out)), tuple(map(widened, adjoints))
    plain = _Plain([*map(widened, operands)], scale, causal_mask)
    p, q, k, v = plain.p, plain.q, plain.k, plain.v
    d, o = plain.rows(dy), plain.rows(out)
    a, b, c = plain.rows(adjoints[0]), plain.keys(adjoints[1]), plain.keys(adjoints[2])  # of dq, dk, dv
    error = (ops.matmul(d, transposed(v)) - ops.sum(d * o, 3, True)) * plain.scale
    dx = p * error
    of_dx = ops.matmul(a, transposed(k)) + ops.matmul(q, transposed(b))
    of_p = of_dx * error + ops.matmul(d, transposed(c))
    of_dp = of_dx * p * plain.scale
    of_dot = -ops.sum(of_dp, 3, True)
    of_x = p * (of_p - ops.sum(p * of_p, 3, True))
    of_d = ops.matmul(of_dp, v) + ops.matmul(p, c) + of_dot * o
    of_q = ops.matmul(of_x, k) * plain.scale + ops.matmul(dx, b)
    of_k = ops.matmul(transposed(of_x), q) * plain.scale + ops.matmul(transposed(dx), a)
    of_v = ops.matmul(transposed(of_dp), d)
    results = [plain.rows(of_d), plain.rows(of_dot * d), plain.rows(of_q), plain.of_keys(of_k), plain.of_keys(of_v)]
    if bias is not None:
        results.append(collapse_like(of_x, bias))
    return tuple(narrowed(r, dtype) for r in results)


# -- the ops

_SHAPES: list[tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = [
    (((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)), {}),
    (((2, 3, 2, 8), (2, 5, 2, 8), (2, 5, 2, 4)), {"scale": 0.25}),
    (((1, 17, 2, 3), (1, 17, 2, 3), (1, 17, 2, 3)), {"causal_mask": "TopLeft"}),
    (((1, 5, 4, 2), (1, 9, 1, 2), (1, 9, 1, 3), (4, 1, 9)), {"causal_mask": "BottomRight"}),
    (((1, 6, 1, 2), (1, 3, 1, 2), (1, 3, 1, 2), (1, 1, 6, 3)), {"causal_mask": "BottomRight"}),
    (((1, 4, 3, 2), (1, 2, 1, 2), (1, 2, 1, 2), (2,)), {"causal_mask": "TopLeft"}),
]


def _samples(before: bool) -> list[Sample]:
    """The samples; those of the adjoint have (dy, out) before."""
    return [sample(*([(*s[0][:3], s[2][3])] * 2 if before else []), *s, smooth=True, **attrs) for s, attrs in _SHAPES]


define(
    "nn.attention",
    "query, key, value, bias? | scale=None, causal_mask=None, window_size=None",
    infer=_infer,
    te=lambda query, key, value, bias=None, *, scale, causal_mask, window_size: _attention(
        query, key, value, bias, scale, causal_mask
    ).forward(),
    numpy=in_wide(_forward),
    gradient=_gradient,
    precision="low",
    zeros="mixes",
    family="attention",
    doc="softmax(scale · query·keyᵀ + bias) · value for each head: query (B, S, N, H), key (B, T, M, H), value\n"
    "(B, T, M, V) give (B, S, N, V). M divides N: head n reads the key and value head n // (N / M). scale is 1/√H by\n"
    "default; bias broadcasts to (B, N, S, T). causal_mask: with 'TopLeft' row i sees the keys up to i, with\n"
    "'BottomRight' up to i + |S - T|. A row all of whose logits are -inf gives 0, as in PyTorch. TVM's attention;\n"
    "the kernel keeps no scores in memory: Milakov & Gimelshein 2018, Dao et al. 2022.",
    samples=_samples(False),
)


def _grad_infer(dy: Any, out: Any, *operands: Any, scale: Any, causal_mask: Any) -> TupleStructInfo:
    name = "grad.attention"
    expected = _infer(*operands, scale=scale, causal_mask=causal_mask, window_size=None, name=name)
    for label, info in (("dy", dy), ("out", out)):
        if not same_shape(known_shape(name, info, label), expected.sizes):
            got, wanted = format_shape(info.shape), format_shape(expected.shape)
            raise ShapeError(f"{name}: {label} must have the shape {wanted} of the result, got {got}")
        expect_same_dtype(name, info, operands[0])
    return TupleStructInfo(tuple(TensorStructInfo(o.shape, o.dtype) for o in operands[:3]))


define(
    "grad.attention",
    "dy, out, query, key, value, bias? | scale=None, causal_mask=None",
    infer=_grad_infer,
    te=lambda dy, out, query, key, value, bias=None, *, scale, causal_mask: _attention(
        query, key, value, bias, scale, causal_mask
    ).backward(dy, out),
    numpy=_backward_array,
    gradient=_second_gradient,
    precision="low",
    zeros="makes",
    family="attention",
    doc="The adjoints of the query, key and value of nn.attention, whose result is out and has the adjoint dy.",
    samples=_samples(True),
)

# -- several sequences in one


def _var_len_expect(
    queries: TensorStructInfo,
    keys: TensorStructInfo,
    values: TensorStructInfo,
    seqstart_q: TensorStructInfo,
    seqstart_k: TensorStructInfo,
    *,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    scale: float | None,
    causal_mask: str | None,
    window_size: int | None,
) -> None:
    name = "nn.attention_var_len"
    _infer(queries, keys, values, None, scale=scale, causal_mask=causal_mask, window_size=window_size, name=name)
    if not same(queries.sizes[0], 1):
        raise ShapeError(f"{name}: the sequences must be joined along axis 1, the batch is {queries.sizes[0]}")
    for label, info in (("seqstart_q", seqstart_q), ("seqstart_k", seqstart_k)):
        expect_dtype(name, info, "integer", label)
        if len(known_shape(name, info, label)) != 1:
            raise ShapeError(f"{name}: {label} must have one axis, got {format_shape(info.shape)}")
    if not same_shape(seqstart_q.sizes, seqstart_k.sizes):
        listed = f"{format_shape(seqstart_q.shape)} and {format_shape(seqstart_k.shape)}"
        raise ShapeError(f"{name}: queries and keys must have as many sequences, their starts are {listed}")


class _Places:
    """Of each place of joined sequences, the number of its sequence (0: none), its place there and the length."""

    def __init__(self, starts: Any, total: Dim) -> None:
        starts, place = ops.astype(starts, "int64"), ops.arange(total)
        self.number = ops.searchsorted(starts, place, right=True, dtype="int64")
        last = ops.full((), starts.shape[0], "int64")
        first = ops.take(starts, self.number - 1, 0, "clip")
        self.inside = ops.logical_and(ops.greater(self.number, 0), ops.less(self.number, last))
        self.place, self.length = place - first, ops.take(starts, self.number, 0, "clip") - first


def _var_len(
    queries: Any,
    keys: Any,
    values: Any,
    seqstart_q: Any,
    seqstart_k: Any,
    *,
    scale: Any,
    causal_mask: str | None,
    **_: Any,
) -> Any:
    rows, columns = _Places(seqstart_q, queries.shape[1]), _Places(seqstart_k, keys.shape[1])
    number, place, length, inside = (ops.expand_dims(x, 1) for x in (rows.number, rows.place, rows.length, rows.inside))
    seen = ops.logical_and(ops.equal(number, columns.number), inside)
    if causal_mask is not None:
        last = place if causal_mask == "TopLeft" else place + ops.abs(length - columns.length)
        seen = ops.logical_and(seen, ops.less_equal(columns.place, last))
    bias = ops.where(seen, const(0.0, queries.dtype), const(-math.inf, queries.dtype))
    return ops.nn.attention(queries, keys, values, bias, scale)


def _var_len_array(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    seqstart_q: np.ndarray,
    seqstart_k: np.ndarray,
    *,
    scale: Any,
    causal_mask: str | None,
    **_: Any,
) -> np.ndarray:
    result = np.zeros((*queries.shape[:3], values.shape[3]), queries.dtype)
    for n in range(len(seqstart_q) - 1):
        q, k = (slice(max(int(s[n]), 0), max(int(s[n + 1]), 0)) for s in (seqstart_q, seqstart_k))
        if queries[:, q].size:
            result[:, q] = _forward(
                queries[:, q], keys[:, k], values[:, k], scale=scale, causal_mask=causal_mask, window_size=None
            )
    return result


_AS_IN_THE_REFERENCE = (
    "queries", "keys", "values", "seqstart_q", "max_seqlen_q", "seqstart_k", "max_seqlen_k", "scale", "causal_mask",
    "window_size",
)  # fmt: skip


class _VarLen(Op):  # as users call it: the starts of keys are by default those of queries
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Arguments without a name come in the reference's order, with a greatest length in the fifth place, or, as
        scripts are printed, with a tensor there."""
        named = dict(zip(_AS_IN_THE_REFERENCE, args, strict=False))
        is_clear = len(named) == len(args) and not named.keys() & kwargs.keys()
        if is_clear and not (len(args) > 4 and isinstance(args[4], Expr)):
            args, kwargs = (), {**named, **kwargs}
            if kwargs.get("seqstart_k") is None and "seqstart_q" in kwargs:
                kwargs["seqstart_k"] = kwargs["seqstart_q"]
        return super().__call__(*args, **kwargs)


_JOINED = ((1, 9, 2, 3), (1, 9, 2, 3), (1, 9, 2, 4))

specialize(
    composite(
        "nn.attention_var_len",
        "queries, keys, values, seqstart_q, seqstart_k | max_seqlen_q=None, max_seqlen_k=None, scale=None,"
        " causal_mask=None, window_size=None",
        te=None,
        expect=_var_len_expect,
        decompose=_var_len,
        numpy=in_wide(_var_len_array),
        precision="low",
        family="attention",
        doc="nn.attention of several sequences that are joined along axis 1: sequence n has the places from\n"
        "seqstart_q[n] to seqstart_q[n + 1] - 1 of the queries, (1, S, N, H), and those of seqstart_k, by default the\n"
        "same, of the keys, (1, T, M, H), and values, (1, T, M, V). causal_mask counts within a sequence; places of\n"
        "no sequence give 0. The greatest lengths say nothing more. The scores of all pairs of places are computed.",
        samples=[
            sample(*_JOINED, *[np.array([0, 4, 9])] * 2),
            sample(*_JOINED, *[np.array([0, 4, 4, 9], "int32")] * 2, causal_mask="TopLeft", scale=0.5),
            sample((1, 7, 2, 3), *_JOINED[1:], np.array([0, 2, 7]), np.array([0, 5, 9]), causal_mask="BottomRight"),
            sample(*_JOINED, *[np.array([1, 4, 8])] * 2),
        ],
    ),
    _VarLen,
)
