"""Images: resizing, sampling, cutting out, and the exchange of channels, blocks and batches."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from pullback import relax
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.window import SPATIAL
from pullback.relay.attrs import Attrs
from pullback.relay.expr import call_op
from pullback.relay.op.convolution import window_size
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    cast,
    dtype_name,
    dtype_of,
    ints,
    is_any,
    is_dynamic,
    of_unknown,
    padding,
    places,
    product,
    python_value,
    quotient,
    rank_of,
    repeated,
    shape_of,
    total,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type

_METHODS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def _in_layout(x: TensorType, layout: str, sizes: dict[str, Any], dtype: str = "") -> TensorType:
    """x's type with other sizes of some axes."""
    if len(layout) != x.ndim:
        raise ShapeError(f"data has {x.ndim} axes, its layout {layout} {len(layout)}")
    return TensorType(tuple(sizes.get(c, s) for c, s in zip(layout, x.shape, strict=True)), dtype or x.dtype)


def _scaled(x: Any, rank: int, size: Any, layout: str, method: str, mode: str, rounding: str, **more: Any) -> Any:
    method = _METHODS.get(method, method)
    if not rounding:
        rounding = "round" if mode == "align_corners" else "floor"
    op = getattr(ops.image, f"resize{rank}d")
    given = {"layout": layout, "method": method, "coordinate_transformation_mode": mode, "rounding_method": rounding}
    return op(x, size, **given, **more)


def _resize(rank: int) -> Any:
    def lower(x: Any, *, size: Any, roi: Any, layout: str, method: str, out_dtype: str, **attrs: Any) -> Any:
        if roi and any(roi):
            raise ArgumentError(f"image.resize{rank}d: a roi is not supported", hint="image.crop_and_resize has boxes")
        found = _scaled(
            x,
            rank,
            size,
            layout,
            method,
            attrs["coordinate_transformation_mode"],
            attrs["rounding_method"],
            cubic_alpha=float(attrs["cubic_alpha"]),
            cubic_exclude=attrs["cubic_exclude"],
            extrapolation_value=float(attrs["extrapolation_value"]),
        )
        return cast(found, out_dtype)

    return lower


def _adapt_resize(rank: int) -> Any:
    def adapt(args: list[Any], attrs: dict[str, Any]) -> Any:
        roi = tuple(float(v) for v in python_value(attrs["roi"]) or (0.0,) * (2 * rank))
        attrs = attrs | {"roi": roi, "out_dtype": dtype_name(attrs["out_dtype"])}
        if is_dynamic(attrs["size"]):
            if rank != 2:
                raise ArgumentError(f"image.resize{rank}d: size must be known", hint="image.resize2d takes a tensor")
            return call_op("dyn.image.resize2d", args[0], attrs.pop("size"), **attrs)
        return args, attrs | {"size": repeated("size", attrs["size"], rank)}

    return adapt


for _rank, _space in SPATIAL.items():
    define(
        f"image.resize{_rank}d",
        f"data | size, roi=None, layout='NC{_space}', method='linear', coordinate_transformation_mode='half_pixel', "
        "rounding_method='round', cubic_alpha=-0.5, cubic_exclude=0, extrapolation_value=0.0, out_dtype=''",
        _resize(_rank),
        adapt=_adapt_resize(_rank),
        relation=lambda types, attrs, space=_space: (
            None
            if types[0].is_concrete
            else _in_layout(types[0], attrs["layout"], dict(zip(space, attrs["size"], strict=True)), attrs["out_dtype"])
        ),
        python={"rounding_method": ""},
        shown=("size",),
        doc="Images in another size: method nearest_neighbor, linear or cubic.",
        pattern=OpPattern.INJECTIVE,
    )


def _times(size: Any, scale: float) -> Any:
    return AnySize() if is_any(size) else math.floor(size * scale + 0.5)


