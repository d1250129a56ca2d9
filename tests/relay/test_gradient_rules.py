"""The gradient of every operator with a rule, against differences in float64, in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from pullback.relay.expr import Call, Function, Tuple, call_op, const, var
from pullback.relay.op import get
from pullback.relay.op.gradients import RULES
from pullback.relay.visitor import post_order
from tests.relay.differences import apart, between, check_gradient, indices, normal, program

# (operator, arguments, attributes): a list among the arguments is a tuple.
SAMPLES: list[tuple[str, list[Any], dict[str, Any]]] = [
    *((name, [normal(2, 3)], {}) for name in (
        "cos", "cosh", "sin", "sinh", "asinh", "atan", "exp", "sigmoid", "tanh", "erf", "negative", "copy",
        "zeros_like", "ones_like",
    )),
    *((name, [apart(2, 3)], {}) for name in ("abs", "nn.relu")),
    *((name, [between(0.5, 2, 2, 3)], {}) for name in ("log", "log2", "log10", "sqrt")),
    *((name, [between(-0.8, 0.8, 2, 3)], {}) for name in ("tan", "acos", "asin", "atanh")),
    ("acosh", [between(1.2, 3, 2, 3)], {}),
    ("clip", [apart(3, 4)], {"a_min": -1.0, "a_max": 0.9}),
    *((name, [normal(2, 3), between(0.5, 2, 2, 3)], {}) for name in ("add", "subtract", "multiply", "divide")),
    *((name, [normal(2, 1, 3), between(0.5, 2, 4, 1)], {}) for name in ("add", "subtract", "multiply", "divide")),
    ("divide", [normal(), between(0.5, 2, 2, 3)], {}),
    *((name, [apart(2, 3, 4)], attrs) for name in ("max", "sum", "mean", "variance") for attrs in (
        {}, {"axis": 1}, {"axis": (0, -1)}, {"axis": (0, 2), "keepdims": True}, {"axis": 1, "exclude": True},
    )),
    ("variance", [normal(3, 4)], {"axis": 0, "unbiased": True}),
    ("variance", [normal(3, 4), normal(3, 1)], {"axis": 1}),
    ("cast", [normal(2, 3)], {"dtype": "float32"}),
    ("cast_like", [normal(2, 3), normal(1)], {}),
    ("reshape", [normal(2, 6)], {"newshape": (3, -1)}),
    ("reshape_like", [normal(2, 6), normal(4, 3)], {}),
    ("contrib_reverse_reshape", [normal(2, 6)], {"newshape": (-1, 4)}),
    ("transpose", [normal(2, 3, 4)], {}),
    ("transpose", [normal(2, 3, 4)], {"axes": (1, 2, 0)}),
    ("transpose", [normal(2, 3, 4)], {"axes": (0, -1, 1)}),
    ("squeeze", [normal(2, 1, 3, 1)], {}),
    ("squeeze", [normal(2, 1, 3, 1)], {"axis": [1]}),
    ("expand_dims", [normal(2, 3)], {"axis": 1, "num_newaxis": 2}),
    ("expand_dims", [normal(2, 3)], {"axis": -1}),
    ("concatenate", [[normal(2, 3), normal(2, 1), normal(2, 4)]], {"axis": 1}),
    ("concatenate", [[normal(2, 3), normal(1, 3)]], {"axis": -2}),
    ("concatenate", [[normal(2, 3)]], {}),
    ("stack", [[normal(2, 3), normal(2, 3), normal(2, 3)]], {"axis": 1}),
    ("stack", [[normal(2, 3)]], {"axis": -1}),
    ("strided_slice", [normal(4, 5)], {"begin": (1, 0), "end": (3, 5), "strides": (1, 2)}),
    ("strided_slice", [normal(4, 5)], {"begin": (3,), "end": (0,), "strides": (-1,)}),
    ("strided_slice", [normal(4, 5)], {"begin": (1, 2), "end": (2, -1), "slice_mode": "size"}),
    ("strided_slice", [normal(4, 5)], {"begin": (1,), "end": (4,), "axes": (1,)}),
    ("where", [indices(2, 2, 3).astype(bool), normal(2, 3), normal(2, 3)], {}),
    ("where", [indices(2, 2, 1).astype(bool), normal(2, 3), normal(1)], {}),
    ("take", [normal(4, 3), indices(4, 5)], {"axis": 0}),
    ("take", [normal(4, 3), indices(12, 2, 2)], {}),
    ("gather_nd", [normal(4, 3, 2), indices(3, 2, 5)], {}),
    ("one_hot", [indices(4, 3), normal(), normal()], {"depth": 4, "axis": -1, "dtype": "float64"}),
    ("collapse_sum_like", [normal(4, 2, 3), normal(2, 1)], {}),
    ("collapse_sum_to", [normal(4, 2, 3)], {"shape": (2, 1)}),
    ("nn.max_pool2d", [apart(1, 2, 5, 6)], {"pool_size": (2, 3), "strides": (2, 1), "padding": (1, 1)}),
    ("nn.max_pool2d", [apart(1, 5, 5, 2)], {"pool_size": (2, 2), "strides": (2, 2), "layout": "NHWC"}),
    ("nn.avg_pool2d", [normal(1, 2, 5, 6)], {"pool_size": (2, 3), "strides": (2, 1), "padding": (1, 1)}),
    ("nn.avg_pool2d", [normal(1, 2, 4, 4)], {"pool_size": (3, 3), "padding": (1, 1), "count_include_pad": True}),
    ("nn.global_avg_pool2d", [normal(2, 3, 2, 4)], {}),
    ("nn.global_avg_pool2d", [normal(2, 2, 4, 3)], {"layout": "NHWC"}),
    ("nn.conv2d", [normal(2, 3, 5, 6), normal(4, 3, 3, 2)], {"kernel_size": (3, 2), "channels": 4}),
    ("nn.conv2d", [normal(1, 4, 6, 5), normal(6, 2, 3, 3)],
     {"kernel_size": (3, 3), "channels": 6, "groups": 2, "strides": (2, 1), "padding": (1, 0, 2, 1)}),
    ("nn.conv2d", [normal(1, 2, 7, 7), normal(3, 2, 2, 2)],
     {"kernel_size": (2, 2), "channels": 3, "dilation": (2, 3)}),
    ("nn.conv2d", [normal(1, 5, 5, 2), normal(3, 3, 2, 3)],
     {"kernel_size": (3, 3), "channels": 3, "data_layout": "NHWC", "kernel_layout": "HWIO"}),
    ("nn.softmax", [normal(2, 3)], {}),
    ("nn.softmax", [normal(2, 3, 2)], {"axis": 1}),
    ("nn.log_softmax", [normal(2, 3)], {}),
    ("nn.bias_add", [normal(2, 3, 4), normal(3)], {}),
    ("nn.bias_add", [normal(2, 3, 4), normal(4)], {"axis": -1}),
    ("nn.dense", [normal(2, 3), normal(4, 3)], {}),
    ("nn.dense", [normal(2, 2, 3), normal(4, 3)], {"units": 4}),
    *(("nn.matmul", [normal(*((3, 2) if a else (2, 3))), normal(*((4, 3) if b else (3, 4)))],
       {"transpose_a": a, "transpose_b": b}) for a in (False, True) for b in (False, True)),
    *(("nn.batch_matmul", [normal(*((2, 3, 2) if a else (2, 2, 3))), normal(*((2, 4, 3) if b else (2, 3, 4)))],
       {"transpose_a": a, "transpose_b": b}) for a in (False, True) for b in (False, True)),
    ("nn.batch_matmul", [normal(2, 2, 3), normal(1, 4, 3)], {}),
    ("nn.batch_flatten", [normal(2, 3, 4)], {}),
    ("nn.cross_entropy", [between(0.1, 0.9, 3, 4), between(0.1, 0.9, 3, 4)], {}),
    ("nn.cross_entropy_with_logits", [normal(3, 4), between(0.1, 0.9, 3, 4)], {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "attrs"), SAMPLES, ids=[f"{k}-{name}" for k, (name, _, _) in enumerate(SAMPLES)]
)
def test_the_rule_is_the_derivative(name: str, args: list[Any], attrs: dict[str, Any]) -> None:
    function, values = program(name, args, attrs)
    coarse = attrs.get("dtype") == "float32"  # the sum is taken in float32 then
    check_gradient(function, values, step=1e-2 if coarse else 1e-5, atol=1e-3 if coarse else 1e-7)


CONSTANT = ["less_equal", "not_equal"]


@pytest.mark.parametrize("name", CONSTANT)
def test_what_does_not_move_has_no_adjoint(name: str) -> None:
    x, y = var("x", shape=(3,), dtype="float64"), var("y", shape=(3,), dtype="float64")
    function = Function((x, y), call_op("cast", call_op(name, x, y), dtype="float64") + x)
    check_gradient(function, [apart(3), apart(3) + 0.1])


DYNAMIC: dict[str, Any] = {
    "dyn.reshape": lambda x: call_op("reshape", x, call_op("shape_of", call_op("transpose", x))),
    "dyn.expand_dims": lambda x: call_op("dyn.expand_dims", x, call_op("argmax", x) * const(0, "int32")),
    "dyn.squeeze": lambda x: call_op("dyn.squeeze", call_op("expand_dims", x, axis=0), zero_of(x)),
    "dyn.broadcast_to": lambda x: call_op("broadcast_to", x, call_op("concatenate", Tuple((zero_of(x), sizes(x))))
                                          + const([4, 0, 0], "int32")),
    "dyn.collapse_sum_to": lambda x: call_op("collapse_sum_to", call_op("stack", Tuple((x, x, x))), sizes(x)),
    "dyn.full": lambda x: call_op("full", call_op("sum", x * x), sizes(x)),
    "dyn.ones": lambda x: call_op("ones", sizes(x), dtype="float64") * x,
    "dyn.zeros": lambda x: call_op("zeros", sizes(x), dtype="float64") + x * x,
    "shape_of": lambda x: x * call_op("cast", call_op("sum", sizes(x)), dtype="float64"),
    "dyn.arange": lambda x: call_op("sum", call_op("arange", call_op("min", x), call_op("max", x),
                                                   call_op("mean", x * x), dtype="float64")),
}  # fmt: skip


def sizes(x: Any) -> Any:
    return call_op("shape_of", x)


def zero_of(x: Any) -> Any:
    """The number 0 as a tensor of one element that is known when the program runs."""
    return call_op("reshape", call_op("argmax", x), newshape=(1,)) * const(0, "int32")


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_that_are_computed(name: str) -> None:
    x = var("x", shape=(2, 3), dtype="float64")
    function = Function((x,), DYNAMIC[name](x))
    assert name in {n.op.name for n in post_order(function) if isinstance(n, Call)}
    check_gradient(function, [apart(2, 3)])


REFERENCE = """
    log log2 log10 tan cos cosh sin sinh acos acosh asin asinh atan atanh exp sqrt sigmoid tanh erf clip abs negative
    add subtract multiply divide max sum mean variance zeros ones zeros_like ones_like dyn.zeros dyn.ones copy cast
    cast_like reshape dyn.reshape reshape_like contrib_reverse_reshape transpose squeeze expand_dims concatenate stack
    strided_slice where take gather_nd one_hot arange shape_of collapse_sum_like collapse_sum_to less_equal not_equal
    nn.relu nn.max_pool2d nn.avg_pool2d nn.global_avg_pool2d nn.conv2d nn.softmax nn.log_softmax nn.bias_add nn.dense
    nn.matmul nn.batch_matmul nn.batch_flatten nn.cross_entropy nn.cross_entropy_with_logits
"""


def test_the_reference_s_rules_are_there_and_every_rule_is_tried() -> None:
    assert len(REFERENCE.split()) == 73 and set(REFERENCE.split()) <= set(RULES)
    tried = {name for name, _, _ in SAMPLES} | set(CONSTANT) | set(DYNAMIC)
    assert tried | {"zeros", "ones", "arange"} == set(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_rules_are_attributes_of_operators(name: str) -> None:
    assert get(name).get_attr("FPrimalGradient") is RULES[name]
