"""Residual networks, with the normalization before each convolution. He et al., Identity Mappings in Deep Residual
Networks, 2016."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import relay
from pullback.ir.errors import ArgumentError
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import batch_norm_infer, conv2d, conv_kernel_layout, dense_add_bias

_EPSILON = 2e-5
_UNITS = {  # number of layers → units of each stage, of large images
    18: [2, 2, 2, 2],
    34: [3, 4, 6, 3],
    50: [3, 4, 6, 3],
    101: [3, 4, 23, 3],
    152: [3, 8, 36, 3],
    200: [3, 24, 36, 3],
    269: [3, 30, 48, 8],
}


def residual_unit(
    data: Any,
    num_filter: int,
    stride: tuple[int, int],
    dim_match: bool,
    name: str,
    bottle_neck: bool = True,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> Any:
    """One unit: two convolutions of three taps, or with bottle_neck one of three between two of one tap, and the data
    itself (dim_match) or a projection of it added."""
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    narrow = num_filter // 4
    if bottle_neck:
        plan = [(narrow, 1, stride), (narrow, 3, (1, 1)), (num_filter, 1, (1, 1))]
    else:
        plan = [(num_filter, 3, stride), (num_filter, 3, (1, 1))]
    hidden, first = data, None
    for number, (channels, taps, strides) in enumerate(plan, 1):
        normal = batch_norm_infer(hidden, epsilon=_EPSILON, axis=data_layout.index("C"), name=f"{name}_bn{number}")
        active = relay.nn.relu(normal)
        first = active if first is None else first
        around = (taps // 2, taps // 2)
        window = {"channels": channels, "kernel_size": (taps, taps), "strides": strides, "padding": around}
        hidden = conv2d(active, name=f"{name}_conv{number}", **window, **layouts)
    if dim_match:
        return relay.add(hidden, data)
    window = {"channels": num_filter, "kernel_size": (1, 1), "strides": stride}
    return relay.add(hidden, conv2d(first, name=f"{name}_sc", **window, **layouts))


def resnet(
    units: Sequence[int],
    num_stages: int,
    filter_list: Sequence[int],
    num_classes: int,
    data_shape: Sequence[int],
    bottle_neck: bool = True,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> relay.Function:
    """The network of so many units in each stage, of filter_list[i + 1] channels."""
    if len(units) != num_stages:
        raise ArgumentError(f"resnet: {num_stages} stages, but units has {len(units)} numbers")
    layouts = {"data_layout": layout, "kernel_layout": conv_kernel_layout(layout)}
    axis = layout.index("C")
    data = relay.var("data", shape=tuple(data_shape), dtype=dtype)
    body = batch_norm_infer(data, epsilon=_EPSILON, axis=axis, scale=False, name="bn_data")
    first: dict[str, Any] = {"channels": filter_list[0], "name": "conv0"} | layouts
    if data_shape[layout.index("H")] <= 32:
        body = conv2d(body, kernel_size=(3, 3), strides=(1, 1), padding=(1, 1), **first)
    else:
        body = conv2d(body, kernel_size=(7, 7), strides=(2, 2), padding=(3, 3), **first)
        body = relay.nn.relu(batch_norm_infer(body, epsilon=_EPSILON, axis=axis, name="bn0"))
        body = relay.nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for i in range(num_stages):
        for j in range(units[i]):
            stride = (1, 1) if i == 0 or j > 0 else (2, 2)
            name = f"stage{i + 1}_unit{j + 1}"
            body = residual_unit(body, filter_list[i + 1], stride, j > 0, name, bottle_neck, **layouts)
    body = relay.nn.relu(batch_norm_infer(body, epsilon=_EPSILON, axis=axis, name="bn1"))
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body, layout=layout))
    result = relay.nn.softmax(dense_add_bias(flat, units=num_classes, name="fc1"))
    return relay.Function(relay.analysis.free_vars(result), result)


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> relay.Function:
    """The network of num_layers layers. Images up to 28 high have three stages, others four.

    Raises ArgumentError where there is no network of so many layers.
    """
    height = image_shape[layout.index("H") - 1]
    if height <= 28:
        deep = num_layers >= 164
        per_unit = 9 if deep else 6
        if (num_layers - 2) % per_unit:
            raise ArgumentError(f"there is no resnet of {num_layers} layers for small images", hint="such as 8, 14, 20")
        units = [(num_layers - 2) // per_unit] * 3
        filters = [16, 64, 128, 256] if deep else [16, 16, 32, 64]
    else:
        if num_layers not in _UNITS:
            known = ", ".join(map(str, _UNITS))
            raise ArgumentError(f"there is no resnet of {num_layers} layers", hint=f"there are those of {known}")
        deep, units = num_layers >= 50, _UNITS[num_layers]
        filters = [64, 256, 512, 1024, 2048] if deep else [64, 64, 128, 256, 512]
    shape = (batch_size, *image_shape)
    return resnet(units, len(units), filters, num_classes, shape, bottle_neck=deep, layout=layout, dtype=dtype)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[Any, dict[str, Any]]:
    """The network as a module, and values of its parameters."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype))
