"""Convolution, its transpose and the gradient of its weight, over one, two or three spatial axes.

    y[n, g·Og + o, p…] = Σ over k…, i of x[n, g·Ig + i, p·stride - before + k·dilation…] · w[g·Og + o, i, k…]

is linear in x and in w. Of the form ⟨y, conv(x, w)⟩, with one number for each x, w and y, the three ops are the
derivatives: by y the convolution, by x its transpose, by w the gradient of the weight. So the gradient of each is
expressed by the other two. Padding is 0; only what lies in x takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import ShapeError
from pullback.ir.op import define
from pullback.relax.op.family import expect_dtype, expect_same_dtype, specialize
from pullback.relax.op.linear_algebra.matmul import accumulator
from pullback.relax.op.nn.convolution_form import Form, swapped, w_array, w_te, x_array, x_te, y_array, y_te
from pullback.relax.op.nn.window import (
    SPATIAL,
    Layout,
    Windowed,
    data_info,
    expect_room,
    numbers,
    spatial_sizes,
    standard_shape,
)
from pullback.relax.op.reduction.reduce import te_cast
from pullback.relax.op.sample import Ints, Sample, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, format_shape, same_shape
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.polynomial import at_most

# -- types


def _expect_groups(form: Form, channels: int, label: str) -> None:
    if channels % form.groups:
        raise ShapeError(f"{form.op}: groups={form.groups} does not divide the {channels} {label}")


def _expect_kernel(form: Form, weight: TensorStructInfo, letters: str, found: int, data: int, rule: str) -> None:
    """Raise a ShapeError unless the weight takes as many channels as the data have."""
    if found != data:
        raise ShapeError(
            f"{form.op}: the weight of shape {format_shape(weight.shape)}, with the axes {letters}, takes {found} "
            f"channels with groups={form.groups}, but data has {data}",
            hint=f"the size of the weight's axis I is {rule}",
        )


def _dtype(op: str, out_dtype: str | None, *infos: TensorStructInfo) -> str:
    for info in infos:
        expect_dtype(op, info, "number", "an operand")
    dtype = expect_same_dtype(op, *infos)
    return out_dtype or dtype


def _y_infer(data: TensorStructInfo, weight: TensorStructInfo, form: Form, out_dtype: str | None) -> TensorStructInfo:
    batch, channels, *sizes = standard_shape(form.op, "data", data, form.x)
    outputs, inputs, *kernel = standard_shape(form.op, "weight", weight, form.w)
    dtype = _dtype(form.op, out_dtype, data, weight)
    _expect_groups(form, channels, "channels of data")
    _expect_groups(form, outputs, "output channels of weight")
    _expect_kernel(form, weight, form.w.letters, inputs * form.groups, channels, "the channels of data / groups")
    axes = form.axes(sizes, kernel)
    expect_room(form.op, "the kernel", axes)
    return data_info(form.y, [batch, outputs, *(a.positions for a in axes)], dtype)


def _x_infer(
    data: TensorStructInfo, weight: TensorStructInfo, form: Form, extra: Sequence[Dim], out_dtype: str | None
) -> TensorStructInfo:
    letters = swapped(form.w.letters)  # as the user writes it: the data go in
    batch, channels, *sizes = standard_shape(form.op, "data", data, form.y)
    standard_shape(form.op, "weight", weight, Layout(letters, form.w.standard))
    inputs, outputs, *kernel = form.w.to_standard(weight.sizes)
    dtype = _dtype(form.op, out_dtype, data, weight)
    _expect_groups(form, channels, "channels of data")
    _expect_kernel(form, weight, letters, inputs, channels, "the channels of data")
    if any(at_most(s, e) for e, s in zip(extra, form.strides, strict=True)):
        raise ShapeError(
            f"{form.op}: output_padding must be smaller than strides, got {tuple(extra)} and {form.strides}"
        )
    axes = form.back(sizes, kernel, extra)
    if any(at_most(a.size, 0) for a in axes):
        padding, left = (*form.before, *form.after), format_shape(a.size for a in axes)
        raise ShapeError(f"{form.op}: a padding of {padding} leaves nothing of the result: {left}")
    return data_info(form.x, [batch, outputs * form.groups, *(a.size for a in axes)], dtype)


def _w_infer(
    data: TensorStructInfo, dy: TensorStructInfo, form: Form, kernel: Sequence[int], out_dtype: str | None
) -> TensorStructInfo:
    batch, channels, *sizes = standard_shape(form.op, "data", data, form.x)
    outputs = standard_shape(form.op, "dy", dy, form.y)[1]
    dtype = _dtype(form.op, out_dtype, data, dy)
    _expect_groups(form, channels, "channels of data")
    _expect_groups(form, outputs, "channels of dy")
    axes = form.axes(sizes, kernel)
    expect_room(form.op, "the kernel", axes)
    expected = form.y.from_standard([batch, outputs, *(a.positions for a in axes)])
    if not same_shape(dy.shape or (), expected):
        got = format_shape(dy.shape)
        raise ShapeError(
            f"{form.op}: dy must have the shape {format_shape(expected)} of the convolution's result, got {got}"
        )
    return TensorStructInfo(form.w.from_standard([outputs, channels // form.groups, *kernel]), dtype)


# -- the ops


def _cast_gradient(gradient: Callable[..., Any], dy: Any, a: Any, b: Any, out_dtype: str | None) -> tuple[Any, Any]:
    """The adjoints of two operands that are multiplied in ``out_dtype``."""
    if out_dtype in (None, a.dtype):
        return gradient(dy, a, b)
    da, db = gradient(dy, a.astype(out_dtype), b.astype(out_dtype))
    return da.astype(a.dtype), db.astype(b.dtype)


def _product(
    name: str,
    signature: str,
    parse: Callable[[dict[str, Any]], tuple[Any, ...]],
    *,
    infer: Callable[..., Any],
    te_form: Callable[..., te.Tensor],
    array: Callable[..., np.ndarray],
    gradient: Callable[..., tuple[Any, Any]],
    doc: str,
    samples: Sequence[Sample],
    words: bool = False,
) -> None:
    """One of the ops; ``parse`` turns the attributes into what the rules take after the two operands. ``words``: users
    may say padding="same" or "valid"."""

    def te_rule(a: te.Tensor, b: te.Tensor, **attrs: Any) -> te.Tensor:
        out = attrs["out_dtype"]
        return te_cast(te_form(a, b, *parse(attrs), accumulator(a.dtype, out)), out or a.dtype)

    def meaning(a: np.ndarray, b: np.ndarray, **attrs: Any) -> np.ndarray:
        out = attrs["out_dtype"]
        result = array(a, b, *parse(attrs), accumulator(a.dtype.name, out))
        return np.ascontiguousarray(result).astype(numpy_dtype(out or a.dtype.name))

    def adjoints(dy: Any, y: Any, a: Any, b: Any, **attrs: Any) -> tuple[Any, Any]:
        return _cast_gradient(lambda *args: gradient(*args, *parse(attrs)), dy, a, b, attrs["out_dtype"])

    op = define(
        name,
        signature,
        infer=lambda a, b, **attrs: infer(a, b, *parse(attrs), attrs["out_dtype"]),
        te=te_rule,
        numpy=meaning,
        gradient=adjoints,
        precision="low",
        zeros="mixes",
        family="convolution",
        doc=doc,
        samples=samples,
    )
    if words:
        specialize(op, Windowed)


def _define(rank: int) -> None:
    """The three ops over ``rank`` spatial axes."""
    space = SPATIAL[rank]
    convolution, transpose, of_weight = f"nn.conv{rank}d", f"nn.conv{rank}d_transpose", f"grad.conv{rank}d_weight"
    layouts = f"groups=1, data_layout='NC{space}', kernel_layout='{{}}{space}', out_layout=None, out_dtype=None"
    window = "strides=1, padding=0, dilation=1"
    attributes = (
        f"strides, dilation: a number for each axis of {space}, or one for all; padding: so too, or before all and\n"
        "then after all. Layouts: letters in the order of memory; the result has out_layout, by default the data's."
    )

    def weight_attrs(attrs: dict[str, Any]) -> tuple[Form, tuple[int, ...]]:
        form = Form.of(of_weight, rank, False, attrs)
        return form, numbers(of_weight, "kernel_size", attrs["kernel_size"], rank)

    def transpose_attrs(attrs: dict[str, Any]) -> tuple[Form, tuple[Any, ...]]:
        form = Form.of(transpose, rank, True, attrs)
        return form, spatial_sizes(transpose, "output_padding", attrs["output_padding"], rank, 0)

    _product(
        convolution,
        f"data, weight | {window}, {layouts.format('OI')}",
        lambda attrs: (Form.of(convolution, rank, False, attrs),),
        infer=_y_infer,
        te_form=y_te,
        array=y_array,
        gradient=lambda dy, x, w, form: (
            form.x_of(dy, w, form.x.to_standard(x.shape)[2:]),
            form.w_of(x, dy, form.w.to_standard(w.shape)[2:]),
        ),
        doc="Σ over k, i of data[n, g·I + i, p·stride - before + k·dilation] · weight[o, i, k], zeros outside data:\n"
        "the cross-correlation that PyTorch and TVM call a convolution. data: (N, groups·I, …), weight:\n"
        '(O, I, kernel…), result: (N, O, …). A bias is a separate add. padding may also be "same" or "valid".\n'
        f"{attributes}",
        samples=_CONVOLUTIONS[rank],
        words=True,
    )
    _product(
        transpose,
        f"data, weight | strides=1, padding=0, output_padding=0, dilation=1, {layouts.format('IO')}",
        transpose_attrs,
        infer=_x_infer,
        te_form=x_te,
        array=x_array,
        gradient=lambda dy, y, w, form, extra: (form.y_of(dy, w), form.w_of(dy, y, form.w.to_standard(w.shape)[2:])),
        doc=f"The derivative of nn.conv{rank}d by its data, as an op: each element of data is spread over the window\n"
        "that it came from. data: (N, I, …), weight: (I, O, kernel…), result: (N, groups·O, …) of the sizes\n"
        "(size - 1)·stride - padding + (kernel - 1)·dilation + 1 + output_padding, with output_padding < strides.\n"
        f"{attributes}",
        samples=_TRANSPOSES[rank],
    )
    _product(
        of_weight,
        f"data, dy | kernel_size, {window}, {layouts.format('OI')}",
        weight_attrs,
        infer=_w_infer,
        te_form=w_te,
        array=w_array,
        gradient=lambda dw, x, dy, form, kernel: (
            form.x_of(dy, dw, form.x.to_standard(x.shape)[2:]),
            form.y_of(x, dw),
        ),
        doc=f"The derivative of nn.conv{rank}d by its weight, in the kernel layout: Σ over n, p of\n"
        "data[n, i, p·stride - before + k·dilation] · dy[n, o, p]. dy has the out_layout and the shape of the\n"
        "convolution's result.\n"
        f"{attributes}",
        samples=_WEIGHTS[rank],
    )


_CONVOLUTIONS = {
    1: [
        sample((2, 3, 7), (4, 3, 3)),
        sample((2, 4, 8), (2, 2, 2), strides=3, padding=(1, 2), dilation=2, groups=2),
        sample((2, 7, 2), (3, 2, 3), padding=1, data_layout="NWC", kernel_layout="WIO"),
    ],
    2: [
        sample((2, 3, 5, 6), (4, 3, 3, 3)),
        sample((2, 3, 5, 5), (4, 3, 1, 1)),
        sample((1, 2, 7, 6), (3, 2, 3, 2), strides=2, padding=1),
        sample((2, 2, 6, 5), (2, 2, 3, 3), strides=(2, 3), padding=(2, 0, 1, 3), dilation=(1, 2)),
        sample((2, 4, 5, 5), (6, 2, 3, 3), padding=1, groups=2),
        sample((2, 3, 5, 5), (3, 1, 3, 3), strides=2, padding=1, groups=3),
        sample((1, 2, 4, 5), (4, 1, 2, 2), groups=2),
        sample((2, 4, 3, 3), (2, 2, 1, 1), strides=2, groups=2),
        sample((1, 5, 6, 2), (3, 3, 2, 4), padding=1, data_layout="NHWC", kernel_layout="HWIO"),
        sample((2, 2, 4, 5), (4, 3, 3, 2), strides=2, padding=1, kernel_layout="OHWI", out_layout="NHWC"),
        sample((1, 1, 3, 3), (1, 1, 1, 1), padding=2),
        sample((2, 2, 3, 3), (2, 2, 3, 3), padding=3, strides=4),
        sample((1, 1, 1, 1), (1, 1, 1, 1)),
        sample((0, 2, 4, 4), (3, 2, 2, 2), padding=1),
        sample(Ints((1, 2, 4, 4), -9, 9, "int8"), Ints((3, 2, 3, 3), -9, 9, "int8"), padding=1, out_dtype="int32"),
        sample((1, 2, 3, 4), (2, 2, 2, 2), out_dtype="float64"),
    ],
    3: [
        sample((1, 2, 4, 3, 4), (2, 2, 2, 2, 3)),
        sample((1, 2, 3, 4, 4), (2, 1, 2, 2, 2), strides=(1, 2, 1), padding=1, groups=2),
        sample((1, 3, 4, 3, 2), (3, 1, 2, 2, 3), dilation=(1, 1, 2), data_layout="NDHWC", kernel_layout="DHWIO"),
    ],
}
_TRANSPOSES = {
    1: [
        sample((2, 3, 4), (3, 2, 3)),
        sample((2, 4, 3), (4, 2, 2), strides=3, padding=(1, 2), output_padding=2, dilation=2, groups=2),
        sample((2, 4, 2), (3, 2, 3), padding=1, data_layout="NWC", kernel_layout="WIO"),
    ],
    2: [
        sample((2, 3, 3, 4), (3, 2, 3, 3)),
        sample((2, 3, 3, 3), (3, 4, 1, 1)),
        sample((1, 2, 3, 4), (2, 3, 3, 2), strides=2, padding=1, output_padding=(0, 1)),
        sample((2, 2, 3, 3), (2, 2, 3, 3), strides=(2, 3), padding=(2, 0, 1, 3), dilation=(1, 2)),
        sample((1, 4, 3, 3), (4, 3, 2, 2), padding=1, groups=2),
        sample((2, 3, 3, 3), (3, 1, 3, 3), strides=2, padding=1, groups=3),
        sample((1, 2, 5, 5), (2, 2, 2, 2), padding=2),
        sample((1, 2, 5, 4), (2, 2, 1, 1), padding=(2, 0, 0, 1)),
        sample((1, 1, 4, 4), (1, 2, 2, 1), strides=2, padding=(2, 0, 0, 2), output_padding=1),
        sample((1, 3, 4, 2), (3, 3, 2, 4), padding=1, data_layout="NHWC", kernel_layout="HWIO"),
        sample((1, 3, 4, 2), (3, 3, 4, 2), strides=2, data_layout="NHWC", kernel_layout="HWOI", out_layout="NCHW"),
        sample((1, 1, 1, 1), (1, 1, 1, 1)),
        sample((0, 2, 3, 3), (2, 3, 2, 2)),
        sample(Ints((1, 2, 3, 3), -9, 9, "int8"), Ints((2, 2, 2, 2), -9, 9, "int8"), strides=2, out_dtype="int32"),
        sample((1, 2, 3, 2), (2, 2, 2, 2), out_dtype="float64"),
    ],
    3: [
        sample((1, 2, 2, 3, 2), (2, 2, 2, 2, 3)),
        sample((1, 2, 3, 2, 2), (2, 1, 2, 2, 2), strides=(1, 2, 1), padding=(1, 0, 1), groups=2),
        sample((1, 2, 2, 3, 2), (2, 3, 1, 2, 3), data_layout="NDHWC", kernel_layout="IODHW"),
    ],
}
_WEIGHTS = {
    1: [
        sample((2, 3, 7), (2, 4, 5), kernel_size=3),
        sample((2, 4, 8), (2, 2, 3), kernel_size=2, strides=3, padding=(1, 2), dilation=2, groups=2),
        sample((2, 7, 2), (2, 7, 2), kernel_size=3, padding=1, data_layout="NWC", kernel_layout="WIO"),
    ],
    2: [
        sample((2, 3, 5, 6), (2, 2, 3, 4), kernel_size=3),
        sample((2, 3, 4, 4), (2, 4, 4, 4), kernel_size=1),
        sample((1, 2, 7, 6), (1, 3, 4, 4), kernel_size=(3, 2), strides=2, padding=1),
        sample((2, 2, 6, 5), (2, 2, 4, 2), kernel_size=3, strides=(2, 3), padding=(2, 0, 1, 3), dilation=(1, 2)),
        sample((1, 4, 5, 5), (1, 6, 5, 5), kernel_size=(3, 3), padding=1, groups=2),
        sample((2, 3, 5, 5), (2, 3, 3, 3), kernel_size=3, strides=2, padding=1, groups=3),
        sample((1, 5, 6, 2), (1, 5, 6, 2), kernel_size=3, padding=1, data_layout="NHWC", kernel_layout="HWIO"),
        sample((1, 2, 3, 4), (1, 2, 3, 3), kernel_size=2, kernel_layout="OHWI", out_layout="NHWC"),
        sample((1, 1, 2, 2), (1, 1, 1, 1), kernel_size=2),
        sample((1, 2, 1, 1), (1, 1, 1, 1), kernel_size=1),
        sample((0, 2, 4, 4), (0, 3, 3, 3), kernel_size=2),
        sample(Ints((2, 2, 4, 4), -9, 9, "int8"), Ints((2, 2, 3, 3), -9, 9, "int8"), kernel_size=2, out_dtype="int32"),
        sample((1, 2, 3, 3), (1, 2, 2, 2), kernel_size=2, out_dtype="float64"),
    ],
    3: [
        sample((1, 2, 4, 3, 4), (1, 2, 3, 2, 2), kernel_size=(2, 2, 3)),
        sample((1, 2, 3, 4, 4), (1, 2, 4, 3, 5), kernel_size=2, strides=(1, 2, 1), padding=1, groups=2),
        sample((2, 2, 3, 2, 3), (2, 3, 3, 1, 3), kernel_size=(1, 2, 1)),
    ],
}


for _rank in SPATIAL:
    _define(_rank)
