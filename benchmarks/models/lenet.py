"""LeNet-5: two convolutions with pooling, three linear layers, trained by Adam."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.models.base import Arrays, Initial, Model, Optimizer, Values, conv_jax, images

CLASSES = 10


@dataclass(frozen=True)
class LeNet(Model):
    channels: tuple[int, int] = (6, 16)
    widths: tuple[int, int] = (120, 84)
    batch: int = 64

    name = "lenet"
    optimizer = Optimizer("adam", 1e-3)

    @property
    def title(self) -> str:
        return f"LeNet-5 on 28x28, batch {self.batch}, Adam"

    def draw_data(self) -> tuple[np.ndarray, np.ndarray]:
        return images(self.batch, 1, 28, CLASSES)

    def draw_parameters(self) -> Arrays:
        initial, (first, second) = Initial(self.seed), self.channels
        for name, outputs, inputs in (("conv0", first, 1), ("conv1", second, first)):
            initial.conv(name, outputs, inputs, 5)
            initial.arrays[f"{name}_bias"] = np.zeros(outputs, np.float32)
        for layer, (inputs, outputs) in enumerate(self._linear):
            initial.linear(f"fc{layer}", inputs, outputs)
        return initial.arrays

    @property
    def _linear(self) -> list[tuple[int, int]]:
        sizes = (25 * self.channels[1], *self.widths, CLASSES)
        return list(itertools.pairwise(sizes))

    def flops(self) -> int:
        """Forward and both gradients, but no gradient of the images."""
        first, second = self.channels
        convs = [2 * self.batch * 28 * 28 * first * 25, 2 * self.batch * 10 * 10 * second * first * 25]
        return 3 * (sum(convs) + sum(2 * self.batch * i * o for i, o in self._linear)) - convs[0]

    def torch(self, p: Values, s: Values, x: Any) -> Any:
        from torch.nn import functional as f

        x = f.max_pool2d(f.relu(f.conv2d(x, p["conv0_weight"], p["conv0_bias"], padding=2)), 2)
        x = f.max_pool2d(f.relu(f.conv2d(x, p["conv1_weight"], p["conv1_bias"])), 2).flatten(1)
        for layer in range(3):
            x = f.linear(f.relu(x) if layer else x, p[f"fc{layer}_weight"], p[f"fc{layer}_bias"])
        return x

    def jax(self, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        from jax import lax
        from jax.nn import relu

        for layer, padding in enumerate((2, 0)):
            x = relu(conv_jax(x, p[f"conv{layer}_weight"], padding=padding) + p[f"conv{layer}_bias"])
            x = lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
        for layer in range(3):
            x = (relu(x) if layer else x) @ p[f"fc{layer}_weight"] + p[f"fc{layer}_bias"]
        return x, {}

    def relax(self, emit: Any, op: Any, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        for layer, padding in enumerate((2, 0)):
            x = emit(op.nn.conv2d(x, p[f"conv{layer}_weight"], padding=(padding, padding)))
            bias = op.reshape(p[f"conv{layer}_bias"], (1, self.channels[layer], 1, 1))
            x = emit(op.nn.max_pool2d(op.nn.relu(op.add(x, bias)), pool_size=(2, 2), strides=(2, 2)))
        x = emit(op.reshape(x, (self.batch, 25 * self.channels[1])))
        for layer in range(3):
            x = op.nn.relu(x) if layer else x
            x = emit(op.add(op.matmul(x, p[f"fc{layer}_weight"]), p[f"fc{layer}_bias"]))
        return x, {}
