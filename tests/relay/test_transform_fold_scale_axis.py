"""ForwardFoldScaleAxis, BackwardFoldScaleAxis and FoldScaleAxis: exact results, what stays, and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.relay.expr import Call, Expr, Function, If, Let, RefCreate, RefRead, Tuple, Var, const, var
from pullback.relay.expr import call_op as op
from pullback.relay.transform import BackwardFoldScaleAxis, FoldConstant, FoldScaleAxis, ForwardFoldScaleAxis
from pullback.relay.transform.scale_axis import Weight, weight_of
from tests.relay.dataflow import becomes, free, ops_in, ran, same_values, stays, typed

SCALE = np.array([0.5, 2.0, 3.0, 4.0], "float32").reshape(4, 1, 1)


def conv(x: Expr, w: Expr, channels: int = 6, **attrs: Any) -> Expr:
    return op("nn.conv2d", x, w, channels=channels, kernel_size=(3, 3), padding=(1, 1), **attrs)


def expand(scale: Expr, count: int) -> Expr:
    return op("expand_dims", scale, axis=1, num_newaxis=count)


def data() -> Var:
    return free("x", 2, 4, 5, 5)


def test_forward_through_a_sum() -> None:
    x, w, b = data(), free("w", 6, 4, 3, 3), free("b", 4, 1, 1)
    scale = const(SCALE)
    before = Function((x, w, b), conv(op("add", op("multiply", op("nn.relu", x), scale), b), w))
    taken = op("squeeze", scale, axis=(1, 2))
    sum_ = op("add", op("nn.relu", x), op("divide", b, expand(taken, 2)))
    expected = Function((x, w, b), conv(sum_, op("multiply", w, expand(taken, 2))))
    same_values(before, becomes(ForwardFoldScaleAxis(), before, expected))


def test_forward_through_a_relu() -> None:
    x, w = data(), free("w", 6, 4, 3, 3)
    scale = const(SCALE)
    before = Function((x, w), conv(op("nn.relu", op("multiply", scale, x)), w))
    taken = op("squeeze", scale, axis=(1, 2))
    expected = Function((x, w), conv(op("nn.relu", x), op("multiply", w, expand(taken, 2))))
    same_values(before, becomes(ForwardFoldScaleAxis(), before, expected))


def test_forward_to_two_convolutions() -> None:
    x, w, v = data(), free("w", 6, 4, 3, 3), free("v", 6, 4, 3, 3)
    scale = const(SCALE)
    scaled = op("nn.relu", op("multiply", x, scale))
    before = Function((x, w, v), op("add", conv(scaled, w), conv(scaled, v)))
    taken = op("squeeze", scale, axis=(1, 2))
    plain = op("nn.relu", x)
    first, second = (conv(plain, op("multiply", each, expand(taken, 2))) for each in (w, v))
    same_values(before, becomes(ForwardFoldScaleAxis(), before, Function((x, w, v), op("add", first, second))))


def test_forward_depthwise() -> None:
    x, w, s = data(), free("w", 4, 1, 3, 3), free("s", 4, 1, 1)
    before = Function((x, w, s), conv(op("multiply", x, s), w, 4, groups=4))
    weight = op("multiply", w, expand(op("squeeze", s, axis=(1, 2)), 3))
    same_values(before, becomes(ForwardFoldScaleAxis(), before, Function((x, w, s), conv(x, weight, 4, groups=4))))


def test_forward_channels_last() -> None:
    x, w, s = free("x", 2, 5, 5, 4), free("w", 3, 3, 4, 6), free("s", 4)
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    before = Function((x, w, s), conv(op("multiply", x, s), w, **layouts))
    expected = Function((x, w, s), conv(x, op("multiply", w, op("expand_dims", s, axis=1, num_newaxis=1)), **layouts))
    same_values(before, becomes(ForwardFoldScaleAxis(), before, expected))


def test_forward_dense() -> None:
    x, w = free("x", 3, 4), free("w", 5, 4)
    scale = const(SCALE.reshape(4))
    before = Function((x, w), op("nn.dense", op("multiply", op("nn.relu", x), scale), w))
    expected = Function((x, w), op("nn.dense", op("nn.relu", x), op("multiply", w, scale)))
    same_values(before, becomes(ForwardFoldScaleAxis(), before, expected))


def test_forward_one_number() -> None:
    x, w = free("x", 3, 4), free("w", 5, 4)
    before = Function((x, w), op("nn.dense", op("multiply", x, const(3.0)), w))
    scale = op("repeat", op("expand_dims", const(3.0), axis=0, num_newaxis=1), repeats=4, axis=0)
    same_values(
        before, becomes(ForwardFoldScaleAxis(), before, Function((x, w), op("nn.dense", x, op("multiply", w, scale))))
    )


@pytest.mark.parametrize("case", ["negative", "variable", "result", "groups", "rows", "product"])
def test_forward_stays(case: str) -> None:
    x, w, s = data(), free("w", 6, 4, 3, 3), free("s", 4, 1, 1)
    scaled = op("multiply", x, s)
    if case == "negative":  # must be positive to pass a relu
        body = conv(op("nn.relu", op("multiply", x, const(-SCALE))), w)
    elif case == "variable":
        body = conv(op("nn.relu", scaled), w)
    elif case == "result":  # somebody else reads it
        body = Tuple((scaled, conv(scaled, w)))
    elif case == "groups":
        w = free("w", 6, 2, 3, 3)
        body = conv(scaled, w, groups=2)
    elif case == "rows":  # it is no scale of channels
        body = conv(op("multiply", x, const(np.arange(5, dtype="float32").reshape(5, 1))), w)
    else:
        body = conv(op("multiply", x, op("exp", x)), w)
    used = [v for v in (x, w, s) if case in ("variable", "result", "groups") or v is not s]
    stays(ForwardFoldScaleAxis(), Function(tuple(used), body))


def test_backward_through_sum_and_relu() -> None:
    x, w, b = data(), free("w", 6, 4, 3, 3), free("b", 6, 1, 1)
    scale = const(np.arange(1, 7, dtype="float32").reshape(6, 1, 1))
    before = Function((x, w, b), op("multiply", op("nn.relu", op("add", conv(x, w), b)), scale))
    taken = op("squeeze", scale, axis=(1, 2))
    body = op("nn.relu", op("add", conv(x, op("multiply", w, expand(taken, 3))), op("multiply", b, expand(taken, 2))))
    same_values(before, becomes(BackwardFoldScaleAxis(), before, Function((x, w, b), body)))


def test_backward_two_convolutions() -> None:
    x, w, v, s = data(), free("w", 6, 4, 3, 3), free("v", 6, 4, 3, 3), free("s", 6, 1, 1)
    before = Function((x, w, v, s), op("multiply", op("subtract", conv(x, w), conv(x, v)), s))
    taken = op("squeeze", s, axis=(1, 2))
    sides = (conv(x, op("multiply", each, expand(taken, 3))) for each in (w, v))
    same_values(before, becomes(BackwardFoldScaleAxis(), before, Function((x, w, v, s), op("subtract", *sides))))


def test_backward_bias_add() -> None:
    x, w, b = data(), free("w", 6, 4, 3, 3), free("b", 6)
    scale = const(np.arange(1, 7, dtype="float32").reshape(6, 1, 1))
    before = Function((x, w, b), op("multiply", op("nn.relu", op("nn.bias_add", conv(x, w), b)), scale))
    taken = op("squeeze", scale, axis=(1, 2))
    body = op("nn.bias_add", conv(x, op("multiply", w, expand(taken, 3))), op("multiply", b, taken))
    same_values(before, becomes(BackwardFoldScaleAxis(), before, Function((x, w, b), op("nn.relu", body))))


def test_backward_dense_and_chain() -> None:
    x, w, v, s = free("x", 3, 4), free("w", 5, 4), free("v", 2, 5), free("s", 2)
    before = Function((x, w, v, s), op("multiply", op("nn.dense", op("nn.dense", x, w), v), s))
    expected = op("nn.dense", op("nn.dense", x, w), op("multiply", v, op("expand_dims", s, axis=1, num_newaxis=1)))
    same_values(before, becomes(BackwardFoldScaleAxis(), before, Function((x, w, v, s), expected)))


@pytest.mark.parametrize("case", ["negative", "used twice", "variable", "rows"])
def test_backward_stays(case: str) -> None:
    x, w, s = data(), free("w", 6, 4, 3, 3), free("s", 6, 1, 1)
    result = conv(x, w)
    negative = const(-np.arange(1, 7, dtype="float32").reshape(6, 1, 1))
    body = {
        "negative": lambda: op("multiply", op("nn.relu", result), negative),
        "used twice": lambda: op("add", result, op("multiply", result, s)),
        "variable": lambda: op("multiply", op("nn.relu", result), s),
        "rows": lambda: op("multiply", result, free("r", 5, 1)),
    }[case]()
    stays(BackwardFoldScaleAxis(), body)


def test_where_channels_are_in_blocked_layouts() -> None:
    x, w = free("x", 2, 2, 5, 5, 2), free("w", 3, 2, 3, 3, 2, 2)
    found = weight_of(conv(x, w, data_layout="NCHW2c", kernel_layout="OIHW2i2o"))
    assert found == Weight((1, 4), (1, 4), (1, 4), (0, 5), 6)
    scaled = found.scaled(w, free("s", 2, 2), found.inputs, (3, 2, 3, 3, 2, 2))
    assert scaled.args[1].attrs.newshape == (1, 2, 1, 1, 2, 1)
    assert weight_of(conv(x, w, data_layout="NCHW2c", kernel_layout="OIHW")) is None


def test_forward_in_blocks() -> None:
    x, w, s = free("x", 2, 2, 5, 5, 2), free("w", 3, 2, 3, 3, 2, 2), free("s", 2, 1, 1, 2)
    layouts = {"data_layout": "NCHW2c", "kernel_layout": "OIHW2i2o"}
    before = Function((x, w, s), conv(op("multiply", x, s), w, **layouts))
    taken = op("reshape", op("squeeze", s, axis=(1, 2)), newshape=(1, 2, 1, 1, 2, 1))
    expected = Function((x, w, s), conv(x, op("multiply", w, taken), **layouts))
    same_values(before, becomes(ForwardFoldScaleAxis(), before, expected))


def test_backward_in_blocks() -> None:
    x, w, b, s = free("x", 2, 2, 5, 5, 2), free("w", 3, 2, 3, 3, 2, 2), free("b", 3, 1, 1, 2), free("s", 3, 1, 1, 2)
    layouts = {"data_layout": "NCHW2c", "kernel_layout": "OIHW2i2o"}
    before = Function((x, w, b, s), op("multiply", op("add", conv(x, w, **layouts), b), s))
    taken = op("squeeze", s, axis=(1, 2))
    kernel = op("multiply", w, op("reshape", taken, newshape=(3, 1, 1, 1, 1, 2)))
    bias = op("multiply", b, op("reshape", taken, newshape=(1, 3, 1, 1, 2)))
    expected = Function((x, w, b, s), op("add", conv(x, kernel, **layouts), bias))
    same_values(before, becomes(BackwardFoldScaleAxis(), before, expected))


def test_all_of_it() -> None:
    x, w, v = data(), const(np.ones((6, 4, 3, 3), "float32")), const(np.ones((6, 6, 3, 3), "float32"))
    scale = const(np.arange(1, 7, dtype="float32").reshape(6, 1, 1))
    before = Function((x,), conv(op("nn.relu", op("multiply", conv(op("multiply", x, const(SCALE)), w), scale)), v))
    after = ran(FoldScaleAxis(), before)
    assert ops_in(after) == ["nn.conv2d", "nn.relu", "nn.conv2d"]
    same_values(before, after)
    at_two = ran(FoldScaleAxis(), before, opt_level=2)
    assert ops_in(at_two) == ops_in(ran(FoldConstant(), before))


@pytest.mark.parametrize("step", [ForwardFoldScaleAxis, BackwardFoldScaleAxis])
def test_programs_that_are_no_dataflow(step: Any) -> None:
    """Lets, branches, closures and references are left as they are; what is scaled inside them is folded."""
    x, w, s, p = free("x", 3, 4), free("w", 5, 4), free("s", 4), free("p", 3, 4)
    y, f = Var("y"), Var("f")
    body = Let(y, op("multiply", x, s), op("nn.dense", y, w))
    stays(step(), Function((x, w, s), body))
    closure = Function((p,), op("exp", p))
    called = Let(f, closure, op("nn.dense", op("multiply", Call(f, (x,)), op("exp", s)), op("exp", w)))
    flag = var("flag", shape=(), dtype="bool")
    body = If(flag, op("tanh", RefRead(RefCreate(x))), Call(Function((free("q", 3, 4),), x), (x,)))
    stays(step(), Function((x, flag), body))
    after = ran(step(), Function((x, w, s), called))
    same_values(Function((x, w, s), called), after)
    assert ("multiply" in ops_in(after.body.body.args[0])) == (step is BackwardFoldScaleAxis)


def test_long_chains() -> None:
    x, w = free("x", 2, 4), free("w", 4, 4)
    body: Expr = op("multiply", op("nn.dense", x, w), const(2.0))
    for _ in range(600):
        body = op("nn.relu", body)
    deep = typed(Function((x, w), op("multiply", op("nn.dense", body, w), const(SCALE.reshape(4)))))
    for step in (ForwardFoldScaleAxis(), BackwardFoldScaleAxis()):
        assert len(ops_in(ran(step, deep))) > 600
