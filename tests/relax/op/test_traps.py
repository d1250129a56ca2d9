"""The places where such systems went wrong: each has one small example with its exact result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback import te, tir
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, PrimValue, Var, const
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.transform.gradient import Gradient
from pullback.te.interpreter import evaluate as evaluate_te

INF, NAN = float("inf"), float("nan")


def run(f: Callable[..., Expr], *values: Any) -> Any:
    """f of the arrays, by the interpreter."""
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate(values)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(f(*params))
    return evaluate(builder.get(), "main", values)


def gradients(f: Callable[..., Expr], *values: Any) -> list[np.ndarray]:
    """The adjoints of the sum of f with respect to its floating-point arguments."""
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate(values)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(ops.sum(f(*params)))
    floats = [p for p in params if p.dtype.startswith("float")]
    return list(evaluate(Gradient("main", floats)(builder.get()), "main_adjoint", values)[1])


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_maximum_shares_ties() -> None:
    dx, dy = gradients(ops.maximum, array(1, 2, 3), array(1, 5, 0))
    np.testing.assert_array_equal(dx, [0.5, 0, 1])
    np.testing.assert_array_equal(dy, [0.5, 1, 0])


def test_max_shares_ties() -> None:
    (dx,) = gradients(lambda x: ops.max(x, 1), np.array([[1.0, 3, 3], [2, 2, 2]]))
    np.testing.assert_allclose(dx, [[0, 0.5, 0.5], [1 / 3, 1 / 3, 1 / 3]])


@pytest.mark.parametrize("name", ["maximum", "minimum", "power", "add", "divide", "subtract", "multiply", "atan2"])
def test_adjoints_of_broadcast_operands_have_their_shapes(name: str) -> None:
    x, y = np.full((2, 1, 3), 1.5), np.full((4, 1), 0.5)
    dx, dy = gradients(Op.get(name), x, y)
    assert dx.shape == x.shape and dy.shape == y.shape


def test_where_broadcasts_and_keeps_infinities_out() -> None:
    condition = np.array([[True], [False]])
    _, dx, dy = [None, *gradients(ops.where, condition, array(1, 2, 3), np.float64(7) * np.ones(()))]
    np.testing.assert_array_equal(dx, [1, 1, 1])
    np.testing.assert_array_equal(dy, 3)
    (dx,) = gradients(lambda x: ops.where(x > 0.0, ops.log(ops.where(x > 0.0, x, 1.0)), 0.0), array(-1, 0, 2))
    np.testing.assert_array_equal(dx, [0, 0, 0.5])


def test_where_takes_python_numbers_of_the_values_dtype() -> None:
    got = run(lambda c, x: ops.where(c, x, 0.0), np.array([True, False]), np.array([1, 2], np.float16))
    assert got.dtype == np.float16
    np.testing.assert_array_equal(run(lambda c: ops.where(c, 1.0, 2.0), np.array([True, False])), [1, 2])


def test_power_at_zero() -> None:
    x, y = array(0, 0, 0, 0, 2, -2), array(0, 1, 2, -1, 0, 2)
    dx, dy = gradients(ops.power, x, y)
    np.testing.assert_array_equal(dx, [0, 1, 0, -INF, 0, -4])
    np.testing.assert_array_equal(dy[:5], [0, 0, 0, -INF, np.log(2)])
    assert np.isnan(dy[5])


def test_power_with_constant_exponent_has_no_nan_for_negative_base() -> None:
    (dx,) = gradients(lambda x: x**2, array(-3, 0, 3))
    np.testing.assert_array_equal(dx, [-6, 0, 6])


def test_product_with_zeros() -> None:
    (dx,) = gradients(lambda x: ops.prod(x, 1), np.array([[2.0, 0, 3], [0, 0, 5], [1, 2, 3]]))
    np.testing.assert_array_equal(dx, [[0, 6, 0], [0, 0, 0], [6, 3, 2]])


def test_std_of_equal_elements() -> None:
    np.testing.assert_array_equal(gradients(ops.std, array(2, 2, 2))[0], [0, 0, 0])


def test_integer_division_by_zero_and_the_most_negative_number() -> None:
    low = np.iinfo(np.int32).min
    x, y = np.array([7, -7, low, 5], np.int32), np.array([0, 2, -1, -3], np.int32)
    for name, expected in (("floor_divide", [0, -4, low, -2]), ("mod", [0, 1, 0, -1])):
        np.testing.assert_array_equal(run(Op.get(name), x, y), expected)


def test_shift_by_more_than_the_width() -> None:
    x, y = np.array([-5, 5, 1], np.int8), np.array([9, 9, 7], np.int8)
    np.testing.assert_array_equal(run(ops.right_shift, x, y), [-1, 0, 0])
    np.testing.assert_array_equal(run(ops.left_shift, x, y), [0, 0, -128])


def test_full_of_a_tensor_passes_its_adjoint() -> None:
    (dx,) = gradients(lambda x: ops.full((2, 3), x, "float32"), np.array(1.5, np.float64))
    assert dx.dtype == np.float64 and dx == 6
    np.testing.assert_array_equal(run(lambda: ops.full((2,), const(3.0), "int32")), np.array([3, 3]))


def test_one_hot_as_tvm_writes_it() -> None:
    indices = np.array([1, 0])
    expected = np.array([[0, 1, 0], [1, 0, 0]])
    for on, off in ((1.0, 0.0), (tir.const(1, "float32"), tir.const(0, "float32"))):
        got = run(lambda i, on=on, off=off: ops.one_hot(i, PrimValue(on), PrimValue(off), 3, -1), indices)
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, expected)
    assert run(lambda i: ops.one_hot(i, PrimValue(tir.const(1, "int8")), 0, 3), indices).dtype == np.int8


def test_take_with_negative_axis_and_many_indices() -> None:
    x, indices = np.arange(12.0).reshape(3, 4), np.array([[0, -1], [0, 2]])
    np.testing.assert_array_equal(run(lambda x, i: ops.take(x, i, -1), x, indices), np.take(x, indices, -1))
    (dx,) = gradients(lambda x, i: ops.take(x, i, -1), x, indices)
    np.testing.assert_array_equal(dx, [[2, 0, 1, 1]] * 3)


def test_triangles_of_batches() -> None:
    (dx,) = gradients(lambda x: ops.triu(x, 1), np.ones((2, 3, 3)))
    np.testing.assert_array_equal(dx, np.triu(np.ones((2, 3, 3)), 1))


def test_ignored_targets_read_nothing() -> None:
    logs = np.array([[-1.0, NAN], [-2, -3], [INF, -5]])
    targets = np.array([-100, 1, 1])
    assert run(ops.nn.nll_loss, logs, targets) == 4
    (dx,) = gradients(ops.nn.nll_loss, logs, targets)
    np.testing.assert_array_equal(dx, [[0, 0], [0, -0.5], [0, -0.5]])


def test_all_targets_ignored() -> None:
    logs, targets = np.zeros((2, 3)), np.array([-100, -100])
    assert np.isnan(run(ops.nn.cross_entropy, logs, targets))
    np.testing.assert_array_equal(gradients(ops.nn.cross_entropy, logs, targets)[0], np.zeros((2, 3)))


def test_ignore_index_beyond_a_narrow_dtype() -> None:
    assert run(ops.nn.nll_loss, np.array([[-1.0, -2]]), np.array([1], np.uint8)) == 2


def test_cross_entropy_uses_axis_1() -> None:
    logits, targets = np.random.default_rng(0).standard_normal((2, 3, 5)), np.zeros((2, 5), np.int64)
    log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(run(ops.nn.cross_entropy, logits, targets), -log[:, 0].mean())


def test_softmax_of_large_numbers() -> None:
    np.testing.assert_array_equal(run(ops.nn.softmax, array(1e4, 0, -1e4)), [1, 0, 0])
    np.testing.assert_array_equal(run(ops.nn.log_softmax, array(1e4, 0)), [0, -1e4])


def test_argmax_of_nan_and_ties() -> None:
    np.testing.assert_array_equal(run(lambda x: ops.argmax(x, 1), np.array([[1.0, NAN, NAN], [2, 3, 3]])), [1, 1])


def test_split_into_uneven_sections() -> None:
    parts = run(lambda x: ops.split(x, 3), np.arange(7.0))
    assert [list(p) for p in parts] == [[0, 1, 2], [3, 4, 5], [6]]


def test_unused_part_of_a_split_gets_zeros() -> None:
    (dx,) = gradients(lambda x: ops.split(x, 2)[1], np.arange(4.0))
    np.testing.assert_array_equal(dx, [0, 0, 1, 1])


def test_float_to_integer_saturates() -> None:
    got = run(lambda x: x.astype("int8"), array(1e30, -1e30, NAN, -1.7, 127.9, INF))
    np.testing.assert_array_equal(got, [127, -128, 0, -1, 127, 127])
    got = run(lambda x: x.astype("int64"), array(1e30, -INF, 2.0**62))
    np.testing.assert_array_equal(got, [2**63 - 1, -(2**63), 2**62])


def test_adjoint_stops_at_integers() -> None:
    np.testing.assert_array_equal(gradients(lambda x: x.astype("int32").astype("float64"), array(1, 2))[0], [0, 0])


def test_half_precision_sums_accumulate_in_float32() -> None:
    x = np.full(4096, 1.0, np.float16)
    assert run(ops.sum, x) == 4096 and run(ops.mean, x) == 1
    assert run(ops.matmul, x, x) == 4096


@pytest.mark.parametrize("name", ["nn.nll_loss", "nn.cross_entropy"])
def test_check_of_targets_is_a_tensor_expression(name: str) -> None:
    predictions, targets = te.placeholder((3, 4)), te.placeholder((3,), "int32")
    condition = Op.get(name).check(predictions, targets, reduction="mean", ignore_index=7)  # type: ignore[misc]
    assert condition.shape == () and condition.dtype == "bool"
    for values, expected in (([0, 3, 7], True), ([0, 4, 1], False), ([-1, 0, 0], False)):
        feeds = {predictions: np.zeros((3, 4), np.float32), targets: np.array(values, np.int32)}
        assert evaluate_te([condition], feeds)[0] == expected


def test_check_of_indices_is_a_tensor_expression() -> None:
    x, indices = te.placeholder((4,)), te.placeholder((2, 2), "int64")
    check = Op.get("take").check
    assert check(x, indices, axis=0, mode="clip") is None  # type: ignore[misc]
    condition = check(x, indices, axis=None, mode="raise")  # type: ignore[misc]
    for values, expected in (([[0, 3], [-4, 1]], True), ([[0, 4], [0, 0]], False), ([[0, -5], [0, 0]], False)):
        feeds = {x: np.zeros(4, np.float32), indices: np.array(values)}
        assert evaluate_te([condition], feeds)[0] == expected


def test_composites_of_one_argument_twice() -> None:
    """What is derived from the decomposition counts an argument that is given twice once."""
    x = np.array([1.0, -2.0, 0.5])
    (got,) = gradients(lambda x: ops.dot(x, x), x)
    np.testing.assert_allclose(got, 2 * x)
    (got,) = gradients(lambda x: ops.nn.huber_loss(x, x), x)
    np.testing.assert_array_equal(got, np.zeros(3))


def test_weights_of_logits_in_any_way() -> None:
    """pos_weight alone, by position and by name."""
    x, t, w = np.array([0.5, -1.0]), np.array([1.0, 0.5]), np.array([2.0, 3.0])
    expected = run(lambda x, t, w: ops.nn.binary_cross_entropy_with_logits(x, t, 1.0, w), x, t, w)
    for f in (
        lambda x, t, w: ops.nn.binary_cross_entropy_with_logits(x, t, pos_weight=w),
        lambda x, t, w: ops.nn.binary_cross_entropy_with_logits(x, t, None, w),
        lambda x, t, w: ops.nn.binary_cross_entropy_with_logits(predictions=x, targets=t, weight=None, pos_weight=w),
    ):
        assert run(f, x, t, w) == expected
