"""Resizing, sampling, padding and what else moves pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.nn import functional as F
from pullback.relax.frontend.torch.table import ATEN

_UPSAMPLING = {
    "nearest1d": "nearest", "nearest2d": "nearest", "nearest3d": "nearest", "linear1d": "linear",
    "bilinear2d": "bilinear", "trilinear3d": "trilinear", "bicubic2d": "bicubic",
}  # fmt: skip
_EXACT = {f"nearest_exact{rank}d": "nearest-exact" for rank in (1, 2, 3)}


def _add_upsampling(name: str, mode: str) -> None:
    has_corners = "nearest" not in mode

    def resized(input: Any, size: Any, *rest: Any) -> Any:
        """``rest``: align_corners, where the mode has it, and the factors, one after the other."""
        corners, factors = (rest[0], rest[1:]) if has_corners else (None, rest)
        return _resized(input, size, factors, mode, corners)

    def by_factors(input: Any, size: Any, *rest: Any) -> Any:
        """The same with the factors in a list, and either sizes or these."""
        corners, factors = (rest[0], rest[1]) if has_corners else (None, rest[0])
        return _resized(input, size, factors or (), mode, corners)

    ATEN.register(f"aten.{name}")(resized)
    ATEN.register(f"aten.{name}.vec")(by_factors)


def _resized(input: Any, size: Any, factors: Sequence[Any], mode: str, corners: bool | None) -> Any:
    if factors and all(factor is not None for factor in factors):
        return F.interpolate(input, None, tuple(factors), mode, corners)
    return F.interpolate(input, tuple(size), None, mode, corners)


for _name, _mode in _UPSAMPLING.items():
    _add_upsampling(f"upsample_{_name}", _mode)
for _name, _mode in _EXACT.items():
    _add_upsampling(f"_upsample_{_name}", _mode)
ATEN.refuse(
    {
        f"aten._upsample_{name}2d_aa": "antialias=True; blur with a convolution before, and resize without it"
        for name in ("bilinear", "bicubic", "lanczos")
    }
)


@ATEN.register("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    mode, padding = ("bilinear", "nearest", "bicubic")[interpolation_mode], ("zeros", "border", "reflection")
    return F.grid_sample(input, grid, mode, padding[padding_mode], align_corners)


@ATEN.register("aten.affine_grid_generator")
def affine_grid_generator(theta: Any, size: Sequence[Any], align_corners: bool) -> Any:
    return F.affine_grid(theta, size, align_corners)


# -- padding


@ATEN.register("aten.pad")
def pad(input: Any, pad: Sequence[Any], mode: str, value: float | None) -> Any:
    return F.pad(input, tuple(pad), mode, value)


@ATEN.register("aten.constant_pad_nd")
def constant_pad_nd(input: Any, pad: Sequence[Any], value: Any) -> Any:
    return F.pad(input, tuple(pad), "constant", value)


def _add_padding(name: str, mode: str) -> None:
    for rank in (1, 2, 3):

        def padded(input: Any, padding: Sequence[Any]) -> Any:
            return F.pad(input, tuple(padding), mode)

        ATEN.register(f"aten.{name}_pad{rank}d")(padded)


_add_padding("reflection", "reflect")
_add_padding("replication", "replicate")


@ATEN.register("aten._pad_circular")
def pad_circular(input: Any, pad: Sequence[Any]) -> Any:
    return F.pad(input, tuple(pad), "circular")


# -- pixels and windows

ATEN.same(
    {
        "aten.pixel_shuffle": F.pixel_shuffle,
        "aten.pixel_unshuffle": F.pixel_unshuffle,
        "aten.channel_shuffle": F.channel_shuffle,
        "aten.native_channel_shuffle": F.channel_shuffle,
    }
)


@ATEN.register("aten.im2col")
def im2col(input: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return F.unfold(input, tuple(kernel_size), tuple(dilation), tuple(padding), tuple(stride))


@ATEN.register("aten.col2im")
def col2im(input: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    given = (tuple(v) for v in (output_size, kernel_size, dilation, padding, stride))
    return F.fold(input, *given)
