"""DenseNet. Huang et al., Densely Connected Convolutional Networks, 2017."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import relay
from pullback.ir.errors import ArgumentError
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import batch_norm_infer, conv2d, dense_add_bias

_SPECS = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


def _layer(data: Any, growth_rate: int, bn_size: int, name: str) -> Any:
    """Two convolutions, each after its normalization and relu, and their result beside the data."""
    body = relay.nn.relu(batch_norm_infer(data, name=f"{name}_bn1"))
    body = conv2d(body, channels=bn_size * growth_rate, kernel_size=(1, 1), name=f"{name}_conv1")
    body = relay.nn.relu(batch_norm_infer(body, name=f"{name}_bn2"))
    body = conv2d(body, channels=growth_rate, kernel_size=(3, 3), padding=(1, 1), name=f"{name}_conv2")
    return relay.concatenate((data, body), axis=1)


def _transition(data: Any, channels: int, name: str) -> Any:
    body = relay.nn.relu(batch_norm_infer(data, name=f"{name}_bn"))
    body = conv2d(body, channels=channels, kernel_size=(1, 1), name=f"{name}_conv")
    return relay.nn.avg_pool2d(body, pool_size=(2, 2), strides=(2, 2))


def densenet(
    num_init_features: int,
    growth_rate: int,
    block_config: Sequence[int],
    data_shape: Sequence[int],
    data_dtype: str,
    bn_size: int = 4,
    classes: int = 1000,
) -> relay.Function:
    """The network of blocks of so many layers, each of which adds growth_rate channels."""
    data = relay.var("data", shape=tuple(data_shape), dtype=data_dtype)
    window = {"kernel_size": (7, 7), "strides": (2, 2), "padding": (3, 3)}
    body = conv2d(data, channels=num_init_features, name="conv1", **window)
    body = relay.nn.relu(batch_norm_infer(body, name="batch1"))
    body = relay.nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    channels = num_init_features
    for i, count in enumerate(block_config):
        for j in range(count):
            body = _layer(body, growth_rate, bn_size, f"block{i + 1}_layer{j + 1}")
        channels += count * growth_rate
        if i + 1 < len(block_config):
            channels //= 2
            body = _transition(body, channels, f"transition{i + 1}")
    body = relay.nn.relu(batch_norm_infer(body, name="batch5"))
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(body))
    result = dense_add_bias(flat, units=classes, name="dense1")
    return relay.Function(relay.analysis.free_vars(result), result)


def get_workload(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[Any, dict[str, Any]]:
    """The network of 121, 161, 169 or 201 layers as a module, and values of its parameters."""
    if densenet_size not in _SPECS:
        known = ", ".join(map(str, _SPECS))
        raise ArgumentError(f"there is no densenet of {densenet_size} layers", hint=f"there are those of {known}")
    first, growth, blocks = _SPECS[densenet_size]
    return create_workload(densenet(first, growth, blocks, (batch_size, *image_shape), dtype, classes=classes))