def _upsampling(x: Any, *, layout: str, method: str, **attrs: Any) -> Any:
    axes = [c for c in layout if c in "DHW"]
    size = [_times(shape_of(x)[layout.index(c)], attrs[f"scale_{c.lower()}"]) for c in axes]
    mode = attrs.get("coordinate_transformation_mode")
    if mode is None:
        mode = "align_corners" if attrs["align_corners"] else "asymmetric"
    return _scaled(x, len(axes), tuple(size), layout, method, mode, "", cubic_alpha=-0.5)


def _upsampled(types: list[TensorType], attrs: Attrs) -> Type | None:
    x = types[0]
    if x.is_concrete:
        return None
    named = zip(attrs["layout"], x.shape, strict=True)
    sizes = {c: _times(s, attrs[f"scale_{c.lower()}"]) for c, s in named if c in "DHW"}
    return _in_layout(x, attrs["layout"], sizes)


def _adapt_scale(name: str) -> Any:
    def adapt(args: list[Any], attrs: dict[str, Any]) -> Any:
        scales = [n for n in attrs if n.startswith("scale_")]
        if any(is_dynamic(attrs[n]) for n in scales):
            from pullback.relay.expr import Expr, const

            given = [attrs.pop(n) for n in scales]
            given = [v if isinstance(v, Expr) else const(float(v), "float64") for v in given]
            return call_op(f"dyn.{name}", args[0], *given, **attrs)
        return args, attrs | {n: float(python_value(attrs[n])) for n in scales}

    return adapt


define(
    "nn.upsampling",
    "data | scale_h=1.0, scale_w=1.0, layout='NCHW', method='nearest_neighbor', align_corners=False",
    _upsampling,
    adapt=_adapt_scale("nn.upsampling"),
    relation=_upsampled,
    shown=("scale_h", "scale_w"),
    pattern=OpPattern.INJECTIVE,
    doc="Images scaled by the factors: method nearest_neighbor, bilinear or bicubic.",
)
define(
    "nn.upsampling3d",
    "data | scale_d=1.0, scale_h=1.0, scale_w=1.0, layout='NCDHW', method='nearest_neighbor', "
    "coordinate_transformation_mode='half_pixel'",
    _upsampling,
    adapt=_adapt_scale("nn.upsampling3d"),
    relation=_upsampled,
    shown=("scale_d", "scale_h", "scale_w"),
    pattern=OpPattern.INJECTIVE,
    doc="Volumes scaled by the factors: method nearest_neighbor or trilinear.",
)

# -- sampling

define(
    "image.affine_grid",
    "data | target_shape=None",
    lambda x, *, target_shape: ops.image.affine_grid(x, target_shape, align_corners=True),
    adapt=lambda args, attrs: (args, {"target_shape": ints("target_shape", attrs["target_shape"])}),
    relation=of_unknown(
        lambda types, attrs: TensorType(
            (types[0].shape[0], len(attrs["target_shape"]), *attrs["target_shape"]), types[0].dtype
        )
    ),
    shown=("target_shape",),
    pattern=OpPattern.INJECTIVE,
    doc="The grid of an affine map for image.grid_sample: data (N, 2, 3), result (N, 2, H, W).",
)
define(
    "image.grid_sample",
    "data, grid | method='bilinear', layout='NCHW', padding_mode='zeros', align_corners=True",
    lambda x, grid, **attrs: ops.image.grid_sample(x, grid, **attrs),
    relation=of_unknown(lambda types, attrs: TensorType((*types[0].shape[:2], *types[1].shape[2:]), types[0].dtype)),
    pattern=OpPattern.INJECTIVE,
    doc="Elements of images at the places of a grid, from -1 to 1 across an image.",
)


