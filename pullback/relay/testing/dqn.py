"""The network of deep Q-learning. Mnih et al., Human-Level Control through Deep Reinforcement Learning, 2015."""

from __future__ import annotations

from typing import Any

from pullback import relay
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import conv2d, conv_kernel_layout, dense_add_bias


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> relay.Function:
    """The values of the actions for several images: three convolutions and two dense layers."""
    layouts = {"data_layout": layout, "kernel_layout": conv_kernel_layout(layout)}
    body = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    for number, (channels, taps, stride) in enumerate([(32, 8, 4), (64, 4, 2), (64, 3, 1)], 1):
        window = {"channels": channels, "kernel_size": (taps, taps), "strides": (stride, stride), "padding": (0, 0)}
        body = conv2d(body, name=f"conv{number}", **window, **layouts)
        bias = relay.var(f"conv{number}_bias")
        body = relay.nn.relu(relay.nn.bias_add(body, bias, axis=layout.index("C")))
    body = relay.nn.relu(dense_add_bias(relay.nn.batch_flatten(body), units=512, name="dense1"))
    result = dense_add_bias(body, units=num_actions, name="dense2")
    return relay.Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[Any, dict[str, Any]]:
    """The network as a module, and values of its parameters."""
    return create_workload(get_net(batch_size, num_actions, image_shape, dtype, layout))
