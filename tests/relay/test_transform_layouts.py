"""AlterOpLayout and ConvertLayout: what is transformed, what follows, and that values stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, UserError
from pullback.relay.expr import Expr, Function, If, Let, Tuple, TupleGetItem, Var, const, var
from pullback.relay.expr import call_op as op
from pullback.relay.op import get
from pullback.relay.transform import AlterOpLayout, CanonicalizeOps, ConvertLayout, Sequential
from pullback.relay.transform.layouts import expanded, last, parts, primal
from tests.relay.dataflow import becomes, free, ops_in, ran, same_values, stays

NHWC = ConvertLayout({"nn.conv2d": ["NHWC", "default"]})
X, W, V = free("x", 1, 4, 6, 6), free("w", 8, 4, 3, 3), free("v", 8, 8, 3, 3)


def conv(x: Expr, w: Expr, channels: int = 8, **attrs: Any) -> Expr:
    return op("nn.conv2d", x, w, channels=channels, kernel_size=(3, 3), padding=(1, 1), **attrs)


def last_conv(x: Expr, w: Expr, channels: int = 8, **attrs: Any) -> Expr:
    return conv(x, w, channels, **{"data_layout": "NHWC", "kernel_layout": "HWIO"} | attrs)


def move(x: Expr, source: str, target: str) -> Expr:
    return op("layout_transform", x, source, target)


def to_last(x: Expr) -> Expr:
    return move(x, "NCHW", "NHWC")


def to_first(x: Expr) -> Expr:
    return move(x, "NHWC", "NCHW")


def weight(w: Expr) -> Expr:
    return move(w, "OIHW", "HWIO")


def test_one_convolution() -> None:
    before = Function((X, W), op("nn.relu", conv(X, W)))
    expected = to_first(op("nn.relu", last_conv(to_last(X), weight(W))))
    same_values(before, becomes(NHWC, before, Function((X, W), expected)))


def test_bias_and_pool() -> None:
    b = free("b", 8)
    y = op("nn.relu", op("nn.bias_add", conv(X, W), b))
    before = Function((X, W, b), op("nn.batch_flatten", op("cast", op("nn.max_pool2d", y, pool_size=(2, 2)), "int32")))
    wide = op("expand_dims", b, axis=1, num_newaxis=2)  # by CanonicalizeOps
    wide = move(op("expand_dims", wide, axis=0, num_newaxis=1), "NCHW", "NHWC")
    y = op("nn.relu", op("add", last_conv(to_last(X), weight(W)), wide))
    y = to_first(op("cast", op("nn.max_pool2d", y, pool_size=(2, 2), layout="NHWC"), "int32"))
    expected = Function((X, W, b), op("nn.batch_flatten", y))
    same_values(before, becomes(Sequential([CanonicalizeOps(), NHWC]), before, expected))
    alone = ran(Sequential([NHWC]), before)  # what it requires runs before it in a sequence
    assert "nn.bias_add" not in ops_in(alone)


def test_a_bias_add_of_its_own() -> None:
    b = free("b", 8)
    before = Function((X, W, b), op("nn.bias_add", conv(X, W), b))
    y = op("nn.bias_add", last_conv(to_last(X), weight(W)), b, axis=3)
    same_values(before, becomes(NHWC, before, Function((X, W, b), to_first(y))))


def test_vectors_get_axes_in_front() -> None:
    c = free("c", 1, 6, 6, 4)
    w, b = free("w", 3, 3, 4, 8), free("b", 8)
    before = Function((c, w, b), op("add", last_conv(c, w), b))
    wide = to_first(op("expand_dims", b, axis=0, num_newaxis=3))
    y = op("add", conv(to_first(c), move(w, "HWIO", "OIHW")), wide)
    step = ConvertLayout({"nn.conv2d": ["NCHW", "default"]})
    same_values(before, becomes(step, before, Function((c, w, b), to_last(y))))


def test_scalars_stay() -> None:
    before = Function((X, W), op("add", const(2.0), op("multiply", conv(X, W), const(3.0))))
    y = op("add", const(2.0), op("multiply", last_conv(to_last(X), weight(W)), const(3.0)))
    same_values(before, becomes(NHWC, before, Function((X, W), to_first(y))))


def test_convolutions_in_a_row_and_a_residual() -> None:
    y = op("nn.relu", conv(X, W))
    before = Function((X, W, V), op("add", conv(y, V), y))
    y = op("nn.relu", last_conv(to_last(X), weight(W)))
    expected = to_first(op("add", last_conv(y, weight(V)), y))
    same_values(before, becomes(NHWC, before, Function((X, W, V), expected)))


def test_an_input_is_transformed_once() -> None:
    before = Function((X, W), op("add", conv(X, W), op("nn.relu", conv(X, W))))
    after = ran(NHWC, before)
    assert ops_in(after).count("layout_transform") == 3
    same_values(before, after)


SHAPE = (1, 8, 6, 6)
FOLLOWERS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Expr], Expr], str]] = {
    "mean": (
        lambda y: op("mean", y, axis=(2, 3), keepdims=True),
        lambda y: op("mean", y, axis=(1, 2), keepdims=True),
        "NHWC",
    ),
    "sum of all but": (
        lambda y: op("sum", y, axis=1, exclude=True),
        lambda y: op("sum", y, axis=(0, 1, 2)),
        "C",
    ),
    "max": (lambda y: op("max", y, axis=0), lambda y: op("max", y, axis=0), "HWC"),
    "concatenate": (
        lambda y: op("concatenate", [y, op("exp", y)], axis=1),
        lambda y: op("concatenate", [y, op("exp", y)], axis=3),
        "NHWC",
    ),
    "pad": (
        lambda y: op("nn.pad", y, pad_width=((0, 0), (1, 2), (3, 4), (5, 6))),
        lambda y: op("nn.pad", y, pad_width=((0, 0), (3, 4), (5, 6), (1, 2))),
        "NHWC",
    ),
    "strided_slice": (
        lambda y: op("strided_slice", y, begin=[0, 2], end=[1, 5], strides=[1, 1]),
        lambda y: op("strided_slice", y, begin=[0, 0, 0, 2], end=[1, 6, 6, 5], strides=[1, 1, 1, 1]),
        "NHWC",
    ),
    "strided_slice by sizes": (
        lambda y: op("strided_slice", y, begin=[0, 2], end=[-1, 5], slice_mode="size"),
        lambda y: op(
            "strided_slice", y, begin=[0, 0, 0, 2], end=[-1, -1, -1, 5], strides=[1, 1, 1, 1], slice_mode="size"
        ),
        "NHWC",
    ),
    "strided_slice along axes": (
        lambda y: op("strided_slice", y, begin=[2], end=[5], strides=[1], axes=[1]),
        lambda y: op("strided_slice", y, begin=[2], end=[5], strides=[1], axes=[3]),
        "NHWC",
    ),
    "layer_norm": (
        lambda y: op("nn.layer_norm", y, free("gamma", 8), free("beta", 8), axis=1),
        lambda y: op("nn.layer_norm", y, free("gamma", 8), free("beta", 8), axis=3),
        "NHWC",
    ),
    "instance_norm": (
        lambda y: op("nn.instance_norm", y, free("gamma", 8), free("beta", 8)),
        lambda y: op("nn.instance_norm", y, free("gamma", 8), free("beta", 8), axis=3),
        "NHWC",
    ),
    "softmax": (lambda y: op("nn.softmax", y, axis=1), lambda y: op("nn.softmax", y, axis=3), "NHWC"),
    "global pool": (
        lambda y: op("nn.global_avg_pool2d", y),
        lambda y: op("nn.global_avg_pool2d", y, layout="NHWC"),
        "NHWC",
    ),
    "dropout": (lambda y: op("nn.dropout", y), lambda y: op("nn.dropout", y), "NHWC"),
    "prelu": (
        lambda y: op("nn.prelu", y, free("alpha", 8)),
        lambda y: op("nn.prelu", y, free("alpha", 8), axis=3),
        "NHWC",
    ),
}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows(name: str) -> None:
    first, after, layout = FOLLOWERS[name]
    old = "".join(letter for letter in "NCHW" if letter in layout)
    before = first(conv(X, W))
    y = after(last_conv(to_last(X), weight(W)))
    expected = y if layout == old else move(y, layout, old)
    same_values(before, becomes(NHWC, before, expected))


def test_a_transpose_takes_the_axes_from_where_they_are() -> None:
    before = Function((X, W), op("transpose", conv(X, W), axes=(0, 2, 3, 1)))
    expected = op("transpose", last_conv(to_last(X), weight(W)), axes=(0, 1, 2, 3))
    same_values(before, becomes(NHWC, before, Function((X, W), expected)))


def test_squeeze() -> None:
    before = Function((X, W), op("squeeze", op("mean", conv(X, W), axis=2, keepdims=True), axis=[0, 2]))
    y = op("mean", last_conv(to_last(X), weight(W)), axis=(1,), keepdims=True)
    expected = move(op("squeeze", y, axis=(0, 1)), "WC", "CW")
    same_values(before, becomes(NHWC, before, Function((X, W), expected)))


def test_batch_norm_and_items_of_tuples() -> None:
    params = [free(n, 8) for n in ("gamma", "beta", "mean", "var")]
    norm = op("nn.batch_norm", conv(X, W), *params)[0]
    parted = op("split", op("nn.relu", norm), indices_or_sections=2, axis=1)
    function = Function((X, W, *params), TupleGetItem(Tuple((op("add", parted[0], parted[1]),)), 0))
    after = ran(NHWC, function)
    assert ops_in(after)[2:] == ["nn.conv2d", "nn.batch_norm", "nn.relu", "split", "add", "layout_transform"]
    same_values(function, after, positive=True)


def test_ops_that_know_no_layouts_get_the_old_one() -> None:
    y = conv(X, W)
    before = Function((X, W), op("add", op("reshape", y, newshape=(8, 36)), const(1.0)))
    expected = op("reshape", to_first(last_conv(to_last(X), weight(W))), newshape=(8, 36))
    same_values(before, becomes(NHWC, before, Function((X, W), op("add", expected, const(1.0)))))


def test_two_results_and_a_tuple() -> None:
    y = conv(X, W)
    before = Function((X, W), Tuple((y, op("nn.relu", y), op("reshape", y, newshape=(-1,)))))
    after = ran(NHWC, before)
    assert ops_in(after).count("layout_transform") == 4
    same_values(before, after)


def test_depthwise_and_kinds_of_convolutions() -> None:
    w = free("w", 4, 1, 3, 3)
    before = Function((X, w), conv(X, w, 4, groups=4))
    y = last_conv(to_last(X), move(w, "OIHW", "HWOI"), 4, groups=4, kernel_layout="HWOI")
    same_values(before, becomes(NHWC, before, Function((X, w), to_first(y))))
    x, u = free("x", 2, 3, 7), free("u", 4, 3, 3)
    line = Function((x, u), op("nn.conv1d", x, u, channels=4, kernel_size=(3,)))
    after = ran(ConvertLayout({"nn.conv1d": ["NWC", "default"]}), line)
    assert after.body.args[0].attrs.data_layout == "NWC" and after.body.args[0].attrs.kernel_layout == "WIO"
    same_values(line, after)


def test_pools_by_themselves() -> None:
    before = Function((X,), op("nn.relu", op("nn.max_pool2d", X, pool_size=(2, 2))))
    y = op("nn.relu", op("nn.max_pool2d", to_last(X), pool_size=(2, 2), layout="NHWC", out_layout="NHWC"))
    step = ConvertLayout({"nn.max_pool2d": ["NHWC"]})
    same_values(before, becomes(step, before, Function((X,), to_first(y))))


def test_programs_that_are_no_dataflow() -> None:
    t, c = Var("t"), var("c", shape=(), dtype="bool")
    before = Function((X, W, c), Let(t, conv(X, W), If(c, op("nn.relu", conv(X, W)), t)))
    after = ran(NHWC, before)
    assert ops_in(after).count("nn.conv2d") == 2
    arrays = [np.random.default_rng(0).normal(size=s).astype("float32") for s in ((1, 4, 6, 6), (8, 4, 3, 3))]
    from tests.relay.dataflow import evaluated, typed

    for flag in (True, False):
        values = [evaluated(f, [*arrays, np.array(flag)]) for f in (typed(before), after)]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("desired", "error", "message"),
    [
        ({"nn.conv2d": ["CHWN", "default"]}, ArgumentError, "Layout CHWN is not yet supported"),
        ({"nn.conv2d": ["NHWC"]}, ArgumentError, "two layouts are wanted"),
        ({"nn.relu": ["NHWC"]}, UserError, r"nn\.relu cannot be converted"),
        (["nn.conv2d"], ArgumentError, "desired_layouts must be a mapping"),
    ],
)
def test_refusals(desired: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        ran(ConvertLayout(desired), op("nn.relu", conv(X, W)))


@pytest.fixture
def rules() -> Iterator[Any]:
    changed = []

    def put(name: str, rule: Any) -> None:
        get(name).set_attr("FTVMAlterOpLayout", rule)
        changed.append(name)

    yield put
    for name in changed:
        get(name).reset_attr("FTVMAlterOpLayout")


def test_alter_op(rules: Any) -> None:
    def rule(attrs: Any, inputs: list[Expr], types: Any, out_type: Any) -> Expr:
        assert types[0].shape == (1, 4, 6, 6) and out_type.shape == (1, 8, 6, 6)
        return op("nn.conv2d", inputs[0], op("multiply", inputs[1], const(2.0)), **attrs)

    rules("nn.conv2d", rule)
    before = Function((X, W), op("nn.relu", conv(X, W)))
    becomes(AlterOpLayout(), before, Function((X, W), op("nn.relu", conv(X, op("multiply", W, const(2.0))))))


def test_alter_op_layout(rules: Any) -> None:
    rules("nn.conv2d", lambda attrs, inputs, *types: last_conv(*inputs))
    before = Function((X, W), op("nn.max_pool2d", op("nn.relu", conv(X, W)), pool_size=(2, 2)))
    y = op("nn.max_pool2d", op("nn.relu", last_conv(to_last(X), weight(W))), pool_size=(2, 2), layout="NHWC")
    same_values(before, becomes(AlterOpLayout(), before, Function((X, W), to_first(y))))


def test_alter_to_blocks(rules: Any) -> None:
    def rule(attrs: Any, inputs: list[Expr], *types: Any) -> Expr:
        return op("nn.conv2d", *inputs, **{**attrs, "data_layout": "NCHW4c"})

    rules("nn.conv2d", rule)
    b = free("b", 8)
    pooled = op("nn.max_pool2d", op("nn.relu", op("nn.bias_add", conv(X, W), b)), pool_size=(2, 2))
    before = Function((X, W, b), op("nn.global_avg_pool2d", pooled))
    wide = op("expand_dims", op("expand_dims", b, axis=1, num_newaxis=2), axis=0, num_newaxis=1)
    y = conv(move(X, "NCHW", "NCHW4c"), W, data_layout="NCHW4c")
    y = op("nn.relu", op("add", y, move(wide, "NCHW", "NCHW4c")))
    y = op("nn.global_avg_pool2d", op("nn.max_pool2d", y, pool_size=(2, 2), layout="NCHW4c"), layout="NCHW4c")
    after = becomes(
        Sequential([CanonicalizeOps(), AlterOpLayout()]), before, Function((X, W, b), move(y, "NCHW4c", "NCHW"))
    )
    same_values(before, after)


@pytest.mark.parametrize(
    ("first", "last", "layout"),
    [
        (
            lambda y: op("sum", y, axis=1, keepdims=True),
            lambda y: op("sum", y, axis=(1, 4), keepdims=True),
            ("NCHW1c", "NCHW"),
        ),
        (lambda y: op("max", y, axis=(2, 3)), lambda y: op("max", y, axis=(2, 3)), ("NC4c", "NC")),
        (
            lambda y: op("nn.pad", y, pad_width=((0, 0), (4, 0), (1, 1), (2, 0))),
            lambda y: op("nn.pad", y, pad_width=((0, 0), (1, 0), (1, 1), (2, 0), (0, 0))),
            ("NCHW4c", "NCHW"),
        ),
        (
            lambda y: op("concatenate", [y, op("nn.relu", y)], axis=1),
            lambda y: op("concatenate", [y, op("nn.relu", y)], axis=1),
            ("NCHW4c", "NCHW"),
        ),
    ],
)
def test_what_follows_blocks(first: Any, last: Any, layout: tuple[str, str], rules: Any) -> None:
    rules("nn.conv2d", lambda attrs, inputs, *types: op("nn.conv2d", *inputs, **{**attrs, "data_layout": "NCHW4c"}))
    before = Function((X, W), first(conv(X, W)))
    y = last(conv(move(X, "NCHW", "NCHW4c"), W, data_layout="NCHW4c"))
    same_values(before, becomes(AlterOpLayout(), before, Function((X, W), move(y, *layout))))


@pytest.mark.parametrize(
    "follower",
    [
        lambda y: op("nn.pad", y, pad_width=((0, 0), (1, 0), (0, 0), (0, 0))),
        lambda y: op("split", y, indices_or_sections=2, axis=1)[0],
        lambda y: op("transpose", y),
        lambda y: op("nn.softmax", y, axis=1),
    ],
)
def test_what_cannot_follow_blocks(follower: Any, rules: Any) -> None:
    rules("nn.conv2d", lambda attrs, inputs, *types: op("nn.conv2d", *inputs, **{**attrs, "data_layout": "NCHW4c"}))
    before = Function((X, W), follower(conv(X, W)))
    y = move(conv(move(X, "NCHW", "NCHW4c"), W, data_layout="NCHW4c"), "NCHW4c", "NCHW")
    same_values(before, becomes(AlterOpLayout(), before, Function((X, W), follower(y))))


def test_alter_op_that_leaves_or_errs(rules: Any) -> None:
    stays(AlterOpLayout(), op("nn.relu", conv(X, W)))
    rules("nn.conv2d", lambda *given: None)
    stays(AlterOpLayout(), op("nn.relu", conv(X, W)))
    rules("nn.conv2d", lambda attrs, inputs, *types: inputs[0])
    with pytest.raises(UserError, match="can only be altered to another call"):
        ran(AlterOpLayout(), conv(X, W))


def test_words_of_layouts() -> None:
    assert parts("NCHW16c") == ["N", "C", "H", "W", "16c"]
    assert (primal("OIHW4i4o"), last("NCHW16c", 2), expanded("C", "NCHW")) == ("OIHW", "W16c", "NHWC")