def _crop_and_resize(x: Any, boxes: Any, numbers: Any, **attrs: Any) -> Any:
    """Place i of n of a box from a to b along an axis of size s: a·(s - 1) + i·(b - a)·(s - 1)/(n - 1)."""
    layout, method, outside = attrs["layout"], attrs["method"], attrs["extrapolation_value"]
    if layout not in ("NCHW", "NHWC") or method not in ("bilinear", "nearest_neighbor"):
        raise ArgumentError("image.crop_and_resize: layout NCHW or NHWC, method bilinear or nearest_neighbor")
    x = ops.permute_dims(x, (0, 2, 3, 1)) if layout == "NCHW" else x
    _, height, width, _ = shape_of(x)
    count = shape_of(boxes)[0]
    boxes, dtype = cast(boxes, "float32"), attrs["out_dtype"] or dtype_of(x)
    x = cast(x, "float32")

    def column(k: int) -> Any:
        return ops.strided_slice(boxes, [1], [k], [k + 1])

    def along(k: int, size: int, n: int) -> Any:
        first, last = column(k), column(k + 2)
        last_place = relax.const(float(size - 1))
        if n == 1:
            return ops.multiply(ops.add(first, last), relax.const(0.5 * (size - 1)))
        steps = relax.const(np.arange(n, dtype="float32")[None] * np.float32((size - 1) / (n - 1)))
        return ops.add(ops.multiply(first, last_place), ops.multiply(steps, ops.subtract(last, first)))

    rows, columns = attrs["crop_size"]
    y = ops.reshape(along(0, height, rows), (count, rows, 1))
    z = ops.reshape(along(1, width, columns), (count, 1, columns))

    def inside(place: Any, size: int) -> Any:
        return ops.logical_and(
            ops.greater_equal(place, relax.const(0.0)), ops.less_equal(place, relax.const(float(size - 1)))
        )

    def element(i: Any, j: Any) -> Any:
        at = [cast(ops.clip(p, 0.0, float(n - 1)), "int64") for p, n in ((i, height), (j, width))]
        batch = ops.reshape(cast(numbers, "int64"), (count, 1, 1))
        return ops.index_tensor([x, batch, *at])

    if method == "nearest_neighbor":
        half = relax.const(0.5)
        found = element(ops.floor(ops.add(y, half)), ops.floor(ops.add(z, half)))
    else:
        low_y, low_z = ops.floor(y), ops.floor(z)
        part_y, part_z = (ops.expand_dims(ops.subtract(p, q), 3) for p, q in ((y, low_y), (z, low_z)))
        one = relax.const(1.0)
        high_y, high_z = ops.add(low_y, one), ops.add(low_z, one)

        def mixed(a: Any, b: Any, part: Any) -> Any:
            return ops.add(a, ops.multiply(ops.subtract(b, a), part))

        top = mixed(element(low_y, low_z), element(low_y, high_z), part_z)
        bottom = mixed(element(high_y, low_z), element(high_y, high_z), part_z)
        found = mixed(top, bottom, part_y)
    valid = ops.expand_dims(ops.logical_and(inside(y, height), inside(z, width)), 3)
    found = ops.where(valid, found, relax.const(float(outside)))
    found = cast(found, dtype)
    return ops.permute_dims(found, (0, 3, 1, 2)) if layout == "NCHW" else found


def _cropped_type(types: list[Any], attrs: Attrs) -> Type:
    sizes = {"N": types[1].shape[0]} | dict(zip("HW", attrs["crop_size"], strict=True))
    return _in_layout(types[0], attrs["layout"], sizes, attrs["out_dtype"])


define(
    "image.crop_and_resize",
    "data, boxes, box_indices | crop_size, layout='NCHW', method='bilinear', extrapolation_value=0.0, out_dtype=''",
    _crop_and_resize,
    adapt=lambda args, attrs: (
        args,
        attrs
        | {"crop_size": repeated("crop_size", attrs["crop_size"], 2), "out_dtype": dtype_name(attrs["out_dtype"])},
    ),
    relation=of_unknown(_cropped_type),
    shown=("crop_size",),
    pattern=OpPattern.INJECTIVE,
    doc="Boxes (y, x, y', x'), in parts of an image's size, of the images box_indices, resized to crop_size.",
)


