"""Non-maximum suppression: what its results have to be, whatever the way there; and calls that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import value_info
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo

rng = np.random.default_rng(8)


def run(f: Any, *arrays: np.ndarray, target: str = "llvm") -> list[np.ndarray]:
    params = [Var(f"x{k}", value_info(a)) for k, a in enumerate(arrays)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(f(*params)))
    result = pullback.compile(builder.get(), target).function("main")(*arrays)
    return [r.numpy() for r in (result if isinstance(result, tuple) else [result])]


def overlaps(boxes: np.ndarray) -> np.ndarray:
    """The overlaps of all pairs, of boxes with ordered corners."""
    least, most = np.minimum, np.maximum
    sides = least(boxes[:, None, 2:], boxes[None, :, 2:]) - most(boxes[:, None, :2], boxes[None, :, :2])
    common = np.prod(most(sides, 0), 2)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], 1)
    return common / (area[:, None] + area - common)


def draw(count: int, classes: int = 1) -> np.ndarray:
    """Rows of class, score, and a box."""
    corner, size = rng.uniform(0, 1, (count, 2)), rng.uniform(0.05, 0.3, (count, 2))
    first = rng.integers(0, classes, (count, 1)), rng.uniform(0.01, 1, (count, 1))
    return np.concatenate([*first, corner, corner + size], 1)[None]


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_three_boxes(target: str) -> None:
    """The second covers 9/11 of its union with the first; the third lies apart."""
    data = np.array([[[0, 0.9, 0, 0, 10, 10], [0, 0.8, 0, 1, 10, 11], [0, 0.7, 20, 20, 30, 30]]], "float32")
    count, indices = np.array([3], "int32"), np.array([[7, 8, 9]], "int32")
    for threshold, expected in ((0.81, [7, 9, -1]), (0.82, [7, 8, 9])):
        f = lambda *a, t=threshold: ops.vision.non_max_suppression(*a, iou_threshold=t)  # noqa: E731
        places, kept = run(f, data, count, indices, target=target)
        assert places.tolist() == [expected] and kept.tolist() == [[sum(e > 0 for e in expected)]]


@pytest.mark.parametrize("classes", [1, 3])
def test_what_is_kept_and_what_is_not(classes: int) -> None:
    """Those kept overlap each other less than the threshold; each of the others overlaps one that is better more."""
    data, count = draw(200, classes), np.array([180], "int32")
    indices = np.arange(200, dtype="int32")[None]
    places, kept = run(
        lambda *a: ops.vision.non_max_suppression(*a, iou_threshold=0.3, max_output_size=0), data, count, indices
    )
    chosen, (rows,) = places[0, : kept[0, 0]], data
    covers = (overlaps(rows[:, 2:]) >= 0.3) & (rows[:, :1] == rows[:, 0])
    assert np.all(np.diff(rows[chosen, 1]) < 0) and not np.any(np.triu(covers[np.ix_(chosen, chosen)], 1))
    assert 10 < len(chosen) < 180 and chosen.max() < 180
    for other in set(range(180)) - set(chosen.tolist()):
        assert any(covers[k, other] and rows[k, 1] >= rows[other, 1] for k in chosen)
    one = run(lambda *a: ops.vision.non_max_suppression(*a, iou_threshold=0.3, max_output_size=4), data, count, indices)
    np.testing.assert_array_equal(one[0][0, :5], [*chosen[:4], -1])


def test_scores_of_soft_suppression() -> None:
    """Each is the box's own score, less what those before it that it overlaps took."""
    data, count = draw(60), np.array([60], "int32")
    indices = np.arange(60, dtype="int32")[None]
    result, places, kept = run(
        lambda *a: ops.vision.non_max_suppression(*a, iou_threshold=0.9, soft_nms_sigma=0.2, score_threshold=0.05),
        data, count, indices,
    )  # fmt: skip
    chosen = places[0, : kept[0, 0]]
    squares = np.tril(overlaps(data[0, chosen, 2:]) ** 2, -1)
    np.testing.assert_allclose(result[0, : len(chosen), 1], data[0, chosen, 1] * np.exp(-squares.sum(1) / 0.4))
    np.testing.assert_array_equal(result[0, : len(chosen), 2:], data[0, chosen, 2:])
    assert np.all(result[0, len(chosen) :] == -1) and np.all(np.diff(result[0, : len(chosen), 1]) < 1e-12)


