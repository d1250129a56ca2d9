"""Preprocessing layers that are arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.keras.ops.image import resized
from pullback.relax.frontend.keras.ops.network import layout
from pullback.relax.frontend.keras.table import KERAS, Call, cast


@KERAS.register("layers.Normalization")
def normalization(c: Call, inputs: Any) -> Any:
    from keras import config

    x = c.cast(inputs)
    mean, variance = (c.cast(c.trace.unwrapped(v)) for v in (c.mean, c.variance))
    deviation = op.maximum(op.sqrt(variance), cast(config.epsilon(), x.dtype))
    return mean + x * deviation if c.invert else (x - mean) / deviation


@KERAS.register("layers.Rescaling")
def rescaling(c: Call, inputs: Any) -> Any:
    from keras import config

    scale, offset = (np.asarray(v) for v in (c.scale, c.offset))
    if scale.ndim and config.image_data_format() == "channels_first":
        scale = scale.reshape(scale.shape + (1,) * (3 - scale.ndim))
    return c.cast(inputs) * const(scale, c.dtype) + const(offset, c.dtype)


@KERAS.register("layers.CategoryEncoding")
def category_encoding(c: Call, inputs: Any, count_weights: Any = None) -> Any:
    return _encoded(c, inputs, c.output_mode, c.num_tokens, count_weights)


@KERAS.register("layers.Discretization")
def discretization(c: Call, inputs: Any) -> Any:
    boundaries = const(np.asarray(c.bin_boundaries, "float32"))
    places = op.bucketize(cast(inputs, "float32"), boundaries, right=True)
    return _encoded(c, places, c.output_mode, len(c.bin_boundaries) + 1)


def _encoded(c: Call, x: Any, mode: str, depth: int, weights: Any = None) -> Any:
    if c.sparse:
        raise UserError("sparse tensors are not converted", hint="sparse=False")
    if mode == "int":
        return c.cast(x)
    x = x if "int" in x.dtype else cast(x, "int64")
    x = x if x.shape else op.expand_dims(x, 0)
    if mode == "one_hot" and len(x.shape) > 1 and x.shape[-1] == 1:
        x = op.squeeze(x, -1)
    hot = op.one_hot(x, 1.0, 0.0, depth)
    if mode == "one_hot":
        return c.cast(hot)
    axis = 1 if len(x.shape) > 1 else 0
    if mode == "multi_hot":
        return c.cast(op.max(hot, axis))
    if weights is not None:
        hot = hot * op.expand_dims(cast(weights, "float32"), -1)
    return c.cast(op.sum(hot, axis))


@KERAS.register("layers.Resizing")
def resizing(c: Call, inputs: Any, training: Any = None) -> Any:
    if c.crop_to_aspect_ratio or c.pad_to_aspect_ratio:
        raise UserError("a resize that keeps the aspect ratio is not converted", hint="crop or pad the images first")
    found = resized(inputs, (c.height, c.width), c.interpolation, bool(c.antialias), layout(c.data_format, 2))
    return c.cast(found)


@KERAS.register("layers.CenterCrop")
def center_crop(c: Call, inputs: Any, training: Any = None) -> Any:
    axis = layout(c.data_format, 2).index("H") - (4 - len(inputs.shape))
    sizes, wanted = inputs.shape[axis : axis + 2], (c.height, c.width)
    if not all(isinstance(s, int) and s >= w for s, w in zip(sizes, wanted, strict=True)):
        raise UserError(f"CenterCrop of images of the sizes {tuple(sizes)} to {wanted} is not converted")
    begins = [int((s - w) / 2) for s, w in zip(sizes, wanted, strict=True)]
    found = op.strided_slice(inputs, [axis, axis + 1], begins, [b + w for b, w in zip(begins, wanted, strict=True)])
    return c.cast(found)
