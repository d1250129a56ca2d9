"""Calls of ops of detection, attention, loops and random numbers that do not fit: each of their checks refuses one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback import te, tir
from pullback.ir.errors import ArgumentError, DTypeError, NameNotFound, ShapeError, UserError
from pullback.ir.module import GlobalVar
from pullback.relax import op as graph
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, ShapeExpr, Var
from pullback.relax.interpreter import evaluate
from pullback.relax.op.namespace import ops
from pullback.relax.op.register import register_op, te_gradient
from pullback.relax.struct_info import TensorStructInfo

N = tir.Var("n")


def var(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def ints(*shape: Any) -> Var:
    return var(*shape, dtype="int64")


STATE = var(2, dtype="uint64")

# -- attention: queries of 5 places in 2 heads of 4 numbers

_Q, _STARTS = var(1, 5, 2, 4), ints(3)


def _joined(q: Any = _Q, k: Any = _Q, v: Any = _Q, starts: Any = _STARTS, others: Any = _STARTS) -> Expr:
    return ops.nn.attention_var_len(q, k, v, starts, 3, others, 3)


def _attention_adjoint(dy: Any = _Q, out: Any = _Q) -> Expr:
    return ops.grad.attention(dy, out, _Q, _Q, _Q)


ATTENTION: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "batch": (lambda: _joined(*[var(2, 5, 2, 4)] * 3), ShapeError, "joined along axis 1, the batch is 2"),
    "starts": (lambda: _joined(starts=ints(3, 1)), ShapeError, r"seqstart_q must have one axis, got \(3, 1\)"),
    "starts of keys": (lambda: _joined(others=ints(1, 3)), ShapeError, "seqstart_k must have one axis"),
    "as many": (lambda: _joined(others=ints(4)), ShapeError, r"as many sequences, their starts are \(3,\) and \(4,\)"),
    "starts dtype": (lambda: _joined(others=var(3)), DTypeError, "seqstart_k must have an integer dtype"),
    "dy": (lambda: _attention_adjoint(dy=var(1, 5, 2, 3)), ShapeError, r"dy must have the shape \(1, 5, 2, 4\)"),
    "out": (lambda: _attention_adjoint(out=var(1, 4, 2, 4)), ShapeError, r"out must have the shape \(1, 5, 2, 4\)"),
    "dtype": (lambda: _attention_adjoint(dy=var(1, 5, 2, 4, dtype="float64")), DTypeError, "must have the same dtype"),
}

# -- boxes

_SCORES, _PLACES, _ANCHOR = var(2, 3, 5), var(2, 20), var(1, 5, 4)
_ROWS, _COUNT, _INDICES = var(2, 5, 6), ints(2), ints(2, 5)
_BOXES, _LABELS, _CANDIDATES = var(2, 5, 4), ints(2, 5), var(2, 5, dtype="bool")


def _decoded(scores: Any = _SCORES, places: Any = _PLACES, anchor: Any = _ANCHOR, **attrs: Any) -> Expr:
    return ops.vision.multibox_transform_loc(scores, places, anchor, **attrs)


def _nms(rows: Any = _ROWS, count: Any = _COUNT, indices: Any = _INDICES, **attrs: Any) -> Expr:
    return ops.vision.non_max_suppression(rows, count, indices, **attrs)


def _all_class(boxes: Any = _BOXES, scores: Any = _SCORES, form: str = "onnx") -> Expr:
    return ops.vision.all_class_non_max_suppression(boxes, scores, 3, 0.5, 0.1, form)


def _suppressed(boxes: Any = _BOXES, labels: Any = _LABELS, candidates: Any = _CANDIDATES) -> Expr:
    return ops.vision.suppress(boxes, labels, candidates)


def _softly(scores: Any = var(2, 5), **attrs: Any) -> Expr:  # noqa: B008
    return ops.vision.soft_suppress(_BOXES, scores, _LABELS, _CANDIDATES, **attrs)


def _pooled(data: Any = var(2, 3, 6, 6), rois: Any = var(4, 5), size: Any = 2) -> Expr:  # noqa: B008
    return ops.vision.roi_align(data, rois, size, 1.0)


BOXES: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "scores": (lambda: _decoded(var(2, 3)), ShapeError, r"cls_pred must have the shape \(B, C, N\), got \(2, 3\)"),
    "places": (lambda: _decoded(places=var(2, 5)), ShapeError, r"loc_pred must have the shape \(2, 20\), got \(2, 5\)"),
    "anchor": (lambda: _decoded(anchor=var(2, 5, 4)), ShapeError, r"anchor must have the shape \(1, 5, 4\)"),
    "variances": (lambda: _decoded(variances=(0.1, 0.1)), UserError, r"variances must be four numbers, got \(0.1"),
    "rows": (lambda: _nms(var(2, 5)), ShapeError, r"data must have the shape \(B, A, E\) with a known E, got \(2, 5\)"),
    "symbolic rows": (lambda: _nms(var(2, 5, N)), ShapeError, "with a known E"),
    "score": (lambda: _nms(score_index=6), ShapeError, "score_index 6 is outside of rows of 6 numbers"),
    "score below": (lambda: _nms(score_index=-1), ShapeError, "score_index -1 is outside"),
    "id": (lambda: _nms(id_index=-2), ShapeError, "id_index -2 is outside of rows of 6 numbers"),
    "coordinates": (lambda: _nms(coord_start=3), ShapeError, "coordinates from 3 on are outside of rows of 6 numbers"),
    "valid": (lambda: _nms(count=ints(3)), ShapeError, r"valid_count must have the shape \(2,\), got \(3,\)"),
    "indices": (lambda: _nms(indices=ints(2, 4)), ShapeError, r"indices must have the shape \(2, 5\), got \(2, 4\)"),
    "indices dtype": (lambda: _nms(indices=var(2, 5)), DTypeError, "indices must have an integer dtype"),
    "sigma": (lambda: _nms(soft_nms_sigma=-0.5), UserError, "soft_nms_sigma cannot be negative, got -0.5"),
    "no sigma": (lambda: _nms(soft_nms_sigma=math.nan), UserError, "soft_nms_sigma cannot be negative, got nan"),
    "boxes": (lambda: _all_class(var(2, 5, 5)), ShapeError, r"boxes must have the shape \(B, A, 4\), got \(2, 5, 5\)"),
    "scores of boxes": (
        lambda: _all_class(scores=var(2, 3, 4)),
        ShapeError,
        r"scores must have the shape \(2, classes",
    ),
    "format": (lambda: _all_class(form="torch"), UserError, "output_format must be"),
    "suppressed": (lambda: _suppressed(var(5, 4)), ShapeError, r"boxes must have the shape \(rows, boxes, 4\)"),
    "suppressed corners": (lambda: _suppressed(var(2, 5, 3)), ShapeError, r"boxes must have the shape \(rows, boxes"),
    "labels": (lambda: _suppressed(labels=ints(2, 4)), ShapeError, r"\(2, 5\) needed of all boxes, got \(2, 4\)"),
    "candidates": (lambda: _suppressed(candidates=ints(2, 5)), DTypeError, "candidates must have a bool dtype"),
    "softly": (lambda: _softly(sigma=0.0), UserError, "sigma must be positive, got 0.0"),
    "softly dtype": (lambda: _softly(var(2, 5, dtype="float64")), DTypeError, "must have the same dtype"),
    "rois": (lambda: _pooled(rois=var(4, 4)), ShapeError, r"rois must have the shape \(rois, 5\), got \(4, 4\)"),
    "rois rank": (lambda: _pooled(rois=var(5)), ShapeError, r"rois must have the shape \(rois, 5\), got \(5,\)"),
    "no pixels": (lambda: _pooled(var(2, 3, 0, 6)), ShapeError, "data must be images that have pixels"),
    "no images": (lambda: _pooled(var(2, 6, 6)), ShapeError, "data must be images that have pixels"),
    "bins": (lambda: _pooled(size=(2, 0)), ShapeError, r"pooled_size must be two positive numbers, got \(2, 0\)"),
    "three bins": (lambda: _pooled(size=(2, 2, 2)), ShapeError, "pooled_size must be two positive numbers"),
    "a batch each": (
        lambda: ops.vision.roi_maxima(var(2, 3, 6, 6), ints(3), var(4, 5), (2, 2)),
        ShapeError,
        r"a batch for each roi, got \(3,\)",
    ),
}

# -- the loss of alignments, and the loops that it is made of

_LOGS, _TARGETS, _LENGTHS = var(6, 2, 4), ints(2, 3), ints(2)


def _ctc(logs: Any = _LOGS, targets: Any = _TARGETS, times: Any = _LENGTHS, labels: Any = _LENGTHS, **kw: Any) -> Expr:
    return ops.nn.ctc_loss(logs, targets, times, labels, **kw)


LOOPS: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "logs": (lambda: _ctc(var(6, 4)), ShapeError, r"log_probs must have the shape \(T, N, C\), got \(6, 4\)"),
    "rows": (lambda: _ctc(var(6, 3, 4)), ShapeError, "log_probs have 3 rows, targets 2"),
    "labels": (lambda: _ctc(targets=ints(6)), ShapeError, r"targets must have the shape \(N, L\), got \(6,\)"),
    "times": (lambda: _ctc(times=ints(3)), ShapeError, r"input_lengths must have the shape \(2,\), got \(3,\)"),
    "lengths": (lambda: _ctc(labels=ints(1)), ShapeError, r"target_lengths must have the shape \(2,\), got \(1,\)"),
    "lengths dtype": (lambda: _ctc(labels=var(2)), DTypeError, "target_lengths must have an integer dtype"),
    "blank": (lambda: _ctc(blank=4), UserError, "blank must be one of the 4 classes, got 4"),
    "blank below": (lambda: _ctc(blank=-1), UserError, "blank must be one of the 4 classes, got -1"),
    "alphas": (
        lambda: ops.nn.ctc_alphas(var(2, 7), var(6, 2, 5), ints(2, 5)),
        ShapeError,
        r"\(6, 2, 5\) and \(2, 7\) and \(2, 5\)",
    ),
    "alphas of states": (
        lambda: ops.nn.ctc_alphas(var(2, 5), var(6, 2, 5), ints(2, 7)),
        ShapeError,
        r"need start and states \(N, S\)",
    ),
    "bands": (
        lambda: ops.grad.banded_recurrence(var(3, 6, 2, 5), var(6, 2, 4)),
        ShapeError,
        r"do not fit, or K is not known: \(3, 6, 2, 5\) and \(6, 2, 4\)",
    ),
    "symbolic bands": (
        lambda: ops.grad.banded_recurrence(var(N, 6, 2, 5), var(6, 2, 5)),
        ShapeError,
        "K is not known",
    ),
}

# -- random numbers

RANDOM: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "bits": (lambda: ops.random.bits(STATE, (3,), "int32"), DTypeError, "uint32, uint64; got 'int32'"),
    "site": (lambda: ops.random.site(STATE, -1), UserError, "number must be ≥ 0 and below .*, got -1"),
    "uniform": (lambda: ops.random.uniform(STATE, (3,), math.nan, 1.0), UserError, "must be a finite number, got nan"),
    "uniform flag": (lambda: ops.random.uniform(STATE, (3,), True, 2.0), UserError, "a finite number, got True"),
    "normal": (lambda: ops.random.normal(STATE, (3,), 0.0, math.inf), UserError, "must be a finite number, got inf"),
    "uniform dtype": (lambda: ops.random.uniform(STATE, (3,), dtype="int32"), DTypeError, "a floating-point type"),
    "randint": (lambda: ops.random.randint(STATE, (3,), 0, 2.0), UserError, "high must be an int, got 2.0"),
    "randint flag": (lambda: ops.random.randint(STATE, (3,), False, 2), UserError, "low must be an int, got False"),
    "randint range": (
        lambda: ops.random.randint(STATE, (3,), 0, 257, "uint8"),
        UserError,
        "the numbers between them in uint8: got 0 and 257",
    ),
    "randint below": (lambda: ops.random.randint(STATE, (3,), -1, 7, "uint8"), UserError, "got -1 and 7"),
    "randint none": (lambda: ops.random.randint(STATE, (3,), 7, 7), UserError, "low must be below high"),
    "permutation": (lambda: ops.random.permutation(STATE, -1), UserError, "n cannot be negative, got -1"),
    "permutation dtype": (lambda: ops.random.permutation(STATE, 3, "int8"), DTypeError, "int32, int64; got 'int8'"),
    "shuffle": (lambda: ops.random.shuffle(var(2, 2, dtype="uint64")), ShapeError, "words must be a vector of uint64"),
    "shuffle words": (lambda: ops.random.shuffle(ints(2)), ShapeError, "words must be a vector of uint64"),
    "multinomial": (
        lambda: ops.multinomial_from_uniform(var(2), var(3, 1), ints(3, 1)),
        ShapeError,
        r"prob must have the shape \(rows, numbers\), got \(2,\)",
    ),
    "multinomial of none": (
        lambda: ops.multinomial_from_uniform(var(2, 0), var(3, 1), ints(3, 1)),
        ShapeError,
        "prob must have the shape",
    ),
    "multinomial columns": (
        lambda: ops.multinomial_from_uniform(var(2, 4), var(3, 2), ints(3, 2)),
        ShapeError,
        r"one shape \(n, 1\), got \(3, 2\) and \(3, 2\)",
    ),
    "multinomial rows": (
        lambda: ops.multinomial_from_uniform(var(2, 4), var(3, 1), ints(4, 1)),
        ShapeError,
        r"one shape \(n, 1\), got \(3, 1\) and \(4, 1\)",
    ),
}

# -- indices and layouts

OTHERS: dict[str, tuple[Callable[[], Any], type[UserError], str]] = {
    "epsilon": (
        lambda: ops.nn.batch_norm(var(4, 3), var(3), var(3), var(3), var(3), 1, epsilon=True),
        UserError,
        "epsilon must be a number, got True",
    ),
    "momentum": (
        lambda: ops.nn.batch_norm(var(4, 3), var(3), var(3), var(3), var(3), 1, momentum="0.1"),
        ArgumentError,
        "momentum must be a number, got '0.1'",
    ),
    "arange": (lambda: ops.arange(0, N, 0.5), UserError, "with symbolic bounds the step must be an int, got 0.5"),
    "arange infinity": (lambda: ops.arange(0, math.inf), UserError, "end must be a finite number, got inf"),
    "embedding": (lambda: ops.nn.embedding(ints(3), var()), ShapeError, "weight must have a row for each index"),
    "rotary": (lambda: ops.nn.rotary_embedding(var(3, N), var(3, 2), var(3, 2)), ShapeError, "must have known sizes"),
    "rotary angles": (
        lambda: ops.nn.rotary_embedding(var(3, 4), var(3, 3), var(3, 3)),
        ShapeError,
        "cos has 3 angles, x 4 elements",
    ),
    "rotary shape": (
        lambda: ops.nn.rotary_embedding(var(1, 4), var(3, 2), var(3, 2)),
        ShapeError,
        r"cos of shape \(3, 2\) does not broadcast to \(1, 2\)",
    ),
    "gather_nd": (lambda: ops.gather_nd(var(3, 4), ints(3, N)), ShapeError, "last axis of indices must have a known"),
    "grid": (
        lambda: ops.image.grid_sample(var(2, 3, 5, 5), var(2, 2, N, 4)),
        ShapeError,
        "only the batch may have a symbolic size",
    ),
    "take_gradient": (
        lambda: ops.take_gradient(var(4, 5), ints(3), 7, 0),
        ShapeError,
        r"dy of shape \(4, 5\) does not fit indices of shape \(3,\)",
    ),
    "one_hot": (lambda: ops.one_hot(ints(3), "1", "0", 4, dtype="float32"), UserError, "must be numbers, got '1'"),
    "linear": (lambda: ops.linear(var(3, 4), var(4)), ShapeError, r"shape \(outputs, inputs\), got \(4,\)"),
    "variance": (
        lambda: ops.nn.gaussian_nll_loss(var(3, 4), var(3, 4), var(2, 3, 4)),
        ShapeError,
        r"variance of shape \(2, 3, 4\) does not broadcast to \(3, 4\)",
    ),
    "triplet": (lambda: ops.nn.triplet_margin_loss(var(), var(), var()), ShapeError, "anchor must have an axis of"),
    "depth": (lambda: ops.nn.depth_to_space(var(4, 2, 2), 2), ShapeError, "x must have rank 4, with the axes NCHW"),
    "dynamic slice": (
        lambda: ops.dynamic_strided_slice(var(3, 4), ints(2), ints(2), ints(2)),
        ShapeError,
        "begin must be a constant",
    ),
    "diagonal": (
        lambda: ops.grad.diagonal(var(3, 3), shape=(3, 3), offset=0, axis1=0, axis2=1),
        ShapeError,
        r"dy must have the shape \(3,\), got \(3, 3\)",
    ),
    "meshgrid": (lambda: ops.meshgrid([]), UserError, "meshgrid: there must be at least one tensor"),
    "flatten": (lambda: ops.nn.batch_flatten(var()), ShapeError, "a scalar has no batch axis"),
    "slice_scatter": (lambda: ops.slice_scatter(var(N, 4), var(1, 4), end=1), ShapeError, "size of axis 0 must be kno"),
    "reverse": (
        lambda: ops.reverse_sequence(var(3, 4), ints(3), 0, 1),
        ShapeError,
        r"seq_lengths must have the shape \(4,\), got \(3,\)",
    ),
    "index_put": (lambda: ops.index_put(var(3, 4), [], var(4)), ShapeError, "at least one index"),
    "index_put values": (
        lambda: ops.index_put(var(3, 4), [ints(2)], var(2, 3)),
        ShapeError,
        "do not broadcast",
    ),
    "bucketize": (lambda: ops.bucketize(var(3), var(2, 2)), ShapeError, "boundaries must have one axis"),
    "argsort": (lambda: ops.argsort(var(3, 4), first=5), ShapeError, "first must be from 1 to 4, the size of axis 1"),
    "argsort of none": (lambda: ops.argsort(var(3, 4), first=0), ShapeError, "first must be from 1 to 4"),
    "map pairs": (lambda: ops.layout_transform(var(4, 4), ((0, 1), 1)), UserError, "must hold pairs"),
    "map axis": (lambda: ops.layout_transform(var(4, 4), (((-1, 1),), ((1, 1),))), ShapeError, "cannot be negative"),
    "map stride": (lambda: ops.layout_transform(var(4), (((0, 0),),)), ShapeError, "a stride must be positive"),
    "map arguments": (lambda: ops.layout_transform(var(4, 4), lambda i: (i,)), ShapeError, "the 2 indices of x"),
    "map sum": (lambda: ops.layout_transform(var(4), lambda i: (i * i,)), ShapeError, "index 0 of index_map cannot be"),
    "map constant": (lambda: ops.layout_transform(var(4), lambda i: (i + 1,)), ShapeError, "cannot be read"),
    "map digits": (
        lambda: ops.layout_transform(var(12), lambda i: (i % 6 % 4, i // 4)),
        ShapeError,
        "cannot be read",
    ),
    "map twice": (
        lambda: ops.layout_transform(var(12), lambda i: (i // 4, i % 3)),
        ShapeError,
        "does not make each index once",
    ),
    "map holes": (lambda: ops.layout_transform(var(4), lambda i: (i * 2,)), ShapeError, "each index once"),
    "call_tir": (lambda: graph.call_tir(var(3), [var(3)], TensorStructInfo((3,))), UserError, "written cls.name, not"),
    "call_tir infos": (
        lambda: graph.call_tir(GlobalVar("f"), [var(3)], None),
        UserError,
        "out_sinfo of R.call_tir must be",
    ),
}

CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "attention": ATTENTION, "boxes": BOXES, "loops": LOOPS, "random": RANDOM, "others": OTHERS,
    }.items()
    for name, case in cases.items()
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused(name: str) -> None:
    build, kind, message = CASES[name]
    with pytest.raises(kind, match=message) as caught:
        build()
    assert type(caught.value) is kind


def test_the_calls_of_these_cases_are_right_but_for_one_thing() -> None:
    for build in (_joined, _attention_adjoint, _decoded, _nms, _all_class, _suppressed, _softly, _pooled, _ctc):
        assert build().struct_info is not None


# -- ops of users


def _twice(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: x[i] * 2.0)


def test_ops_of_users_are_looked_at() -> None:
    with pytest.raises(ArgumentError, match=r"precision must be one of .*, got 'half'"):
        register_op("refusals_half", precision="half")
    with pytest.raises(ArgumentError, match="there is an op exp already"):
        register_op("exp")(_twice)
    with pytest.raises(ArgumentError, match="must name its arguments"):
        register_op("refusals_several")(lambda *xs: _twice(xs[0]))
    nothing = register_op("refusals_nothing")(lambda x: x.shape)
    with pytest.raises(UserError, match="must return a tensor expression or a tuple of them"):
        nothing(var(3))
    with pytest.raises(NameNotFound, match="there is no gradient 'refusals'"):
        te_gradient("refusals")


# -- random numbers without a state, and values that only a run shows


@pytest.mark.parametrize("build", [
    lambda x: ops.random.bits(shape=(3,)),
    lambda x: ops.random.permutation(n=3),
    lambda x: ops.nn.dropout(x, rate=0.5),
    lambda x: ops.dropout(x, p=0.5),
])  # fmt: skip
def test_nothing_is_drawn_without_a_state(build: Callable[[Var], Expr]) -> None:
    x, builder = var(3), BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(build(x)))
    with pytest.raises(UserError, match="state"):
        evaluate(builder.get(), "main", [np.ones(3, np.float32)])


@pytest.mark.parametrize("times, labels, targets", [
    ((6, 7), (2, 2), [[1, 2, 0], [3, 1, 9]]),
    ((6, -1), (2, 2), [[1, 2, 0], [3, 1, 9]]),
    ((6, 6), (2, 4), [[1, 2, 0], [3, 1, 1]]),
    ((6, 6), (-1, 2), [[1, 2, 0], [3, 1, 9]]),
    ((6, 6), (2, 3), [[1, 2, 0], [3, 1, 4]]),
    ((6, 6), (2, 3), [[1, 2, 0], [3, 1, -1]]),
    ((6, 6), (2, 3), [[1, 2, 0], [3, 1, 0]]),  # the blank
])  # fmt: skip
def test_lengths_and_labels_are_looked_at(times: Any, labels: Any, targets: Any) -> None:
    params = [Var(n, v.struct_info) for n, v in zip("tab", (_TARGETS, _LENGTHS, _LENGTHS), strict=True)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(ops.nn.ctc_states(*params, sizes=ShapeExpr((6, 4)))))
    module = builder.get()
    right = [np.array([[1, 2, 0], [3, 1, 9]]), np.array([6, 0]), np.array([2, 2])]
    assert evaluate(module, "main", right).shape == (2, 7)
    with pytest.raises(UserError, match="a length is outside its axis, or a label is the blank or no class"):
        evaluate(module, "main", [np.array(targets), np.array(times), np.array(labels)])


@pytest.mark.parametrize("roi", [(-1, 0, 0, 1, 1), (2, 0, 0, 1, 1), (0, 0, 0, 2**22, 1), (0, -(2**22), 0, 1, 1)])
def test_rois_are_looked_at(roi: tuple[int, ...]) -> None:
    rois, builder = var(2, 5), BlockBuilder()
    with builder.function("main", [rois]):
        builder.emit_func_output(builder.emit(ops.vision.roi_batches(rois, 2, 0.5)))
    right = (1, 0, 0, 2**20, 1)
    np.testing.assert_array_equal(evaluate(builder.get(), "main", [np.array([right, right], "float32")]), [1, 1])
    with pytest.raises(UserError, match="roi"):
        evaluate(builder.get(), "main", [np.array([right, roi], "float32")])
