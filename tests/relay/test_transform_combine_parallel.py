"""CombineParallelConv2D, CombineParallelDense and CombineParallelBatchMatmul."""

from __future__ import annotations

from typing import Any

import pytest

from pullback.relay.expr import Expr, Function, Let, Tuple, Var, const
from pullback.relay.expr import call_op as op
from pullback.relay.transform import CombineParallelBatchMatmul, CombineParallelConv2D, CombineParallelDense
from tests.relay.dataflow import becomes, free, ops_in, ran, same_values, stays

LAYOUTS = {"NCHW": ("OIHW", 1), "NHWC": ("HWIO", 3)}


def conv(x: Expr, w: Expr, channels: int, size: int = 3, **attrs: Any) -> Expr:
    return op("nn.conv2d", x, w, channels=channels, kernel_size=(size, size), padding=(size // 2, size // 2), **attrs)


def image(layout: str, *shape: int) -> Any:
    """A tensor of the shape, which is said in NCHW."""
    return free("x", *(shape[i] for i in ((0, 1, 2, 3) if layout == "NCHW" else (0, 2, 3, 1))))


def filters(layout: str, name: str, *shape: int) -> Any:
    return free(name, *(shape[i] for i in ((0, 1, 2, 3) if layout == "NCHW" else (2, 3, 1, 0))))


def cut(data: Expr, axis: int, start: int, size: int) -> Expr:
    begin, end, ones = [0] * axis + [start], [-1] * axis + [size], [1] * (axis + 1)
    return op("strided_slice", data, begin=begin, end=end, strides=ones, slice_mode="size")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_convolutions(layout: str) -> None:
    kernel, axis = LAYOUTS[layout]
    attrs = {"data_layout": layout, "kernel_layout": kernel}
    x = image(layout, 1, 4, 5, 5)
    weights = [
        filters(layout, f"w{i}", n, 4, size, size) for i, (n, size) in enumerate(((2, 1), (3, 1), (4, 3), (5, 1)))
    ]
    one, two, large, three = (
        conv(x, w, n, s, **attrs) for w, (n, s) in zip(weights, ((2, 1), (3, 1), (4, 3), (5, 1)), strict=True)
    )
    before = Function((x, *weights), Tuple((one, two, large, three)))
    joined = op("concatenate", [weights[0], weights[1], weights[3]], axis=kernel.index("O"))
    all_ = conv(x, joined, 10, 1, **attrs)
    expected = Tuple((cut(all_, axis, 0, 2), cut(all_, axis, 2, 3), large, cut(all_, axis, 5, 5)))
    same_values(before, becomes(CombineParallelConv2D(2), before, Function((x, *weights), expected)))
    stays(CombineParallelConv2D(4), before)


def test_what_follows_convolutions() -> None:
    x, w, v = free("x", 1, 4, 5, 5), free("w", 2, 4, 3, 3), free("v", 3, 4, 3, 3)
    s, t, b = free("s", 2, 1, 1), free("t", 3, 1, 1), free("b", 1)
    first, second = (op("nn.relu", op("multiply", conv(x, f, n), scale)) for f, n, scale in ((w, 2, s), (v, 3, t)))
    before = Function((x, w, v, s, t, b), Tuple((op("add", first, b), op("add", second, b))))
    all_ = conv(x, op("concatenate", [w, v], axis=0), 5)
    all_ = op("nn.relu", op("multiply", all_, op("concatenate", [s, t], axis=0)))
    expected = Tuple((op("add", cut(all_, 1, 0, 2), b), op("add", cut(all_, 1, 2, 3), b)))
    same_values(before, becomes(CombineParallelConv2D(2), before, Function((x, w, v, s, t, b), expected)))


def test_scalars_that_follow_are_not_joined() -> None:
    x, w, v = free("x", 1, 4, 5, 5), free("w", 2, 4, 3, 3), free("v", 3, 4, 3, 3)
    before = Tuple((op("multiply", conv(x, w, 2), const(2.0)), op("multiply", conv(x, v, 3), const(3.0))))
    after = ran(CombineParallelConv2D(2), before)
    assert ops_in(after).count("nn.conv2d") == 1 and ops_in(after).count("multiply") == 2
    same_values(before, after)


def test_one_after_another() -> None:
    x, w = free("x", 1, 4, 5, 5), free("w", 4, 4, 1, 1)
    y = op("concatenate", [conv(x, w, 4, 1), conv(x, w, 4, 1)], axis=1)
    y = cut(y, 1, 0, 4)
    y = op("concatenate", [conv(y, w, 4, 1), conv(y, w, 4, 1)], axis=1)
    after = ran(CombineParallelConv2D(2), Function((x, w), y))
    assert ops_in(after).count("nn.conv2d") == 2
    same_values(Function((x, w), y), after)


@pytest.mark.parametrize(
    ("what", "attrs"),
    [("strides", {"strides": (2, 2)}), ("dilation", {"dilation": (2, 2)}), ("groups", {"groups": 2})],
)
def test_convolutions_that_differ(what: str, attrs: dict[str, Any]) -> None:
    x, w = free("x", 1, 4, 5, 5), free("w", 4, 4, 3, 3)
    v = free("v", 4, 2 if what == "groups" else 4, 3, 3)
    stays(CombineParallelConv2D(2), Tuple((conv(x, w, 4), conv(x, v, 4, **attrs))))


def test_a_weight_that_depends_on_another_branch() -> None:
    x, w = free("x", 2, 4), free("w", 4, 4)
    first = op("nn.dense", x, w)
    second = op("nn.dense", x, op("nn.dense", op("transpose", op("exp", x)), op("transpose", first)))
    for to_batch in (True, False):
        stays(CombineParallelDense(2, to_batch), Function((x, w), op("add", first, second)))


def test_weights_that_are_bound_later() -> None:
    x, w, a, b = free("x", 2, 4), free("w", 4, 4), Var("a"), Var("b")
    body = Let(a, op("nn.dense", x, w), Let(b, op("exp", w), op("add", a, op("nn.dense", x, b))))
    stays(CombineParallelDense(2, False), Function((x, w), body))


@pytest.mark.parametrize("bias", ["row", "matrix", "bias_add"])
def test_dense_to_batch(bias: str) -> None:
    x, w, v, u = free("x", 3, 4), free("w", 5, 4), free("v", 5, 4), free("u", 6, 4)
    shape = (3, 5) if bias == "matrix" else (5,)
    b, c = free("b", *shape), free("c", *shape)
    name = "nn.bias_add" if bias == "bias_add" else "add"
    first, second = op(name, op("nn.dense", x, w), b), op(name, op("nn.dense", x, v), c)
    params = (x, w, v, u, b, c)
    before = Function(params, Tuple((first, second, op("nn.dense", x, u))))
    all_ = op("nn.batch_matmul", op("stack", [x, x], axis=0), op("stack", [w, v], axis=0))
    rows = [b, c] if bias == "matrix" else [op("expand_dims", row, axis=0) for row in (b, c)]
    parts = op("split", op("add", all_, op("stack", rows, axis=0)), indices_or_sections=2, axis=0)
    pieces = [op("squeeze", parts[i], axis=[0]) for i in (0, 1)]
    expected = Function(params, Tuple((*pieces, op("nn.dense", x, u))))
    same_values(before, becomes(CombineParallelDense(2), before, expected))


def test_dense_to_one() -> None:
    x, w, v = free("x", 3, 4), free("w", 5, 4), free("v", 6, 4)
    b, c, s, t = free("b", 5), free("c", 6), free("s", 1), free("t", 1)
    first, second = op("add", op("nn.dense", x, w), b), op("add", op("nn.dense", x, v), c)
    scaled = Tuple((op("nn.relu", op("multiply", first, s)), op("nn.relu", op("multiply", second, t))))
    params = (x, w, v, b, c, s, t)
    before = Function(params, scaled)
    all_ = op("nn.dense", x, op("concatenate", [w, v], axis=0), units=11)
    all_ = op("add", all_, op("concatenate", [b, c], axis=0))
    scale = [op("repeat", each, repeats=n, axis=0) for each, n in ((s, 5), (t, 6))]
    all_ = op("nn.relu", op("multiply", all_, op("concatenate", scale, axis=0)))
    expected = Function(params, Tuple((cut(all_, 1, 0, 5), cut(all_, 1, 5, 6))))
    same_values(before, becomes(CombineParallelDense(2, to_batch=False), before, expected))


def test_batch_matmul() -> None:
    x, w, v = free("x", 2, 3, 4), free("w", 2, 5, 4), free("v", 2, 6, 4)
    before = Function((x, w, v), Tuple((op("nn.batch_matmul", x, w), op("nn.batch_matmul", x, v))))
    all_ = op("nn.batch_matmul", x, op("concatenate", [w, v], axis=1))
    expected = Function((x, w, v), Tuple((cut(all_, 2, 0, 5), cut(all_, 2, 5, 6))))
    same_values(before, becomes(CombineParallelBatchMatmul(2), before, expected))
    stays(CombineParallelBatchMatmul(), before)