def _dilation2d(x: Any, weight: Any, **attrs: Any) -> Any:
    """max over the window of data + weight, where there is data."""
    if attrs["data_layout"] == "NHWC":
        x = ops.permute_dims(x, (0, 3, 1, 2))
    if attrs["kernel_layout"] == "HWI":
        weight = ops.permute_dims(weight, (2, 0, 1))
    channels, height, width = shape_of(weight)
    pads = padding(attrs["padding"], 2)
    lowest = float(np.finfo(dtype_of(x)).min)
    widths = [0, 0, 0, 0, pads[0], pads[2], pads[1], pads[3]]
    sizes = [
        window_size(
            shape_of(x)[2 + i], (height, width)[i], attrs["strides"][i], pads[i], pads[i + 2], attrs["dilations"][i]
        )
        for i in range(2)
    ]
    padded = ops.nn.pad(x, widths, "constant", lowest) if any(widths) else x
    result = None
    for i in range(height):
        for j in range(width):
            begin = [i * attrs["dilations"][0], j * attrs["dilations"][1]]
            end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, sizes, attrs["strides"], strict=True)]
            part = ops.strided_slice(padded, [2, 3], begin, end, list(attrs["strides"]))
            value = ops.reshape(ops.strided_slice(weight, [1, 2], [i, j], [i + 1, j + 1]), (channels, 1, 1))
            part = ops.add(part, value)
            result = part if result is None else ops.maximum(result, part)
    result = cast(result, attrs["out_dtype"])
    return ops.permute_dims(result, (0, 2, 3, 1)) if attrs["data_layout"] == "NHWC" else result


def _dilated_type(types: list[Any], attrs: Attrs) -> Type:
    x, weight = types
    data = dict(zip(attrs["data_layout"], x.shape, strict=True))
    kernel = dict(zip(attrs["kernel_layout"], weight.shape, strict=True))
    pads = padding(attrs["padding"], 2)
    sizes = {
        c: window_size(data[c], kernel[c], attrs["strides"][i], pads[i], pads[i + 2], attrs["dilations"][i])
        for i, c in enumerate("HW")
    }
    return _in_layout(x, attrs["data_layout"], sizes, attrs["out_dtype"])


define(
    "image.dilation2d",
    "data, weight | strides=(1, 1), padding=(0, 0), dilations=(1, 1), data_layout='NCHW', kernel_layout='IHW', "
    "out_dtype=''",
    _dilation2d,
    relation=of_unknown(_dilated_type),
    adapt=lambda args, attrs: (
        args,
        attrs
        | {n: repeated(n, attrs[n], 2) for n in ("strides", "dilations")}
        | {"padding": padding(attrs["padding"], 2), "out_dtype": dtype_name(attrs["out_dtype"])},
    ),
    doc="The grey-scale dilation of each channel: the maximum over windows of data + weight.",
)

# -- channels, blocks, batches


def _block_type(power: int) -> Any:
    """block_size to this power is what the height and the width are multiplied by."""

    def relation(types: list[TensorType], attrs: Attrs) -> Type | None:
        x = types[0]
        if x.is_concrete:
            return None
        block = Fraction(attrs["block_size"]) ** power
        scale = {"C": 1 / block**2, "H": block, "W": block}
        named = zip(attrs["layout"], x.shape, strict=True)
        sizes = {c: AnySize() if is_any(s) else int(s * scale[c]) for c, s in named if c in scale}
        return _in_layout(x, attrs["layout"], sizes)

    return relation