def test_every_class_by_itself() -> None:
    """All classes at once are those of one class after the other."""
    boxes, scores = np.concatenate([draw(40)[:, :, 2:], draw(40)[:, :, 2:]]), rng.uniform(0, 1, (2, 3, 40))
    attrs: dict[str, Any] = {"max_output_boxes_per_class": 5, "iou_threshold": 0.2, "score_threshold": 0.3}
    places, total = run(lambda *a: ops.vision.all_class_non_max_suppression(*a, **attrs), boxes, scores)
    expected = []
    for b, c in np.ndindex(2, 3):
        own = np.concatenate([scores[b, c, :, None] - 0.3, boxes[b]], 1)[None]
        found, kept = run(
            lambda *a: ops.vision.non_max_suppression(*a, 5, 0.2, coord_start=1, score_index=0, id_index=-1),
            own, np.array([40], "int32"), np.arange(40, dtype="int32")[None],
        )  # fmt: skip
        expected += [(b, c, k) for k in found[0, : kept[0, 0]]]
    assert places.shape == (30, 3) and total.tolist() == [len(expected)]
    np.testing.assert_array_equal(places[: len(expected)], expected)
    assert np.all(places[len(expected) :] == -1)
    joined, values, totals = run(
        lambda *a: ops.vision.all_class_non_max_suppression(*a, **attrs, output_format="tensorflow"), boxes, scores
    )
    for b in range(2):
        own = [e for e in expected if e[0] == b]
        assert totals[b] == len(own)
        np.testing.assert_array_equal(joined[b, : len(own)], [e[1:] for e in own])
        np.testing.assert_array_equal(values[b], [*(scores[e] for e in own), *[0] * (120 - len(own))])


def _var(shape: tuple[int, ...], dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


D, N, I, B, P = _var((2, 9, 6)), _var((2,), "int32"), _var((2, 9), "int32"), _var((2, 9, 4)), _var((2, 3, 9))  # noqa: E741
NMS, COUNTS, DECODE = ops.vision.non_max_suppression, ops.vision.get_valid_counts, ops.vision.multibox_transform_loc
ALL = lambda *a, **k: ops.vision.all_class_non_max_suppression(*a, 3, 0.5, 0.1, **k)  # noqa: E731
ERRORS: dict[str, tuple[Any, type[UserError], str]] = {
    "data": (lambda: NMS(B, N, I), ShapeError, "four coordinates from 2 on are outside of rows of 4 numbers"),
    "rank": (lambda: NMS(_var((9, 6)), N, I), ShapeError, r"data must have the shape \(B, A, E\)"),
    "integers": (lambda: NMS(_var((2, 9, 6), "int32"), N, I), DTypeError, "data must have a floating-point dtype"),
    "score": (lambda: NMS(D, N, I, score_index=6), ShapeError, "score_index 6 is outside of rows of 6 numbers"),
    "class": (lambda: NMS(D, N, I, id_index=-2), ShapeError, "id_index -2 is outside of rows of 6 numbers"),
    "counts": (
        lambda: NMS(D, _var((3,), "int32"), I),
        ShapeError,
        r"valid_count must have the shape \(2,\), got \(3,\)",
    ),
    "indices": (lambda: NMS(D, N, N), ShapeError, r"indices must have the shape \(2, 9\), got \(2,\)"),
    "float counts": (lambda: NMS(D, _var((2,)), I), DTypeError, "valid_count must have an integer dtype, got float32"),
    "sigma": (lambda: NMS(D, N, I, soft_nms_sigma=-1.0), UserError, "soft_nms_sigma cannot be negative, got -1.0"),
    "top_k": (lambda: NMS(D, N, I, top_k=2.5), UserError, "top_k must be an int, got 2.5"),
    "valid": (lambda: COUNTS(D, score_index=-1), ShapeError, "score_index -1 is outside of rows of 6 numbers"),
    "boxes": (lambda: ALL(D, P), ShapeError, r"boxes must have the shape \(B, A, 4\), got \(2, 9, 6\)"),
    "scores": (lambda: ALL(B, _var((2, 3, 8))), ShapeError, r"scores must have the shape \(2, classes, 9\), got"),
    "format": (
        lambda: ALL(B, P, output_format="tflite"),
        UserError,
        "output_format must be one of 'onnx', 'tensorflow'",
    ),
    "loc_pred": (
        lambda: DECODE(P, _var((2, 9)), _var((1, 9, 4))),
        ShapeError,
        r"loc_pred must have the shape \(2, 36\)",
    ),
    "anchor": (lambda: DECODE(P, _var((2, 36)), B), ShapeError, r"anchor must have the shape \(1, 9, 4\), got"),
    "variances": (
        lambda: DECODE(P, _var((2, 36)), _var((1, 9, 4)), variances=(1.0,)),
        UserError,
        r"variances must be four numbers, got \(1.0,\)",
    ),
    "suppress": (lambda: ops.vision.suppress(D, I, I), ShapeError, r"boxes must have the shape \(rows, boxes, 4\)"),
    "candidates": (lambda: ops.vision.suppress(B, I, I), DTypeError, "candidates must have a bool dtype, got int32"),
    "soft": (
        lambda: ops.vision.soft_suppress(B, _var((2, 9)), I, _var((2, 9), "bool"), sigma=0.0),
        UserError,
        "sigma must be positive, got 0.0",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    make, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        make()
