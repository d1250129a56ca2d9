"""VGG. Simonyan & Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, 2015."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import relay
from pullback.ir.errors import ArgumentError
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import batch_norm_infer, conv2d, dense_add_bias

_LAYERS = {11: [1, 1, 2, 2, 2], 13: [2, 2, 2, 2, 2], 16: [2, 2, 3, 3, 3], 19: [2, 2, 4, 4, 4]}
_FILTERS = [64, 128, 256, 512, 512]


def get_feature(internal_layer: Any, layers: Sequence[int], filters: Sequence[int], batch_norm: bool = False) -> Any:
    """So many convolutions of so many channels in each stage, and a pooling after it."""
    for i, count in enumerate(layers, 1):
        for j in range(1, count + 1):
            window = {"kernel_size": (3, 3), "padding": (1, 1), "channels": filters[i - 1]}
            internal_layer = conv2d(internal_layer, name=f"conv{i}_{j}", **window)
            bias = relay.var(f"conv{i}_{j}_bias")
            internal_layer = relay.nn.bias_add(internal_layer, bias)
            if batch_norm:
                internal_layer = batch_norm_infer(internal_layer, name=f"bn{i}_{j}")
            internal_layer = relay.nn.relu(internal_layer)
        internal_layer = relay.nn.max_pool2d(internal_layer, pool_size=(2, 2), strides=(2, 2))
    return internal_layer


def get_classifier(input_data: Any, num_classes: int) -> Any:
    """Three dense layers, with dropout between them."""
    body = relay.nn.batch_flatten(input_data)
    for number in (6, 7):
        body = relay.nn.relu(dense_add_bias(body, units=4096, name=f"fc{number}"))
        body = relay.nn.dropout(body, rate=0.5)
    return dense_add_bias(body, units=num_classes, name="fc8")


def get_net(
    batch_size: int,
    image_shape: tuple[int, ...],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
) -> relay.Function:
    """The network of 11, 13, 16 or 19 layers."""
    if num_layers not in _LAYERS:
        known = ", ".join(map(str, _LAYERS))
        raise ArgumentError(f"there is no vgg of {num_layers} layers", hint=f"there are those of {known}")
    data = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = get_feature(data, _LAYERS[num_layers], _FILTERS, batch_norm)
    result = relay.nn.softmax(get_classifier(body, num_classes))
    return relay.Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """The network as a module, and values of its parameters."""
    return create_workload(get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm))
