"""ChooseLayouts: which values lie in memory with their channels innermost."""

from __future__ import annotations

import pytest

from pullback.driver.pipeline import lower_function, prepare
from pullback.ir import IRModule
from pullback.relax import BlockBuilder, TensorStructInfo, Var
from pullback.relax.op.namespace import ops
from pullback.relax.transform import Gradient
from pullback.target import Target


def network(channels: int) -> IRModule:
    """Three convolutions, with a normalisation and relu after two of them, and a short cut."""
    shape = (4, channels, 6, 7)
    x = Var("x", TensorStructInfo(shape, "float32"))
    weights = [Var(f"w{k}", TensorStructInfo((channels, channels, 3, 3), "float32")) for k in range(3)]
    scale = Var("scale", TensorStructInfo((channels, 1, 1), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x, scale, *weights]):
        with builder.dataflow():
            first = ops.nn.relu(ops.multiply(ops.nn.conv2d(x, weights[0], padding=1), scale))
            second = ops.nn.relu(ops.add(ops.multiply(ops.nn.conv2d(first, weights[1], padding=1), scale), first))
            out = builder.emit_output(ops.sum(ops.square(ops.nn.conv2d(second, weights[2], padding=1))))
        builder.emit_func_output(out)
    return Gradient("main", require_grads=[scale, *weights])(builder.get())


@pytest.mark.parametrize(("channels", "innermost"), [(16, True), (3, False)])
def test_images_between_kernels_have_their_channels_innermost(channels, innermost):
    """Those that are computed again in the backward part too, such as relu's mask: an alias keeps no value where it
    is. Few channels fill no vectors."""
    work, _ = lower_function(prepare(network(channels)), "main_adjoint", {}, Target("llvm"))
    images = [
        tuple(info.shape)
        for binding in work["main_adjoint"].bindings
        for info in getattr(binding.var.struct_info, "fields", (binding.var.struct_info,))
        if getattr(info, "ndim", 0) == 4 and sorted(info.shape) == sorted((4, channels, 6, 7))
    ]
    wanted = (4, 6, 7, channels) if innermost else (4, channels, 6, 7)
    assert len(images) > 6
    assert set(images) == {wanted}


def test_what_only_the_gradient_of_a_weight_reads_has_its_channels_innermost():
    """It is joined once more in the backward part, where no convolution reads it."""
    x, y = (Var(name, TensorStructInfo((4, 8, 6, 7), "float32")) for name in "xy")
    first, second = (Var(name, TensorStructInfo((8, n, 3, 3), "float32")) for name, n in (("first", 8), ("second", 16)))
    builder = BlockBuilder()
    with builder.function("main", [x, y, first, second]):
        with builder.dataflow():
            made = ops.nn.relu(ops.nn.conv2d(x, first, padding=1))
            out = ops.nn.conv2d(ops.concat([made, y], axis=1), second, padding=1)
            out = builder.emit_output(ops.sum(ops.square(out)))
        builder.emit_func_output(out)
    module = Gradient("main", require_grads=[first, second])(builder.get())
    work, _ = lower_function(prepare(module), "main_adjoint", {}, Target("llvm"))
    shapes = [tuple(b.var.struct_info.shape) for b in work["main_adjoint"].bindings if "concat" in b.var.name]
    assert shapes
    assert set(shapes) <= {(4, 6, 7, 16)}


def test_results_lie_as_they_are_declared():
    """A value that the function returns stays as it is, whoever else reads it."""
    x = Var("x", TensorStructInfo((4, 16, 6, 7), "float32"))
    weights = [Var(f"w{k}", TensorStructInfo((16, 16, 3, 3), "float32")) for k in range(2)]
    builder = BlockBuilder()
    with builder.function("main", [x, *weights]):
        with builder.dataflow():
            first = builder.emit_output(ops.nn.relu(ops.nn.conv2d(x, weights[0], padding=1)))
            second = builder.emit_output(ops.nn.relu(ops.nn.conv2d(first, weights[1], padding=1)))
        builder.emit_func_output((first, second))
    work, _ = lower_function(prepare(builder.get()), "main", {}, Target("llvm"))
    assert [tuple(i.shape) for i in work["main"].ret_struct_info.fields] == [(4, 16, 6, 7)] * 2
    assert work["main"].ret_struct_info == work["main"].body.body.struct_info