define(
    "nn.depth_to_space",
    "data | block_size, layout='NCHW', mode='DCR'",
    lambda x, *, block_size, layout, mode: ops.nn.depth_to_space(x, block_size, layout=layout, mode=mode),
    relation=_block_type(1),
    pattern=OpPattern.INJECTIVE,
    shown=("block_size",),
    doc="Channels as blocks of pixels.",
)
define(
    "nn.space_to_depth",
    "data | block_size, layout='NCHW', mode='DCR'",
    lambda x, *, block_size, layout, mode: ops.nn.space_to_depth(x, block_size, layout=layout),
    relation=_block_type(-1),
    pattern=OpPattern.INJECTIVE,
    shown=("block_size",),
    doc="Blocks of pixels as channels.",
)


def _space_to_batch(x: Any, *, block_shape: Any, paddings: Any, pad_value: float) -> Any:
    count = len(block_shape)
    flat = [0, 0, *(n for pair in paddings for n in pair), *(0,) * (2 * (rank_of(x) - 1 - count))]
    x = ops.nn.pad(x, flat, "constant", float(pad_value) if "float" in dtype_of(x) else int(pad_value))
    batch, *rest = shape_of(x)
    if any(s % b for s, b in zip(rest, block_shape, strict=False)):
        raise ShapeError(
            f"nn.space_to_batch_nd: the padded sizes {rest[:count]} are no multiples of {list(block_shape)}"
        )
    split = [n for s, b in zip(rest, block_shape, strict=False) for n in (s // b, b)]
    x = ops.reshape(x, (batch, *split, *rest[count:]))
    blocks = [2 + 2 * i for i in range(count)]
    order = (*blocks, 0, *(1 + 2 * i for i in range(count)), *range(1 + 2 * count, rank_of(x)))
    x = ops.permute_dims(x, order)
    sizes = [s // b for s, b in zip(rest, block_shape, strict=False)]
    return ops.reshape(x, (batch * math.prod(block_shape), *sizes, *rest[count:]))


def _batch_to_space(x: Any, *, block_shape: Any, crops: Any) -> Any:
    count, (batch, *rest) = len(block_shape), shape_of(x)
    inner = batch // math.prod(block_shape)
    if inner * math.prod(block_shape) != batch:
        raise ShapeError(f"nn.batch_to_space_nd: the batch of {batch} is no multiple of {math.prod(block_shape)}")
    x = ops.reshape(x, (*block_shape, inner, *rest))
    order = [count, *(n for i in range(count) for n in (count + 1 + i, i)), *range(2 * count + 1, rank_of(x))]
    sizes = [s * b for s, b in zip(rest, block_shape, strict=False)]
    x = ops.reshape(ops.permute_dims(x, tuple(order)), (inner, *sizes, *rest[count:]))
    axes = [i + 1 for i in range(count) if any(crops[i])]
    if not axes:
        return x
    return ops.strided_slice(x, axes, [crops[a - 1][0] for a in axes], [sizes[a - 1] - crops[a - 1][1] for a in axes])


def _batched_type(types: list[Any], attrs: Attrs) -> Type:
    (batch, *rest), blocks = types[0].shape, attrs["block_shape"]
    padded = [total([s, *p]) for s, p in zip(rest, attrs["paddings"], strict=False)]
    sizes = [quotient(s, b) for s, b in zip(padded, blocks, strict=True)]
    return TensorType((product([batch, *blocks]), *sizes, *rest[len(blocks) :]), types[0].dtype)


def _unbatched_type(types: list[Any], attrs: Attrs) -> Type:
    (batch, *rest), blocks = types[0].shape, attrs["block_shape"]
    cropped = zip(rest, blocks, attrs["crops"], strict=False)
    sizes = [total([product([s, b]), *(-n for n in crop)]) for s, b, crop in cropped]
    return TensorType((quotient(batch, math.prod(blocks)), *sizes, *rest[len(blocks) :]), types[0].dtype)


def _pairs(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(ints(name, pair) for pair in python_value(value))


define(
    "nn.space_to_batch_nd",
    "data | block_shape, paddings, pad_value=0.0",
    _space_to_batch,
    relation=of_unknown(_batched_type),
    adapt=lambda args, attrs: (
        args,
        attrs
        | {
            "block_shape": ints("block_shape", attrs["block_shape"]),
            "paddings": _pairs("paddings", attrs["paddings"]),
            "pad_value": float(attrs["pad_value"]),
        },
    ),
    pattern=OpPattern.INJECTIVE,
    shown=("block_shape", "paddings"),
    doc="Blocks of the padded axes after the first as examples of the batch.",
)
define(
    "nn.batch_to_space_nd",
    "data | block_shape, crops",
    _batch_to_space,
    relation=of_unknown(_unbatched_type),
    adapt=lambda args, attrs: (
        args,
        {"block_shape": ints("block_shape", attrs["block_shape"]), "crops": _pairs("crops", attrs["crops"])},
    ),
    pattern=OpPattern.INJECTIVE,
    shown=("block_shape", "crops"),
    doc="Examples of the batch as blocks of the axes after the first, which are then cropped.",
)


def _fifo(x: Any, buffer: Any, *, axis: int) -> Any:
    longer = ops.concat([buffer, x], axis)
    return ops.strided_slice(longer, [axis], [shape_of(x)[axis]], [shape_of(longer)[axis]])


define(
    "nn.fifo_buffer",
    "data, buffer | axis=0",
    _fifo,
    relation=lambda types, attrs: None if all(t.is_concrete for t in types) else types[1],
    doc="The buffer without its oldest elements along the axis, and data behind them.",
)


def _sparse_dense(dense: Any, data: Any, indices: Any, indptr: Any, *, sparse_lhs: bool) -> Any:
    """The row of element k of a matrix in CSR form is the last whose elements begin at or before k."""
    if rank_of(data) != 1:
        raise ShapeError("nn.sparse_dense: the sparse matrix must be in CSR form: data, indices, indptr of one axis")
    rows = shape_of(indptr)[0] - 1
    order = places(range(shape_of(data)[0]), dtype_of(indptr))
    row = ops.subtract(ops.searchsorted(indptr, order, right=True, dtype="int32"), relax.const(np.int32(1)))
    if sparse_lhs:
        found = ops.take(dense, indices, 1)  # (units, elements): dense is (units, inputs)
        return ops.segment_reduce(ops.permute_dims(ops.multiply(found, data), (1, 0)), row, rows)
    found = ops.multiply(ops.take(dense, indices, 1), data)  # (examples, elements)
    return ops.permute_dims(ops.segment_reduce(ops.permute_dims(found, (1, 0)), row, rows), (1, 0))


def sparse_dense(dense_mat: Any, sparse_mat: Any, sparse_lhs: bool = False) -> Any:
    """dense_mat · sparse_matᵀ, or with sparse_lhs sparse_mat · dense_matᵀ.

    ``sparse_mat``: (data, indices, indptr) of a matrix in CSR form, or an object with these attributes, as SciPy has.
    """
    from pullback.relay.expr import Expr, const

    parts = [sparse_mat.data, sparse_mat.indices, sparse_mat.indptr] if hasattr(sparse_mat, "indptr") else sparse_mat
    parts = [p if isinstance(p, Expr) else const(p) for p in parts]
    return call_op("nn.sparse_dense", dense_mat, *parts, sparse_lhs=sparse_lhs)


def _sparse_type(types: list[Any], attrs: Attrs) -> Type:
    ends = (types[0].shape[0], total([types[3].shape[0], -1]))
    return TensorType(ends[::-1] if attrs["sparse_lhs"] else ends, types[0].dtype)


define(
    "nn.sparse_dense",
    "dense_mat, sparse_data, sparse_indices, sparse_indptr | sparse_lhs=False",
    _sparse_dense,
    relation=of_unknown(_sparse_type),
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    doc="dense_mat · sparseᵀ, or with sparse_lhs sparse · dense_matᵀ, of a matrix in CSR form.",
)
