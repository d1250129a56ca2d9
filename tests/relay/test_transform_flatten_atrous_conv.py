"""FlattenAtrousConv: three ops of a dilated convolution are one."""

from __future__ import annotations

from typing import Any

import pytest

from pullback.relay.expr import Expr, Function
from pullback.relay.expr import call_op as op
from pullback.relay.transform import FlattenAtrousConv
from tests.relay.dataflow import becomes, free, same_values, stays

X, W = free("x", 1, 5, 6, 3), free("w", 3, 3, 3, 4)


def conv(x: Expr, **attrs: Any) -> Expr:
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    return op("nn.conv2d", x, W, channels=4, kernel_size=(3, 3), **{**layouts, **attrs})


def in_blocks(
    block: tuple[int, int],
    paddings: Any,
    crops: Any,
    back: tuple[int, int] | None = None,
    value: float = 0.0,
    **attrs: Any,
) -> Function:
    there = op("nn.space_to_batch_nd", X, block_shape=block, paddings=paddings, pad_value=value)
    body = op("nn.batch_to_space_nd", conv(there, **attrs), block_shape=back or block, crops=crops)
    return Function((X, W), body)


@pytest.mark.parametrize(
    ("block", "paddings", "crops", "padding"),
    [
        ((2, 2), ((2, 3), (2, 2)), ((0, 1), (0, 0)), (2, 2, 2, 2)),
        ((1, 2), ((0, 0), (0, 0)), ((0, 0), (0, 0)), (0, 0, 0, 0)),
        ((3, 2), ((3, 4), (3, 3)), ((1, 0), (0, 1)), (2, 3, 4, 2)),
    ],
)
def test_dilated(block: Any, paddings: Any, crops: Any, padding: Any) -> None:
    before = in_blocks(block, paddings, crops)
    same_values(
        before, becomes(FlattenAtrousConv(), before, Function((X, W), conv(X, dilation=block, padding=padding)))
    )


@pytest.mark.parametrize(
    "before",
    [
        lambda: in_blocks((1, 2), ((0, 0), (0, 0)), ((0, 0), (0, 1))),  # more is cut off than was added
        lambda: in_blocks((1, 2), ((0, 0), (0, 0)), ((0, 0), (0, 0)), padding=(1, 1)),
        lambda: in_blocks((1, 2), ((0, 0), (0, 0)), ((0, 0), (0, 0)), strides=(2, 1)),
        lambda: in_blocks((1, 2), ((0, 0), (0, 0)), ((0, 0), (0, 0)), back=(2, 1)),
        lambda: in_blocks((1, 2), ((0, 0), (2, 2)), ((0, 0), (0, 0)), value=1.0),
    ],
)
def test_what_stays(before: Any) -> None:
    stays(FlattenAtrousConv(), before())
