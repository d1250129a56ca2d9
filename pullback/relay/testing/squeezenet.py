"""SqueezeNet. Iandola et al., SqueezeNet: AlexNet-Level Accuracy with 50x Fewer Parameters, 2016."""

from __future__ import annotations

from typing import Any

from pullback import relay
from pullback.ir.errors import ArgumentError
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import conv2d

_SQUEEZED = [16, 16, 32, 32, 48, 48, 64, 64]
_POOLED = {"1.0": ((96, 7), {0, 3, 7}), "1.1": ((64, 3), {0, 2, 4})}  # first channels and taps; pools before a fire


def _conv(net: Any, name: str, channels: int, taps: int, padding: int = 0, stride: int = 1) -> Any:
    window = {"channels": channels, "kernel_size": (taps, taps), "strides": (stride, stride)}
    found = conv2d(net, name=f"{name}_conv", padding=(padding, padding), **window)
    return relay.nn.relu(relay.nn.bias_add(found, relay.var(f"{name}_conv_bias")))


def _fire(net: Any, channels: int, prefix: str) -> Any:
    """A convolution of one tap to few channels, and from these one of one tap and one of three, side by side."""
    net = _conv(net, f"{prefix}_input", channels, 1)
    left = _conv(net, f"{prefix}_left", 4 * channels, 1)
    right = _conv(net, f"{prefix}_right", 4 * channels, 3, padding=1)
    return relay.concatenate((left, right), axis=1)


def get_net(
    batch_size: int, image_shape: tuple[int, ...], num_classes: int, version: str, dtype: str
) -> relay.Function:
    """The network of version 1.0 or 1.1."""
    if version not in _POOLED:
        raise ArgumentError(f"there is no squeezenet of version {version!r}", hint="there are 1.0 and 1.1")
    (channels, taps), pooled = _POOLED[version]
    net = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    net = _conv(net, "conv1", channels, taps, stride=2)
    for i, squeezed in enumerate(_SQUEEZED):
        if i in pooled:
            net = relay.nn.max_pool2d(net, pool_size=(3, 3), strides=(2, 2))
        net = _fire(net, squeezed, f"fire{i + 1}")
    net = relay.nn.dropout(net, rate=0.5)
    net = _conv(net, "conv_final", num_classes, 1)
    result = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(net)))
    return relay.Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[Any, dict[str, Any]]:
    """The network as a module, and values of its parameters."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype))
