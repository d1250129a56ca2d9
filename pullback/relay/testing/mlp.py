"""A perceptron of three layers."""

from __future__ import annotations

from typing import Any

from pullback import relay
from pullback.relay.testing.init import create_workload
from pullback.relay.testing.layers import dense_add_bias


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> relay.Function:
    """Layers of 128, 64 and num_classes units, with relu between them and softmax at the end."""
    data = relay.var("data", shape=(batch_size, *image_shape), dtype=dtype)
    hidden = relay.nn.batch_flatten(data)
    for number, units in enumerate((128, 64), 1):
        hidden = relay.nn.relu(dense_add_bias(hidden, units=units, name=f"fc{number}"))
    result = relay.nn.softmax(dense_add_bias(hidden, units=num_classes, name="fc3"))
    return relay.Function(relay.analysis.free_vars(result), result)


def get_workload(
    batch_size: int,
    num_classes: int = 10,
    image_shape: tuple[int, ...] = (1, 28, 28),
    dtype: str = "float32",
) -> tuple[Any, dict[str, Any]]:
    """The net as a module, and values of its parameters."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
