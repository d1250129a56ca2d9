"""Images: ``keras.ops.image``."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.frontend.keras.ops.network import layout, numbers
from pullback.relax.frontend.keras.table import KERAS, Call, cast

_METHODS = {"nearest": "nearest_neighbor", "bilinear": "linear"}


@KERAS.register("ops.Resize")
def resize(c: Call, images: Any) -> Any:
    if c.crop_to_aspect_ratio or c.pad_to_aspect_ratio:
        raise UserError("a resize that keeps the aspect ratio is not converted", hint="crop or pad the images first")
    return resized(images, c.size, c.interpolation, c.antialias, layout(c.data_format, 2))


def resized(images: Any, size: Any, interpolation: str, antialias: bool, data_layout: str) -> Any:
    """Images (N, H, W, C), or as the layout says, or one of them, in another size."""
    if interpolation not in _METHODS or antialias:
        raise UserError(
            f"a resize with interpolation={interpolation!r} and antialias={antialias} is not converted",
            hint="'bilinear' and 'nearest' without antialias are",
        )
    single = len(images.shape) == 3
    data = op.expand_dims(images, 0) if single else images
    dtype = data.dtype
    if "float" not in dtype and interpolation == "bilinear":
        data = cast(data, "float32")
    found = op.image.resize2d(
        data, tuple(size), layout=data_layout, method=_METHODS[interpolation],
        coordinate_transformation_mode="half_pixel",
        rounding_method="round_prefer_ceil" if interpolation == "nearest" else "round",
    )  # fmt: skip
    if found.dtype != dtype:
        found = cast(op.round(found), dtype)
    return op.squeeze(found, 0) if single else found


@KERAS.register("ops.RGBToGrayscale")
def rgb_to_grayscale(c: Call, images: Any) -> Any:
    axis = -1 if layout(c.data_format, 2)[-1] == "C" else -3
    parts = [op.strided_slice(images, [axis % len(images.shape)], [k], [k + 1]) for k in range(3)]
    return parts[0] * 0.2989 + parts[1] * 0.587 + parts[2] * 0.114


@KERAS.register("ops.ExtractPatches")
def extract_patches(c: Call, images: Any) -> Any:
    """Each patch as channels: a convolution whose kernel picks one pixel a channel."""
    data = layout(c.data_format, len(numbers(c.size, 2)))
    if data[-1] != "C" or len(images.shape) != 4:
        raise UserError("extract_patches of images (N, H, W, C) alone is converted")
    window = numbers(c.size, 2)
    strides = window if c.strides is None else numbers(c.strides, 2)
    count, channels = window[0] * window[1], images.shape[-1]
    picks = op.reshape(op.eye(count * channels, dtype=images.dtype), (*window, channels, count * channels))
    return op.nn.conv2d(
        images, picks, strides, c.padding.lower(), numbers(c.dilation_rate, 2), 1, data_layout=data,
        kernel_layout="HWIO",
    )  # fmt: skip
