"""ResNet-20 for 32x32 images (He et al. 2015, 4.2), shortcuts by 1x1 convolutions, batch norm training, by Adam."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.models.base import Arrays, Initial, Model, Optimizer, Values, conv_jax, images

CLASSES = 10
EPSILON, MOMENTUM = 1e-5, 0.1


class Conv(NamedTuple):
    """A convolution with batch norm: its name, sizes, and how wide its result is."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    stride: int
    size: int


class Block(NamedTuple):
    first: Conv
    second: Conv
    shortcut: Conv | None


@dataclass(frozen=True)
class ResNet20(Model):
    width: int = 16
    blocks: int = 3  # in each of the three stages
    size: int = 32
    batch: int = 64

    name = "resnet20"
    optimizer = Optimizer("adam", 1e-3)
    loss_tolerance = 1e-2  # rounding decides the sign of a relu now and then: PyTorch's own sides differ by 2e-3

    @property
    def title(self) -> str:
        return f"ResNet-{6 * self.blocks + 2} on {self.size}x{self.size}, batch {self.batch}, Adam"

    @property
    def stem(self) -> Conv:
        return Conv("stem", 3, self.width, 3, 1, self.size)

    def body(self) -> Iterator[Block]:
        """The residual blocks."""
        inputs, size = self.width, self.size
        for stage in range(3):
            outputs = self.width << stage
            for number in range(self.blocks):
                stride = 2 if stage and not number else 1
                size, name = size // stride, f"block{stage}{number}"
                yield Block(
                    Conv(f"{name}_first", inputs, outputs, 3, stride, size),
                    Conv(f"{name}_second", outputs, outputs, 3, 1, size),
                    Conv(f"{name}_shortcut", inputs, outputs, 1, stride, size) if inputs != outputs else None,
                )
                inputs = outputs

    def convs(self) -> list[Conv]:
        return [self.stem, *(conv for block in self.body() for conv in block if conv is not None)]

    def draw_data(self) -> tuple[np.ndarray, np.ndarray]:
        return images(self.batch, 3, self.size, CLASSES)

    def draw_parameters(self) -> Arrays:
        initial = Initial(self.seed)
        for conv in self.convs():
            initial.conv(conv.name, conv.outputs, conv.inputs, conv.kernel)
            initial.norm(conv.name, conv.outputs)
        initial.linear("fc", 4 * self.width, CLASSES)
        return initial.arrays

    def initial_states(self) -> Arrays:
        means = {f"{conv.name}_mean": np.zeros(conv.outputs, np.float32) for conv in self.convs()}
        return means | {f"{conv.name}_var": np.ones(conv.outputs, np.float32) for conv in self.convs()}

    def flops(self) -> int:
        """Forward and both gradients, but no gradient of the images."""
        costs = [2 * self.batch * c.size**2 * c.outputs * c.inputs * c.kernel**2 for c in self.convs()]
        return 3 * (sum(costs) + 2 * self.batch * 4 * self.width * CLASSES) - costs[0]

    def torch(self, p: Values, s: Values, x: Any) -> Any:
        from torch.nn import functional as f

        def conv(x: Any, c: Conv) -> Any:
            x = f.conv2d(x, p[f"{c.name}_weight"], stride=c.stride, padding=c.kernel // 2)
            scale = p[f"{c.name}_gamma"], p[f"{c.name}_beta"]
            return f.batch_norm(x, s[f"{c.name}_mean"], s[f"{c.name}_var"], *scale, True, MOMENTUM, EPSILON)

        x = f.relu(conv(x, self.stem))
        for block in self.body():
            kept = x if block.shortcut is None else conv(x, block.shortcut)
            x = f.relu(conv(f.relu(conv(x, block.first)), block.second) + kept)
        return f.linear(x.mean((2, 3)), p["fc_weight"], p["fc_bias"])

    def jax(self, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        from jax import lax
        from jax.nn import relu

        updated = {}

        def conv(x: Any, c: Conv) -> Any:
            x = conv_jax(x, p[f"{c.name}_weight"], c.stride, c.kernel // 2)
            mean, var, count = x.mean((0, 1, 2)), x.var((0, 1, 2)), x.size // x.shape[-1]
            for name, new in ((f"{c.name}_mean", mean), (f"{c.name}_var", var * (count / (count - 1)))):
                updated[name] = (1 - MOMENTUM) * s[name] + MOMENTUM * new
            return (x - mean) * lax.rsqrt(var + EPSILON) * p[f"{c.name}_gamma"] + p[f"{c.name}_beta"]

        x = relu(conv(x, self.stem))
        for block in self.body():
            kept = x if block.shortcut is None else conv(x, block.shortcut)
            x = relu(conv(relu(conv(x, block.first)), block.second) + kept)
        return x.mean((1, 2)) @ p["fc_weight"] + p["fc_bias"], updated

    def relax(self, emit: Any, op: Any, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        updated = {}

        def conv(x: Any, c: Conv) -> Any:
            padding = c.kernel // 2
            x = op.nn.conv2d(x, p[f"{c.name}_weight"], strides=(c.stride, c.stride), padding=(padding, padding))
            mean, var = f"{c.name}_mean", f"{c.name}_var"
            settings = {"axis": 1, "epsilon": EPSILON, "momentum": MOMENTUM}
            gamma, beta = p[f"{c.name}_gamma"], p[f"{c.name}_beta"]
            normed = emit(op.nn.batch_norm(emit(x), gamma, beta, s[mean], s[var], **settings))
            updated[mean], updated[var] = emit(normed[1]), emit(normed[2])
            return emit(normed[0])

        x = emit(op.nn.relu(conv(x, self.stem)))
        for block in self.body():
            kept = x if block.shortcut is None else conv(x, block.shortcut)
            inner = emit(op.nn.relu(conv(x, block.first)))
            x = emit(op.nn.relu(op.add(conv(inner, block.second), kept)))
        x = emit(op.mean(x, axis=[2, 3]))
        return emit(op.add(op.matmul(x, p["fc_weight"]), p["fc_bias"])), updated
