"""A small network of several kinds of layers, for tests."""

from __future__ import annotations

from typing import Any

from pullback import relay
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import batch_norm_infer


def _stage(data: Any, like: Any, shape: tuple[int, ...], prefix: str, dtype: str) -> Any:
    """A product along the last axis and a convolution, added."""
    width, channels = shape[3], shape[1]
    lines = relay.reshape(data, (-1, width))
    product = relay.nn.dense(lines, relay.var(f"{prefix}dense_weight", shape=(width, width), dtype=dtype))
    window = relay.var(f"{prefix}conv_weight", shape=(channels, channels, 3, 3), dtype=dtype)
    images = relay.nn.conv2d(data, window, padding=1, kernel_size=3)
    return relay.add(relay.reshape_like(relay.nn.relu(product), like), images)


def get_net(
    input_shape: tuple[int, ...] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> relay.Function:
    """Two stages of a product and a convolution, with a bias and a normalization between them; the result has the shape
    of the data."""
    kind = wtype or dtype
    data = relay.var("data", shape=input_shape, dtype=dtype)
    body = _stage(data, data, input_shape, "", kind)
    body = relay.nn.bias_add(body, relay.var("bias", shape=(input_shape[1],), dtype=kind))
    body = batch_norm_infer(body, name="batch_norm")
    body = _stage(relay.nn.softmax(body), data, input_shape, "second_", kind)
    return relay.Function(relay.analysis.free_vars(body), body)


def get_workload(
    input_shape: tuple[int, ...] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """The network as a module, and values of its parameters."""
    return create_workload(get_net(input_shape, dtype, wtype))
