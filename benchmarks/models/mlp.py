"""The tutorial's perceptron, 784-128-128-10, trained by SGD on the summed loss."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.models.base import Arrays, Initial, Model, Optimizer, Values


@dataclass(frozen=True)
class MLP(Model):
    sizes: tuple[int, ...] = (784, 128, 128, 10)
    batch: int = 64

    name = "mlp"
    reduction = "sum"
    optimizer = Optimizer("sgd", 0.01 / 64, 0.01)

    @property
    def title(self) -> str:
        return f"MLP {'-'.join(map(str, self.sizes))}, batch {self.batch}, SGD"

    def draw_data(self) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(0)
        x = generator.random((self.batch, self.sizes[0]), dtype=np.float32)
        return x, generator.integers(0, self.sizes[-1], self.batch)

    def draw_parameters(self) -> Arrays:
        initial = Initial(self.seed)
        for layer, (inputs, outputs) in enumerate(itertools.pairwise(self.sizes)):
            initial.linear(f"fc{layer}", inputs, outputs)
        return initial.arrays

    def flops(self) -> int:
        """Forward, the weights' gradients, and the activations' below the first layer."""
        products = [2 * self.batch * inputs * outputs for inputs, outputs in itertools.pairwise(self.sizes)]
        return 3 * sum(products) - products[0]

    @property
    def layers(self) -> range:
        return range(len(self.sizes) - 1)

    def torch(self, p: Values, s: Values, x: Any) -> Any:
        from torch.nn.functional import linear, relu

        for layer in self.layers:
            x = linear(relu(x) if layer else x, p[f"fc{layer}_weight"], p[f"fc{layer}_bias"])
        return x

    def jax(self, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        from jax.nn import relu

        for layer in self.layers:
            x = (relu(x) if layer else x) @ p[f"fc{layer}_weight"] + p[f"fc{layer}_bias"]
        return x, {}

    def relax(self, emit: Any, op: Any, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        for layer in self.layers:
            x = op.nn.relu(x) if layer else x
            x = emit(op.add(op.matmul(x, p[f"fc{layer}_weight"]), p[f"fc{layer}_bias"]))
        return x, {}
