"""SimplifyInference: norms and dropout in simpler ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.relay.expr import Function, Tuple, const
from pullback.relay.expr import call_op as op
from pullback.relay.transform import SimplifyInference
from tests.relay.dataflow import becomes, evaluated, free, inputs, ops_in, ran, same_values, stays, typed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [1, -1, 2])
@pytest.mark.parametrize(("scale", "center"), [(True, True), (False, True), (True, False)])
def test_batch_norm(axis: int, scale: bool, center: bool, dtype: str) -> None:
    shape = (2, 3, 4, 5)
    x = free("x", *shape, dtype=dtype)
    params = [free(n, shape[axis], dtype=dtype) for n in ("gamma", "beta", "mean", "var")]
    gamma, beta, mean, var = params
    before = op("nn.batch_norm", x, *params, axis=axis, epsilon=0.01, scale=scale, center=center)[0]
    by = op("divide", const(1.0, dtype), op("sqrt", op("add", var, const(0.01, dtype))))
    by = op("multiply", by, gamma) if scale else by
    shift = op("multiply", op("negative", mean), by)
    shift = op("add", shift, beta) if center else shift
    behind = 3 - axis % 4
    if behind:
        spread, moved = (op("expand_dims", v, axis=1, num_newaxis=behind) for v in (by, shift))
    else:
        spread, moved = by, shift
    expected = op("add", op("multiply", x, spread), moved)
    function = Function((x, *params), before)
    after = becomes(SimplifyInference(), function, Function((x, *params), expected))
    same_values(function, after, positive=True)


@pytest.mark.parametrize(
    ("name", "shape", "attrs", "channels"),
    [
        ("nn.layer_norm", (2, 3, 6), {"axis": -1}, 6),
        ("nn.layer_norm", (2, 3, 6), {"axis": 1, "epsilon": 0.1}, 3),
        ("nn.layer_norm", (2, 6), {"scale": False}, 6),
        ("nn.layer_norm", (2, 6), {"center": False}, 6),
        ("nn.instance_norm", (2, 3, 6), {}, 3),
        ("nn.instance_norm", (2, 3, 6, 4), {"axis": 3}, 4),
        ("nn.group_norm", (2, 6, 3, 3), {"num_groups": 3}, 6),
        ("nn.group_norm", (2, 6, 3), {"num_groups": 2, "scale": False}, 6),
    ],
)
def test_other_norms(name: str, shape: tuple[int, ...], attrs: dict[str, Any], channels: int) -> None:
    x, gamma, beta = free("x", *shape), free("gamma", channels), free("beta", channels)
    before = Function((x, gamma, beta), op(name, x, gamma, beta, **attrs))
    after = ran(SimplifyInference(), before)
    assert name not in ops_in(after) and {"mean", "variance", "sqrt", "divide"} <= set(ops_in(after))
    same_values(before, after)


def test_layer_norm_in_words() -> None:
    x, gamma, beta = free("x", 2, 3, 4), free("gamma", 3), free("beta", 3)
    mean = op("mean", x, axis=(1,), keepdims=True)
    var = op("variance", x, with_mean=mean, axis=(1,), keepdims=True)
    out = op("divide", op("subtract", x, mean), op("sqrt", op("add", var, const(1e-5))))
    wide = [op("expand_dims", v, axis=1, num_newaxis=1) for v in (gamma, beta)]
    out = op("add", op("multiply", out, wide[0]), wide[1])
    before = Function((x, gamma, beta), op("nn.layer_norm", x, gamma, beta, axis=1))
    becomes(SimplifyInference(), before, Function((x, gamma, beta), out))


def test_l2_normalize() -> None:
    x = free("x", 2, 3, 4)
    before = Function((x,), op("nn.l2_normalize", x, eps=0.5, axis=[1, 2]))
    after = ran(SimplifyInference(), before)
    assert "nn.l2_normalize" not in ops_in(after)
    same_values(before, after)
    [array] = inputs(before)
    length = np.sqrt(np.maximum((array.astype("float64") ** 2).sum((1, 2), keepdims=True), 0.5))
    np.testing.assert_allclose(evaluated(after, [array]), array / length, rtol=1e-5)


def test_dropout_is_its_argument() -> None:
    x = free("x", 2, 3)
    becomes(SimplifyInference(), Function((x,), op("exp", op("nn.dropout", x, rate=0.3))), Function((x,), op("exp", x)))


def test_statistics_that_are_read_keep_the_batch_norm() -> None:
    x, params = free("x", 2, 3), [free(n, 3) for n in "abcd"]
    result = op("nn.batch_norm", x, *params)
    stays(SimplifyInference(), Function((x, *params), Tuple((result[1], result[2]))))


def test_one_norm_read_twice_is_one() -> None:
    x, params = free("x", 2, 3), [free(n, 3) for n in "abcd"]
    result = op("nn.batch_norm", op("exp", x), *params)[0]
    after = ran(SimplifyInference(), Function((x, *params), op("add", result, op("tanh", result))))
    assert ops_in(after).count("sqrt") == 1
    assert after.body.args[0] is after.body.args[1].args[0]


def test_two_norms_in_a_row() -> None:
    x, params = free("x", 2, 3), [free(n, 3) for n in "abcd"]
    inner = op("nn.batch_norm", x, *params)[0]
    function = Function((x, *params), op("nn.batch_norm", inner, *params)[0])
    after = ran(SimplifyInference(), function)
    assert "nn.batch_norm" not in ops_in(after) and typed(after).body.checked_type.shape == (2, 3)
    same_values(function, after, positive=True)
