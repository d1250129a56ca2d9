"""Connectionist temporal classification (Graves et al. 2006): the loss of a sequence of labels whose places in time are
not known.

Labels l[0 … L) with a blank before, between and behind them are states z[0 … 2L]. A path stays in a state, goes on to
the next one, or skips a blank between two different labels; it emits the label of its state at every time. The loss is
-log of the probability of all paths that end in the last label or the last blank:

    α[0] = (1, 0, …)        α[t + 1, s] = p[t, z[s]]·(α[t, s] + α[t, s - 1] + [skip s]·α[t, s - 2])

    loss = -log(α[T, 2L] + α[T, 2L - 1])

in logarithms. The recursion is two ops, which :func:`_ctc_loss` joins with others: ``nn.ctc_states`` says z, and
``nn.ctc_alphas`` computes log α. The adjoint of log α is a recursion too, and a linear one, ``grad.banded_recurrence``,
whose coefficients are the softmax of what is added up above: the chance of each way that led into a state. What flows
backwards are then the probabilities of states given the labels, which Graves et al. get of α and β. The linear
recursion is closed under differentiation, so there are derivatives of all orders.

A state that cannot be reached has the logarithm -10³⁰, so that each state has a chance for the ways that lead into it;
a way that does not exist has -∞.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import define
from pullback.relax.expr import const
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_int,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    narrowed,
    wide,
    widened,
    zero_gradient,
)
from pullback.relax.op.kernel import Lines
from pullback.relax.op.loss.pointwise import check_reduction, divisor_of_shape, reduced, reduced_array
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import all_of
from pullback.relax.op.sample import Floats, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, as_int, dim, format_shape, same_shape
from pullback.tir import (
    Allocate,
    Buffer,
    For,
    If,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    call,
    cast,
    loop,
    maximum,
    minimum,
    select,
    seq,
    store,
)

_IMPOSSIBLE, _BARRED = -1e30, -math.inf
_LANES = 64  # states side by side

# -- states


def _states_infer(
    targets: TensorStructInfo,
    input_lengths: TensorStructInfo,
    target_lengths: TensorStructInfo,
    *,
    sizes: Any,
    blank: int,
) -> TensorStructInfo:
    rows, length = _expect_labels("nn.ctc_states", targets, input_lengths, target_lengths)
    if not isinstance(sizes, (tuple, list)) or len(sizes) != 2:
        raise UserError(f"nn.ctc_states: sizes must be how many times and classes there are, got {sizes!r}")
    dim(sizes[0])
    _expect_blank("nn.ctc_states", blank, dim(sizes[1]))
    return TensorStructInfo((rows, length * 2 + 1), "int64")


def _expect_labels(name: str, targets: TensorStructInfo, *lengths: TensorStructInfo) -> tuple[Dim, Dim]:
    """The sizes of targets (N, L), when they and the lengths, (N,), are as they should be."""
    shape = known_shape(name, targets, "targets")
    expect_dtype(name, targets, "integer", "targets")
    if len(shape) != 2:
        hint = "pad the targets of each row to one length" if len(shape) == 1 else ""
        raise ShapeError(f"{name}: targets must have the shape (N, L), got {format_shape(shape)}", hint=hint)
    for label, info in zip(("input_lengths", "target_lengths"), lengths, strict=True):
        own = known_shape(name, info, label)
        expect_dtype(name, info, "integer", label)
        if not same_shape(own, shape[:1]):
            wanted = format_shape(shape[:1])
            raise ShapeError(f"{name}: {label} must have the shape {wanted}, got {format_shape(own)}")
    return shape[0], shape[1]


def _expect_blank(name: str, blank: int, classes: Dim) -> None:
    expect_int(name, "blank", blank)
    if blank < 0 or (isinstance(classes, int) and blank >= classes):
        raise UserError(f"{name}: blank must be one of the {classes} classes, got {blank}")


def _states_te(
    targets: te.Tensor, input_lengths: te.Tensor, target_lengths: te.Tensor, *, sizes: Any, blank: int
) -> te.Tensor:
    rows, length = targets.shape
    classes, empty = as_expr(sizes[1]), as_expr(blank)

    def state(n: PrimExpr, s: PrimExpr) -> PrimExpr:
        if isinstance(length, int) and length == 0:
            return empty
        k = minimum(s // 2, as_expr(length) - 1)
        label = maximum(minimum(cast("int64", targets[n, k]), classes - 1), 0)
        return select((s % 2).equal(1) & (s // 2 < cast("int64", target_lengths[n])), label, empty)

    return te.compute((rows, length * 2 + 1), state, "states")


_LABEL_CHECK = "a length is outside its axis, or a label is the blank or no class, 0 … C - 1"


def _states_check(
    targets: te.Tensor, input_lengths: te.Tensor, target_lengths: te.Tensor, *, sizes: Any, blank: int
) -> te.Tensor:
    times, classes = map(as_expr, sizes)

    def length(n: PrimExpr) -> PrimExpr:
        t, k = cast("int64", input_lengths[n]), cast("int64", target_lengths[n])
        return (t >= 0) & (t <= times) & (k >= 0) & (k <= targets.shape[1])

    def label(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        c = cast("int64", targets[n, k])
        return (k >= cast("int64", target_lengths[n])) | ((c >= 0) & (c < classes) & ~c.equal(blank))

    valid = (all_of(te.compute(targets.shape[:1], length, "valid")), all_of(te.compute(targets.shape, label, "valid")))
    return te.compute((), lambda: valid[0][()] & valid[1][()], "check")


def _check_labels(
    targets: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray, sizes: Any, blank: int
) -> None:
    inside = np.arange(targets.shape[1]) < target_lengths[:, None]
    labels = targets[inside]
    valid = np.all((labels >= 0) & (labels < sizes[1]) & (labels != blank))
    for lengths, size in ((input_lengths, sizes[0]), (target_lengths, targets.shape[1])):
        valid &= np.all((lengths >= 0) & (lengths <= size))
    if not valid:
        raise UserError(_LABEL_CHECK)


def _states(
    targets: np.ndarray, input_lengths: np.ndarray, target_lengths: np.ndarray, *, sizes: Any, blank: int
) -> np.ndarray:
    _check_labels(targets, input_lengths, target_lengths, sizes, blank)
    result = np.full((len(targets), 2 * targets.shape[1] + 1), blank, np.int64)
    for row, labels, length in zip(result, targets, target_lengths, strict=True):
        row[1 : 2 * int(length) : 2] = labels[:length]
    return result


define(
    "nn.ctc_states",
    "targets, input_lengths, target_lengths | sizes, blank=0",
    infer=_states_infer,
    te=_states_te,
    numpy=_states,
    gradient=zero_gradient,
    check=_states_check,
    check_message=_LABEL_CHECK,
    family="loss",
    doc="The labels of each row, (N, L), with a blank before, between and behind them: (N, 2L + 1), int64; behind the\n"
    "length of a row there are blanks. sizes: how many times and classes there are. A label or a length out of range\n"
    "is an error.",
    samples=[
        sample(Ints((3, 4), 1, 5), Ints((3,), 0, 8), Ints((3,), 0, 5), sizes=(7, 5)),
        sample(Ints((2, 3), 0, 4, "int32"), Ints((2,), 1, 6, "int32"), Ints((2,), 3, 4), sizes=(5, 6), blank=5),
        sample(Ints((2, 0), 0, 1), Ints((2,), 1, 2), Ints((2,), 0, 1), sizes=(2, 3)),
        sample(Ints((0, 2), 0, 1), Ints((0,), 1, 2), Ints((0,), 0, 1), sizes=(2, 3)),
    ],
)  # fmt: skip

# -- what all the recursions need


def _rows(n: Dim, times: Dim, size: Dim) -> Lines:
    """The rows of a batch, each of which takes so many times of so many states."""
    return Lines((n, times * size), 1)


def _lanes(size: Dim, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """``body`` at all states, some side by side."""
    if isinstance(size, int) and size <= _LANES:
        lane = Var("s")
        return For(lane, as_expr(size), body(lane), "vectorized")
    width = as_expr(size)

    def block(number: PrimExpr) -> Stmt:
        lane = Var("s")
        count = minimum(width - number * _LANES, _LANES)
        return For(lane, count, body(number * _LANES + lane), "vectorized")

    return loop("block", (width + (_LANES - 1)) // _LANES, block)


def _behind(x: Any, k: int, fill: float) -> Any:
    """The state k before each one of a tensor (T, N, S); ``fill`` where there is none."""
    if k == 0:
        return x
    return ops.strided_slice(ops.nn.pad(x, (0, 0, 0, 0, k, 0), "constant", fill), [2], [0], [x.shape[2]])


# -- forward variables


def _alphas_infer(start: TensorStructInfo, emissions: TensorStructInfo, states: TensorStructInfo) -> TensorStructInfo:
    name = "nn.ctc_alphas"
    begin, shape, own = (known_shape(name, i) for i in (start, emissions, states))
    expect_dtype(name, emissions, "float", "emissions")
    expect_same_dtype(name, start, emissions)
    expect_dtype(name, states, "integer", "states")
    if len(shape) != 3 or not same_shape(own, shape[1:]) or not same_shape(begin, own):
        listed = " and ".join(map(format_shape, (shape, begin, own)))
        raise ShapeError(f"{name}: emissions (T, N, S) need start and states (N, S), got {listed}")
    return TensorStructInfo((shape[0] + 1, *shape[1:]), emissions.dtype)


def _alphas_kernel(inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
    (start, emissions, states), (out,) = inputs, outputs
    times, rows, size = emissions.shape
    kind = wide(out.dtype)
    row = Buffer("row", (rows, 2, size + 2), kind, "workspace")  # before and after a step, by turns, behind two blanks
    barred = tir.const(_BARRED, kind)

    def line(n: PrimExpr) -> Stmt:
        def begin(s: PrimExpr) -> Stmt:
            first = seq(store(out, (as_expr(0), n, s), start[n, s]))
            return seq(store(row, (n, as_expr(0), s + 2), cast(kind, start[n, s])), first)

        def step(t: PrimExpr) -> Stmt:
            turn = t % 2

            def state(s: PrimExpr) -> Stmt:
                before = maximum(s - 2, 0)
                stay, go, over = (row[n, turn, s + k] for k in (2, 1, 0))
                skip = select(states[n, s].equal(states[n, before]), barred, over)
                ways: list[PrimExpr] = [stay, go, skip]
                most = reduce(maximum, ways)
                total = call("log", sum((call("exp", w - most) for w in ways[1:]), call("exp", stay - most)))
                value = cast(kind, emissions[t, n, s]) + (most + total)
                after = store(row, (n, 1 - turn, s + 2), value)
                return seq(after, store(out, (t + 1, n, s), cast(out.dtype, row[n, 1 - turn, s + 2])))

            return _lanes(size, state)

        edge = loop("turn", 2, lambda turn: loop("s", 2, lambda s: store(row, (n, turn, s), barred)))
        return seq(edge, loop("s", size, begin), loop("t", times, step))

    return Allocate(row, _rows(rows, times, size).each(line))


def _alphas(start: np.ndarray, emissions: np.ndarray, states: np.ndarray) -> np.ndarray:
    dtype = emissions.dtype.type
    result = np.empty((len(emissions) + 1, *states.shape), emissions.dtype)
    result[0] = start
    may_skip = np.zeros(states.shape, bool)
    may_skip[:, 2:] = states[:, 2:] != states[:, :-2]
    for t, emission in enumerate(emissions):
        now = result[t]
        ways = np.full((3, *now.shape), _BARRED, emissions.dtype)
        for k in range(3):
            ways[k, :, k:] = now[:, : max(now.shape[1] - k, 0)]
        ways[2] = np.where(may_skip, ways[2], dtype(_BARRED))
        result[t + 1] = emission + np.logaddexp.reduce(ways, 0)
    return result


def _alphas_gradient(dy: Any, y: Any, start: Any, emissions: Any, states: Any) -> tuple[Any, Any, None]:
    times = emissions.shape[0]
    before, own = ops.strided_slice(y, [0], [0], [times]), ops.expand_dims(states, 0)
    may_skip = ops.not_equal(own, _behind(own, 2, 0))
    skip = ops.where(may_skip, _behind(before, 2, _BARRED), const(_BARRED, y.dtype))
    ways = ops.nn.softmax(ops.stack([before, _behind(before, 1, _BARRED), skip], 0), 0)
    g = ops.grad.banded_recurrence(ops.nn.pad(ways, (0, 0, 1, 0, 0, 0, 0, 0)), dy, reverse=True)
    first = ops.squeeze(ops.strided_slice(g, [0], [0], [1]), 0)
    return first, ops.strided_slice(g, [0], [1], [times + 1]), None


define(
    "nn.ctc_alphas",
    "start, emissions, states",
    infer=_alphas_infer,
    kernel=_alphas_kernel,
    numpy=in_wide(_alphas),
    gradient=_alphas_gradient,
    family="loss",
    doc="The logarithms of the forward variables of connectionist temporal classification, (T + 1, N, S), from\n"
    "those of the probabilities of the states' labels, (T, N, S), those at the start, (N, S), and the labels, (N, S):\n"
    "a path stays in a state, goes on to the next one, or skips one between two labels that differ. Graves et al.\n"
    "2006, section 4.1.",
    samples=[
        sample((2, 7), Floats((6, 2, 7), -3.0, 0.0), Ints((2, 7), 0, 3)),
        sample((1, 5), Floats((3, 1, 5), -3.0, 0.0), Ints((1, 5), 0, 2)),
        sample((2, 1), Floats((2, 2, 1), -3.0, 0.0), Ints((2, 1), 0, 2, "int32")),
        sample((1, 130), Floats((5, 1, 130), -3.0, 0.0), Ints((1, 130), 0, 3)),
        sample((2, 3), Floats((0, 2, 3), -3.0, 0.0), Ints((2, 3), 0, 3)),
    ],
)

# -- their adjoint


def _banded_infer(a: TensorStructInfo, b: TensorStructInfo, *, reverse: bool) -> TensorStructInfo:
    name = "grad.banded_recurrence"
    bands, shape = known_shape(name, a, "a"), known_shape(name, b, "b")
    expect_dtype(name, b, "float")
    expect_same_dtype(name, a, b)
    if len(shape) != 3 or not same_shape(bands[1:], shape) or not isinstance(bands[0], int):
        listed = f"{format_shape(bands)} and {format_shape(shape)}"
        raise ShapeError(f"{name}: a (K, T, N, S) and b (T, N, S) do not fit, or K is not known: {listed}")
    return b


def _banded_kernel(inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, reverse: bool) -> Stmt:
    (a, b), (out,) = inputs, outputs
    times, rows, size = b.shape
    kind = wide(out.dtype)
    row = Buffer("row", (rows, 2, size), kind, "workspace")  # before and after a step, by turns

    def line(n: PrimExpr) -> Stmt:
        def step(turn: PrimExpr) -> Stmt:
            t = as_expr(times) - 1 - turn if reverse else turn
            now, old = turn % 2, 1 - turn % 2

            def added(k: int) -> Stmt:
                def state(s: PrimExpr) -> Stmt:
                    to, come = (s, s + k) if reverse else (s + k, s)
                    factor = a[as_expr(k), t + 1, n, s + k] if reverse else a[as_expr(k), t, n, s + k]
                    return store(row, (n, now, to), row[n, now, to] + cast(kind, factor) * row[n, old, come])

                left = max(size - k, 0) if isinstance(size, int) else maximum(size - k, 0)
                return _lanes(left, state)

            begin = _lanes(size, lambda s: store(row, (n, now, s), cast(kind, b[t, n, s])))
            bands = If(turn > 0, seq(*(added(k) for k in range(as_int(a.shape[0])))))
            end = _lanes(size, lambda s: store(out, (t, n, s), cast(out.dtype, row[n, now, s])))
            return seq(begin, bands, end)

        return loop("turn", times, step)

    return Allocate(row, _rows(rows, times, size).each(line))


def _banded(a: np.ndarray, b: np.ndarray, *, reverse: bool) -> np.ndarray:
    result, size = b.copy(), b.shape[2]
    times = range(len(b))
    for t in times[-2::-1] if reverse else times[1:]:
        for k in range(min(len(a), size)):
            if reverse:
                result[t, :, : size - k] += a[k, t + 1, :, k:] * result[t + 1, :, k:]
            else:
                result[t, :, k:] += a[k, t, :, k:] * result[t - 1, :, : size - k]
    return result


def _banded_gradient(dh: Any, h: Any, a: Any, b: Any, *, reverse: bool) -> tuple[Any, Any]:
    g = ops.grad.banded_recurrence(a, dh, reverse=not reverse)
    later, earlier = (h, g) if reverse else (g, h)
    before = ops.grad.shift(earlier, axis=0)
    ways = ops.stack([_behind(before, k, 0.0) for k in range(a.shape[0])], 0)
    return ways * ops.expand_dims(later, 0), g


define(
    "grad.banded_recurrence",
    "a, b | reverse=False",
    infer=_banded_infer,
    kernel=_banded_kernel,
    numpy=in_wide(_banded),
    gradient=_banded_gradient,
    zeros="mixes",
    family="scan",
    doc="h[t, n, s] = b[t, n, s] + Σ a[k, t, n, s]·h[t - 1, n, s - k] over the bands k, for a (K, T, N, S) and b\n"
    "(T, N, S); what has no place is 0. With ``reverse`` the transposed recurrence, from the end:\n"
    "h[t, n, s] = b[t, n, s] + Σ a[k, t + 1, n, s + k]·h[t + 1, n, s + k].",
    samples=[
        sample((3, 5, 2, 4), (5, 2, 4)),
        sample((3, 5, 2, 4), (5, 2, 4), reverse=True),
        sample((2, 3, 1, 70), (3, 1, 70), reverse=True),
        sample((3, 4, 2, 1), (4, 2, 1)),
        sample((2, 0, 2, 3), (0, 2, 3)),
    ],
)

# -- the loss


def _ctc_expect(
    log_probs: TensorStructInfo,
    targets: TensorStructInfo,
    input_lengths: TensorStructInfo,
    target_lengths: TensorStructInfo,
    *,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> None:
    name = "nn.ctc_loss"
    shape = known_shape(name, log_probs, "log_probs")
    expect_dtype(name, log_probs, "float", "log_probs")
    if len(shape) != 3:
        raise ShapeError(f"{name}: log_probs must have the shape (T, N, C), got {format_shape(shape)}")
    rows, _ = _expect_labels(name, targets, input_lengths, target_lengths)
    if not same_shape((rows,), shape[1:2]):
        raise ShapeError(f"{name}: log_probs have {shape[1]} rows, targets {rows}")
    _expect_blank(name, blank, shape[2])
    check_reduction(name, reduction)


def _ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> Any:
    logs, (times, rows, classes) = widened(log_probs), log_probs.shape
    states = ops.nn.ctc_states(targets, input_lengths, target_lengths, (times, classes), blank)
    size = states.shape[1]
    lengths, counts = (ops.reshape(ops.astype(x, "int64"), (1, rows, 1)) for x in (input_lengths, target_lengths))
    time = ops.reshape(ops.arange(times + 1), (times + 1, 1, 1))
    found = ops.gather_elements(logs, ops.broadcast_to(states, (times, rows, size)), 2, "clip")
    while_it_lasts = ops.less(ops.strided_slice(time, [0], [0], [times]), lengths)
    emissions = ops.maximum(masked(while_it_lasts, found), _IMPOSSIBLE)
    place = ops.reshape(ops.arange(size), (1, 1, size))
    start = ops.where(ops.equal(ops.reshape(place, (1, size)), 0), 0.0, const(_IMPOSSIBLE, logs.dtype))
    alphas = ops.nn.ctc_alphas(ops.broadcast_to(start, (rows, size)), emissions, states)
    ends = place - counts * 2  # 0: the last blank, -1: the last label

    def at(state: int) -> Any:
        here = ops.logical_and(ops.equal(time, lengths), ops.equal(ends, state))
        return ops.sum(masked(here, alphas), (0, 2))

    label = ops.where(ops.greater(ops.reshape(counts, (rows,)), 0), at(-1), const(_IMPOSSIBLE, logs.dtype))
    each = -ops.logaddexp(at(0), label)
    impossible = ops.greater(each, -0.5 * _IMPOSSIBLE)
    each = ops.where(impossible, const(0.0 if zero_infinity else float("inf"), logs.dtype), each)
    if reduction == "mean":
        each = each / ops.astype(ops.maximum(ops.reshape(counts, (rows,)), 1), logs.dtype)
    return narrowed(reduced(each, reduction), log_probs.dtype)


def _ctc_array(
    log_probs: np.ndarray,
    targets: np.ndarray,
    input_lengths: np.ndarray,
    target_lengths: np.ndarray,
    *,
    blank: int,
    reduction: str,
    zero_infinity: bool,
) -> np.ndarray:
    _check_labels(targets, input_lengths, target_lengths, log_probs.shape[::2], blank)
    each = np.empty(len(targets), log_probs.dtype)
    for n, (length, count) in enumerate(zip(input_lengths, target_lengths, strict=True)):
        chances = {0: 0.0}  # of the places among the labels and blanks, their logarithms
        labels = [blank, *(c for label in targets[n, :count] for c in (int(label), blank))]
        for t in range(length):
            after: dict[int, float] = {}
            for place, chance in chances.items():
                for k in range(place, min(place + 3, len(labels))):
                    if k < place + 2 or labels[k] != labels[place]:
                        found = chance + float(log_probs[t, n, labels[k]])
                        after[k] = float(np.logaddexp(after.get(k, -np.inf), found))
            chances = after
        each[n] = -np.logaddexp(chances.get(2 * count, -np.inf), chances.get(2 * count - 1, -np.inf))
        if zero_infinity and np.isinf(each[n]):
            each[n] = 0
    if reduction == "mean":
        each = each / np.maximum(target_lengths, 1).astype(each.dtype)
    return reduced_array(each, reduction)


_LOGS = Floats((7, 3, 5), -4.0, -0.5)
_LABELS = Ints((3, 3), 1, 5)

composite(
    "nn.ctc_loss",
    "log_probs, targets, input_lengths, target_lengths | blank=0, reduction='mean', zero_infinity=False",
    te=None,
    expect=_ctc_expect,
    decompose=_ctc_loss,
    divisor=lambda log_probs, *_, reduction, **attrs: divisor_of_shape(log_probs.shape[1:2], reduction),
    numpy=in_wide(_ctc_array),
    family="loss",
    doc="-log of the probability of all alignments of the targets (N, L) with the times of log_probs (T, N, C), whose\n"
    "rows take input_lengths (N,) of the times and target_lengths (N,) of the labels; reduced: 'mean' divides by the\n"
    "number of labels of each row before it takes the mean. The loss of labels that do not fit is inf, or 0 with\n"
    "zero_infinity; its derivative is 0. Derivatives are those for independent log_probs. A label or length out of\n"
    "range is an error. PyTorch's ctc_loss; Graves et al. 2006.",
    samples=[
        sample(_LOGS, _LABELS, Ints((3,), 7, 8), Ints((3,), 3, 4)),
        sample(_LOGS, _LABELS, Ints((3,), 6, 8, "int32"), Ints((3,), 0, 4, "int32"), reduction="sum"),
        sample(_LOGS, Ints((3, 2), 0, 4), Ints((3,), 5, 8), Ints((3,), 1, 3), blank=4, reduction="none"),
        sample(_LOGS, _LABELS, Ints((3,), 0, 4), Ints((3,), 2, 4), zero_infinity=True),
        sample(_LOGS, _LABELS, Ints((3,), 0, 3), Ints((3,), 3, 4), reduction="none", smooth=False),
        sample(Floats((4, 2, 3), -2.0, 0.0), Ints((2, 0), 0, 1), Ints((2,), 0, 5), Ints((2,), 0, 1)),
    ],
)
