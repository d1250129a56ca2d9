"""Recurrent classifiers of sequences: two layers, bidirectional, the mean of their outputs, and a linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.models.base import Arrays, Initial, Model, Optimizer, Values

DIRECTIONS = ("", "_reverse")
CLASSES = 10


@dataclass(frozen=True)
class _Recurrent(Model):
    """Parameters of layer k in a direction are ``l{k}{direction}_ih`` and ``_hh``, each a linear layer of all gates."""

    length: int = 64
    batch: int = 32
    inputs: int = 64
    hidden: int = 128
    layers: int = 2

    kind: ClassVar[str]
    gates: ClassVar[int]
    optimizer = Optimizer("sgd", 0.1)

    @property
    def title(self) -> str:
        sizes = f"{self.layers} layers, both directions, length {self.length}, {self.inputs}-{self.hidden}"
        return f"{self.kind}, {sizes}, batch {self.batch}, SGD"

    @property
    def cells(self) -> list[tuple[str, int, bool]]:
        """The name of each cell, how wide its input is, and whether it goes through the sequence backwards."""
        widths = [self.inputs] + [2 * self.hidden] * (self.layers - 1)
        return [(f"l{k}{d}", width, bool(d)) for k, width in enumerate(widths) for d in DIRECTIONS]

    def draw_data(self) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(0)
        x = generator.standard_normal((self.length, self.batch, self.inputs), dtype=np.float32)
        return x, generator.integers(0, CLASSES, self.batch)

    def draw_parameters(self) -> Arrays:
        initial = Initial(self.seed)
        for name, width, _ in self.cells:
            initial.linear(f"{name}_ih", width, self.gates * self.hidden)
            initial.linear(f"{name}_hh", self.hidden, self.gates * self.hidden)
        initial.linear("head", 2 * self.hidden, CLASSES)
        return initial.arrays

    def flops(self) -> int:
        """Forward and both gradients, but for those of the input and of the first states."""
        products = [2 * self.length * self.batch * width * self.gates * self.hidden for _, width, _ in self.cells]
        states = 2 * self.length * self.batch * self.hidden * self.gates * self.hidden * len(self.cells)
        head = 2 * self.batch * 2 * self.hidden * CLASSES
        return 3 * (sum(products) + states + head) - sum(products[: len(DIRECTIONS)]) - states // self.length

    def torch(self, p: Values, s: Values, x: Any) -> Any:
        """What ``torch.nn.LSTM`` and ``torch.nn.GRU`` call."""
        import torch
        from torch.nn import functional as f

        begin = x.new_zeros(len(self.cells), self.batch, self.hidden)
        kinds = [(part, kind) for kind in ("weight", "bias") for part in ("ih", "hh")]
        weights = [p[f"{name}_{part}_{kind}"] for name, _, _ in self.cells for part, kind in kinds]
        function, states = {"LSTM": (torch.lstm, [begin, begin]), "GRU": (torch.gru, begin)}[self.kind]
        output = function(x, states, weights, True, self.layers, 0.0, True, True, False)[0]
        return f.linear(output.mean(0), p["head_weight"], p["head_bias"])

    def jax(self, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        """The products with the inputs are one before the loop, as in the other sides."""
        from jax import lax
        from jax import numpy as jnp

        begin = jnp.zeros((self.batch, self.hidden), x.dtype)
        results: list[Any] = []
        for name, _, reverse in self.cells:
            given = x @ p[f"{name}_ih_weight"] + p[f"{name}_ih_bias"]
            weight, bias = p[f"{name}_hh_weight"], p[f"{name}_hh_bias"]

            def body(state: Any, row: Any, weight: Any = weight, bias: Any = bias) -> tuple[Any, Any]:
                state = self.jax_step(row, state, state[0] @ weight + bias)
                return state, state[0]

            results.append(lax.scan(body, (begin,) * self.carries, given, reverse=reverse)[1])
            if reverse:
                x, results = jnp.concatenate(results, -1), []
        return x.mean(0) @ p["head_weight"] + p["head_bias"], {}

    def relax(self, emit: Any, op: Any, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        from pullback.relax.control import scan

        def linear(x: Any, name: str) -> Any:
            return op.add(op.matmul(x, p[f"{name}_weight"]), p[f"{name}_bias"])

        begin = emit(op.zeros((self.batch, self.hidden), self.dtype))
        results: list[Any] = []
        for name, _, reverse in self.cells:

            def body(*values: Any, name: str = name) -> tuple[Any, Any]:
                *state, row = values
                new = self.relax_step(op, row, state, linear(state[0], f"{name}_hh"))
                return new, new[:1]

            given = emit(linear(x, f"{name}_ih"))
            results.append(scan(body, (begin,) * self.carries, (given,), reverse=reverse)[1][0])
            if reverse:
                x, results = emit(op.concat(results, -1)), []
        return emit(linear(op.mean(x, 0), "head")), {}

    # A step: what comes of the input, the state, and the product with it -> the new state; the first is the output.

    carries: ClassVar[int]

    def jax_step(self, x: Any, state: Any, kept: Any) -> Any:
        raise NotImplementedError

    def relax_step(self, op: Any, x: Any, state: Any, kept: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class LSTM(_Recurrent):
    name = "lstm"
    kind, gates, carries = "LSTM", 4, 2

    def jax_step(self, x: Any, state: Any, kept: Any) -> Any:
        from jax import nn
        from jax import numpy as jnp

        i, f, g, o = jnp.split(x + kept, 4, -1)
        c = nn.sigmoid(f) * state[1] + nn.sigmoid(i) * jnp.tanh(g)
        return nn.sigmoid(o) * jnp.tanh(c), c

    def relax_step(self, op: Any, x: Any, state: Any, kept: Any) -> Any:
        parts = op.split(op.add(x, kept), 4, -1)
        i, f, o = (op.sigmoid(parts[k]) for k in (0, 1, 3))
        c = op.add(op.multiply(f, state[1]), op.multiply(i, op.tanh(parts[2])))
        return op.multiply(o, op.tanh(c)), c


@dataclass(frozen=True)
class GRU(_Recurrent):
    name = "gru"
    kind, gates, carries = "GRU", 3, 1

    def jax_step(self, x: Any, state: Any, kept: Any) -> Any:
        from jax import nn
        from jax import numpy as jnp

        (xr, xz, xn), (hr, hz, hn) = jnp.split(x, 3, -1), jnp.split(kept, 3, -1)
        z = nn.sigmoid(xz + hz)
        n = jnp.tanh(xn + nn.sigmoid(xr + hr) * hn)
        return ((state[0] - n) * z + n,)

    def relax_step(self, op: Any, x: Any, state: Any, kept: Any) -> Any:
        given, parts = op.split(x, 3, -1), op.split(kept, 3, -1)
        r, z = (op.sigmoid(op.add(given[k], parts[k])) for k in (0, 1))
        n = op.tanh(op.add(given[2], op.multiply(r, parts[2])))
        return (op.add(op.multiply(op.subtract(state[0], n), z), n),)
