"""Convolutions and pools in layouts with blocks are those in plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import UserError
from pullback.relay.expr import Function
from pullback.relay.expr import call_op as op
from tests.relay.dataflow import evaluated, free, typed


def blocks(x: np.ndarray, axis: int, size: int) -> np.ndarray:
    """``x`` with an axis cut into blocks, whose places are the last axis."""
    shape = x.shape
    cut = x.reshape(*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])
    return np.moveaxis(cut, axis + 1, -1)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def computed(build: Any, *arrays: np.ndarray) -> np.ndarray:
    params = [free(f"x{i}", *a.shape) for i, a in enumerate(arrays)]
    return evaluated(typed(Function(tuple(params), build(*params))), list(arrays))


@pytest.mark.parametrize("out", ["", "NCHW2c", "NCHW", "NHWC", "NCHW3c"])
def test_convolution(out: str) -> None:
    x, w = drawn(2, 4, 5, 5), drawn(6, 4, 3, 3)
    attrs = {"channels": 6, "kernel_size": (3, 3), "padding": (1, 1)}
    plain = computed(lambda x, w: op("nn.conv2d", x, w, **attrs), x, w)
    layouts = {"data_layout": "NCHW2c", "kernel_layout": "OIHW2i3o", "out_layout": out}
    cut = blocks(blocks(w, 1, 2), 0, 3)
    found = computed(lambda x, w: op("nn.conv2d", x, w, **attrs, **layouts), blocks(x, 1, 2), cut)
    if out == "NHWC":
        expected = np.moveaxis(plain, 1, -1)
    else:
        expected = plain if out == "NCHW" else blocks(plain, 1, 3 if out == "NCHW3c" else 2)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_depthwise_convolution() -> None:
    x, w = drawn(1, 4, 5, 5), drawn(4, 1, 3, 3)
    plain = computed(lambda x, w: op("nn.conv2d", x, w, groups=4, channels=4, kernel_size=(3, 3)), x, w)
    layouts = {"data_layout": "NCHW2c", "kernel_layout": "OIHW1i2o"}
    cut = blocks(blocks(w, 1, 1), 0, 2)
    found = computed(
        lambda x, w: op("nn.conv2d", x, w, groups=4, channels=4, kernel_size=(3, 3), **layouts), blocks(x, 1, 2), cut
    )
    np.testing.assert_allclose(found, blocks(plain, 1, 2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("nn.max_pool2d", {"pool_size": (2, 2), "strides": (2, 2)}),
        ("nn.avg_pool2d", {"pool_size": (3, 3), "padding": (1, 1)}),
        ("nn.global_avg_pool2d", {}),
        ("nn.global_max_pool2d", {"out_layout": "NCHW2c"}),
    ],
)
def test_pools(name: str, attrs: dict[str, Any]) -> None:
    x = drawn(2, 4, 6, 6)
    plain = computed(lambda x: op(name, x, **{k: v for k, v in attrs.items() if k != "out_layout"}), x)
    found = computed(lambda x: op(name, x, layout="NCHW2c", **attrs), blocks(x, 1, 2))
    np.testing.assert_allclose(found, blocks(plain, 1, 2), rtol=1e-5, atol=1e-5)


def test_blocks_that_do_not_fit() -> None:
    x, w = free("x", 2, 2, 5, 5, 2), free("w", 5, 4, 3, 3)
    with pytest.raises(UserError, match="no multiple of 2"):
        typed(Function((x, w), op("nn.conv2d", x, w, channels=5, kernel_size=(3, 3), data_layout="NCHW2c")))
