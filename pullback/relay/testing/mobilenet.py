"""MobileNet. Howard et al., MobileNets: Efficient Convolutional Neural Networks for Mobile Vision Applications,
2017."""

from __future__ import annotations

from typing import Any

from pullback import relay
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import batch_norm_infer, conv2d, conv_kernel_layout, dense_add_bias


def conv_block(
    data: Any,
    name: str,
    channels: int,
    kernel_size: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
) -> Any:
    """A convolution, its normalization and relu."""
    window = {"channels": channels, "kernel_size": kernel_size, "strides": strides, "padding": padding}
    layouts = {"data_layout": layout, "kernel_layout": conv_kernel_layout(layout)}
    found = conv2d(data, name=f"{name}_conv", **window, **layouts)
    return relay.nn.relu(batch_norm_infer(found, epsilon=epsilon, axis=layout.index("C"), name=f"{name}_bn"))


def separable_conv_block(
    data: Any,
    name: str,
    depthwise_channels: int,
    pointwise_channels: int,
    kernel_size: tuple[int, int] = (3, 3),
    downsample: bool = False,
    padding: tuple[int, int] = (1, 1),
    epsilon: float = 1e-5,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Any:
    """A convolution of each channel and one of one tap, each with its normalization and relu."""
    axis = layout.index("C")
    strides = (2, 2) if downsample else (1, 1)
    shape = (depthwise_channels, 1, *kernel_size) if layout == "NCHW" else (*kernel_size, depthwise_channels, 1)
    first = conv2d(
        data,
        relay.var(f"{name}_weight", shape=shape, dtype=dtype),
        channels=depthwise_channels,
        groups=depthwise_channels,
        kernel_size=kernel_size,
        strides=strides,
        padding=padding,
        data_layout=layout,
        kernel_layout=conv_kernel_layout(layout, is_depthwise=True),
        name=f"{name}_depthwise_conv1",
    )
    first = relay.nn.relu(batch_norm_infer(first, epsilon=epsilon, axis=axis, name=f"{name}_bn1"))
    window = {"channels": pointwise_channels, "kernel_size": (1, 1)}
    layouts = {"data_layout": layout, "kernel_layout": conv_kernel_layout(layout)}
    second = conv2d(first, name=f"{name}_conv2", **window, **layouts)
    return relay.nn.relu(batch_norm_infer(second, epsilon=epsilon, axis=axis, name=f"{name}_bn2"))


_BEGIN = [(32, 64, False), (64, 128, True), (128, 128, False), (128, 256, True), (256, 256, False), (256, 512, True)]
_SHALLOW = [(512, 1024, True), (1024, 1024, True)]
_DEEP = [(512, 512, False)] * 5 + [(512, 1024, True), (1024, 1024, False)]


def mobile_net(
    num_classes: int = 1000,
    data_shape: tuple[int, ...] = (1, 3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> relay.Function:
    """The network, with alpha times as many channels."""
    body = relay.var("data", shape=data_shape, dtype=dtype)
    body = conv_block(body, "conv_block_1", int(32 * alpha), strides=(2, 2), layout=layout)
    for number, (inputs, outputs, down) in enumerate(_BEGIN + (_SHALLOW if is_shallow else _DEEP), 1):
        sizes = int(inputs * alpha), int(outputs * alpha)
        name = f"separable_conv_block_{number}"
        body = separable_conv_block(body, name, *sizes, downsample=down, layout=layout, dtype=dtype)
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body, layout=layout))
    result = relay.nn.softmax(dense_add_bias(flat, units=num_classes, name="fc"))
    return relay.Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> tuple[Any, dict[str, Any]]:
    """The network as a module, and values of its parameters."""
    return create_workload(mobile_net(num_classes, (batch_size, *image_shape), dtype, layout=layout))
