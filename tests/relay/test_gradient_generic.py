"""Operators without a rule of their own: the gradient of what they mean in the graph IR, against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.relay.build_module import create_executor
from pullback.relay.expr import Call, Function, Tuple, TupleGetItem, call_op, const, var
from pullback.relay.gradient import generic_gradient
from pullback.relay.infer import infer_expr
from pullback.relay.op import get
from pullback.relay.op.gradients import RULES
from pullback.relay.op.registry import Op
from pullback.relay.text import parse_expr
from pullback.relay.transform import gradient
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType
from pullback.relay.visitor import post_order
from tests.relay.differences import apart, arrays, between, check_gradient, indices, normal, program, run

SAMPLES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("power", [between(0.5, 2, 2, 3), normal(3)], {}),
    ("maximum", [apart(2, 3), apart(2, 3) + 0.1], {}),
    ("minimum", [apart(2, 3), apart(3) + 0.1], {}),
    ("rsqrt", [between(0.5, 2, 2, 3)], {}),
    ("prod", [between(0.5, 2, 2, 3)], {"axis": 1}),
    ("min", [apart(2, 3)], {"axis": 0}),
    ("fast_exp", [normal(2, 3)], {}),
    ("fast_tanh", [normal(2, 3)], {}),
    ("split", [normal(2, 6)], {"indices_or_sections": (1, 4), "axis": 1}),
    ("meshgrid", [[normal(2), normal(3)]], {}),
    ("repeat", [normal(2, 3)], {"repeats": 2, "axis": 1}),
    ("tile", [normal(2, 3)], {"reps": (2, 1, 2)}),
    ("reverse", [normal(2, 3)], {"axis": 1}),
    ("reverse_sequence", [normal(3, 4), indices(4, 4)], {"seq_axis": 0, "batch_axis": 1}),
    ("broadcast_to", [normal(2, 1)], {"shape": (4, 2, 3)}),
    ("broadcast_to_like", [normal(2, 1), normal(4, 2, 3)], {}),
    ("full_like", [normal(2, 3), normal()], {}),
    ("layout_transform", [normal(1, 4, 2, 2)], {"src_layout": "NCHW", "dst_layout": "NCHW2c"}),
    ("slice_like", [normal(4, 5), normal(2, 3)], {}),
    ("gather", [normal(3, 4), indices(3, 2, 4)], {"axis": 0}),
    ("scatter_elements", [normal(3, 4), indices(3, 1, 4), normal(1, 4)], {"axis": 0, "reduction": "add"}),
    ("scatter_nd", [normal(4, 3), np.array([[0, 2]], "int32"), normal(2, 3)], {"mode": "add"}),
    ("scatter_nd", [normal(4, 3), np.array([[0, 2]], "int32"), normal(2, 3)], {"mode": "update"}),
    ("sequence_mask", [normal(3, 2), np.array([1, 3], "int32")], {}),
    ("cumsum", [normal(2, 3)], {"axis": 1}),
    ("cumprod", [between(0.5, 2, 2, 3)], {"axis": 1}),
    ("sort", [apart(2, 5)], {"axis": 1}),
    ("topk", [apart(2, 5)], {"k": 2, "ret_type": "values"}),
    ("topk", [apart(2, 5)], {"k": 2}),
    ("einsum", [[normal(2, 3), normal(3, 4)]], {"equation": "ij,jk->ik"}),
    ("nn.conv1d", [normal(2, 3, 6), normal(4, 3, 3)], {"kernel_size": 3, "channels": 4, "padding": 1}),
    ("nn.conv3d", [normal(1, 2, 3, 3, 3), normal(2, 2, 2, 2, 2)], {"kernel_size": (2, 2, 2), "channels": 2}),
    ("nn.conv2d_transpose", [normal(1, 3, 3, 3), normal(3, 2, 2, 2)],
     {"kernel_size": (2, 2), "channels": 2, "strides": (2, 2)}),
    ("nn.max_pool1d", [apart(1, 2, 6)], {"pool_size": 2, "strides": 2}),
    ("nn.avg_pool3d", [normal(1, 1, 2, 4, 4)], {"pool_size": (2, 2, 2), "strides": (2, 2, 2)}),
    ("nn.adaptive_avg_pool2d", [normal(1, 2, 5, 4)], {"output_size": (2, 3)}),
    ("nn.adaptive_max_pool2d", [apart(1, 2, 5, 4)], {"output_size": (2, 3)}),
    ("nn.global_max_pool2d", [apart(1, 2, 3, 4)], {}),
    ("nn.layer_norm", [normal(2, 4), normal(4), normal(4)], {}),
    ("nn.group_norm", [normal(2, 4, 3), normal(4), normal(4)], {"num_groups": 2}),
    ("nn.instance_norm", [normal(2, 3, 4), normal(3), normal(3)], {}),
    ("nn.l2_normalize", [normal(2, 4)], {"eps": 1e-3, "axis": [1]}),
    ("nn.lrn", [normal(1, 6, 2, 2)], {"size": 3, "alpha": 0.1}),
    ("nn.leaky_relu", [apart(2, 3)], {"alpha": 0.1}),
    ("nn.prelu", [apart(2, 3, 4), between(0.1, 0.5, 3)], {}),
    ("nn.fast_softmax", [normal(2, 3)], {}),
    ("nn.pad", [normal(2, 3), normal()], {"pad_width": ((1, 0), (0, 2))}),
    ("nn.mirror_pad", [normal(3, 4)], {"pad_width": ((1, 1), (0, 2)), "mode": "REFLECT"}),
    ("nn.upsampling", [normal(1, 2, 2, 3)], {"scale_h": 2, "scale_w": 2}),
    ("nn.depth_to_space", [normal(1, 4, 2, 3)], {"block_size": 2}),
    ("nn.space_to_depth", [normal(1, 1, 4, 2)], {"block_size": 2}),
    ("nn.dilate", [normal(2, 3)], {"strides": (1, 2)}),
    ("nn.nll_loss", [normal(3, 4), indices(4, 3), between(0.5, 1, 4)], {}),
    ("nn.batch_norm", [normal(3, 2, 2), normal(2), normal(2), normal(2), between(0.5, 2, 2)], {}),
    ("image.resize2d", [normal(1, 2, 3, 4)], {"size": (5, 6)}),
    ("image.affine_grid", [normal(1, 2, 3)], {"target_shape": (2, 3)}),
    ("image.grid_sample", [normal(1, 2, 4, 4), between(-0.9, 0.9, 1, 2, 3, 3)], {}),
    ("relax.nn.gelu", [normal(2, 3)], {}),
    ("relax.nn.silu", [normal(2, 3)], {}),
    ("relax.concat", [[normal(2, 3), normal(2, 1)]], {"axis": 1}),
    ("vision.roi_align", [normal(1, 2, 6, 6), np.array([[0, 0.3, 0.4, 3.7, 4.2]])],
     {"pooled_size": (2, 2), "spatial_scale": 1.0, "sample_ratio": 2}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "attrs"), SAMPLES, ids=[f"{k}-{name}" for k, (name, _, _) in enumerate(SAMPLES)]
)
def test_the_gradient_is_the_derivative(name: str, args: list[Any], attrs: dict[str, Any]) -> None:
    function, values = program(name, args, attrs)
    assert name not in RULES
    check_gradient(function, values)


UNKNOWN: dict[str, Any] = {
    "sort": (lambda x: call_op("sort", x, axis=1), apart(4, 3)),
    "concatenate": (lambda x: call_op("concatenate", Tuple((x, x * x)), axis=0), normal(4, 3)),
    "split": (lambda x: _product(call_op("split", x, 3, axis=1)), normal(4, 3)),
    "strided_slice": (lambda x: call_op("strided_slice", x, begin=(1, 0), end=(3, 2)), normal(4, 3)),
    "nn.leaky_relu": (lambda x: call_op("nn.leaky_relu", x, alpha=0.1), apart(4, 3)),
    "nn.pad": (lambda x: call_op("nn.pad", x, pad_width=((1, 0), (0, 2))), normal(4, 3)),
    "nn.layer_norm": (
        lambda x: call_op("nn.layer_norm", x, const(np.ones(3)), const(np.zeros(3))),
        normal(4, 3),
    ),
}  # fmt: skip


def _product(parts: Any) -> Any:
    return parts[0] * parts[1] + parts[2]


def unknown(name: str) -> tuple[Function, np.ndarray]:
    build, value = UNKNOWN[name]
    x = var("x", TensorType((AnySize(), 3), "float64"))
    result = build(x)
    weights = np.random.default_rng(3).uniform(0.5, 1.5, run(Function((x,), result), value).shape)
    return Function((x,), call_op("sum", result * const(weights))), value


@pytest.mark.parametrize("name", UNKNOWN)
def test_sizes_that_are_not_known(name: str) -> None:
    function, value = unknown(name)
    check_gradient(function, [value])


@pytest.mark.parametrize("name", ["nn.layer_norm", "sort", "split"])
def test_gradients_of_such_gradients(name: str) -> None:
    function, value = unknown(name)
    squared = Function(function.params, function.body * function.body)
    y = var("y", TensorType((AnySize(), 3), "float64"))
    slope = TupleGetItem(TupleGetItem(Call(gradient(squared), (y,)), 1), 0)
    check_gradient(Function((y,), slope * slope), [value], modes=("higher_order",), atol=1e-6)


def test_operators_that_are_lowered_later_are_found_by_name() -> None:
    function, value = unknown("sort")
    derivative = gradient(function, mode="first_order")
    names = {n.op.name for n in post_order(derivative) if isinstance(n, Call)}
    assert "gradient.sort" in names
    del Op.registry["gradient.sort"]
    text = derivative.astext()
    again = parse_expr(text)
    np.testing.assert_array_equal(run(again, value)[1][0], run(derivative, value)[1][0])


@pytest.mark.parametrize("name", ["relax.nn.gelu", "nn.conv1d", "nn.layer_norm", "cumsum", "nn.avg_pool3d"])
def test_second_derivatives(name: str) -> None:
    args, attrs = next((a, b) for n, a, b in SAMPLES if n == name)
    function, values = program(name, args, attrs)
    function = Function(function.params, call_op("sum", call_op("sin", function.body)))
    params = tuple(var("p", shape=v.shape, dtype=str(v.dtype)) for v in values)
    slope = TupleGetItem(TupleGetItem(Call(gradient(function), params), 1), 0)
    check_gradient(Function(params, call_op("tanh", slope)), values, modes=("higher_order",), atol=1e-6)


def test_loops_have_a_gradient_in_relay() -> None:
    """That of an operator whose meaning is loops is an operator, too, and native code like any."""
    _, values = program("vision.roi_align", *next((a, b) for n, a, b in SAMPLES if n == "vision.roi_align"))
    values = [v.astype("float32") for v in values]
    params = tuple(var("p", shape=v.shape) for v in values)
    rois = get("vision.roi_align")(*params, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=2)
    derivative = gradient(Function(params, rois), mode="first_order")
    names = {n.op.name for n in post_order(derivative) if isinstance(n, Call)}
    assert any(name.startswith("relax.loops.") for name in names)
    native = create_executor("vm").evaluate(derivative)(*values)
    for one, other in zip(arrays(native)[1], run(derivative, *values)[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_an_adjoint_for_each_argument() -> None:
    x, n = var("x", shape=(3, 2)), var("n", shape=(2,), dtype="int32")
    call = infer_expr(call_op("sequence_mask", x, n))
    adjoints = generic_gradient(call, call_op("ones_like", call))
    assert [infer_expr(a).checked_type for a in adjoints] == [x.type_annotation, n.type_annotation]
