"""Random graphs: 3 to 12 ops with reuse, broadcasts, sizes 0 and 1, as pullback functions and PyTorch programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.ir import IRModule, Op
from pullback.relax import BlockBuilder, TensorStructInfo, Var, const

Step = Callable[[list[Any]], Any]


@dataclass
class Graph:
    """A graph with its inputs. ``torch_steps`` compute value after value from the list of values so far."""

    module: IRModule
    inputs: list[np.ndarray]
    torch_steps: list[Step] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)

    def torch_loss(self, torch: Any, tensors: Sequence[Any]) -> Any:
        """The loss as PyTorch computes it."""
        values = list(tensors)
        for step in self.torch_steps:
            values.append(step(values))
        return sum((values[k] * torch.from_numpy(w)).sum() for k, w in self.uses())

    def uses(self) -> list[tuple[int, np.ndarray]]:
        first = len(self.inputs)
        return [(first + k, w) for k, w in enumerate(self.weights)]


class Maker:
    """Draws one graph from a seed."""

    def __init__(self, seed: int, torch: Any = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.torch = torch
        self.sizes = [
            int(s) for s in self.rng.choice([0, 1, 1, 2, 3, 5, 17], size=3, p=[0.04, 0.2, 0.2, 0.2, 0.16, 0.1, 0.1])
        ]
        self.builder = BlockBuilder()
        self.values: list[Any] = []
        self.steps: list[Step] = []

    def shape(self) -> tuple[int, ...]:
        rank = int(self.rng.integers(0, 4))
        return tuple(int(self.rng.choice([1, s], p=[0.2, 0.8])) for s in self.rng.permutation(self.sizes)[:rank])

    def pick(self) -> int:
        """A value, the recent ones more often."""
        n = len(self.values)
        return int(n - 1 - min(n - 1, self.rng.geometric(0.35) - 1))

    def make(self) -> Graph:
        inputs = [self.rng.standard_normal(self.shape()) for _ in range(int(self.rng.integers(1, 4)))]
        params = [Var(f"x{k}", TensorStructInfo(a.shape, "float64")) for k, a in enumerate(inputs)]
        self.values = list(params)
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for _ in range(int(self.rng.integers(3, 13))):
                    self.step()
                made = self.values[len(params) :]
                weights = [self.rng.standard_normal(v.shape) for v in made]
                total: Any = const(0.0, "float64")
                for value, weight in zip(made, weights, strict=True):
                    total = total + Op.get("sum")(value * const(weight, "float64"))
                out = self.builder.emit_output(total)
            self.builder.emit_func_output(out)
        return Graph(self.builder.get(), inputs, self.steps, weights)

    def add(self, expr: Any, step: Step) -> None:
        self.values.append(self.builder.emit(expr))
        self.steps.append(step)

    def step(self) -> None:
        options = [
            self.unary,
            self.unary,
            self.binary,
            self.binary,
            self.reduction,
            self.movement,
            self.matmul,
            self.rows,
        ]
        while True:
            before = len(self.values)
            options[int(self.rng.integers(len(options)))]()
            if len(self.values) > before:
                return

    def unary(self) -> None:
        k, torch = self.pick(), self.torch
        x = self.values[k]
        op = Op.get
        table: list[tuple[Any, Step]] = [
            (op("tanh")(x), lambda v: torch.tanh(v[k])),
            (op("sigmoid")(x), lambda v: torch.sigmoid(v[k])),
            (op("sin")(x), lambda v: torch.sin(v[k])),
            (op("cos")(x), lambda v: torch.cos(v[k])),
            (op("exp")(op("tanh")(x)), lambda v: torch.exp(torch.tanh(v[k]))),
            (op("log")(x * x + 1.0), lambda v: torch.log(v[k] * v[k] + 1.0)),
            (op("sqrt")(x * x + 0.5), lambda v: torch.sqrt(v[k] * v[k] + 0.5)),
            (op("nn.relu")(x), lambda v: torch.relu(v[k])),
            (op("nn.gelu")(x), lambda v: torch.nn.functional.gelu(v[k])),
            (op("abs")(x), lambda v: torch.abs(v[k])),
            (op("erf")(x), lambda v: torch.erf(v[k])),
            (-x, lambda v: -v[k]),
        ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def binary(self) -> None:
        i, j, torch = self.pick(), self.pick(), self.torch
        x, y = self.values[i], self.values[j]
        try:
            np.broadcast_shapes(x.shape, y.shape)
        except ValueError:
            return
        op = Op.get
        table: list[tuple[Any, Step]] = [
            (x + y, lambda v: v[i] + v[j]),
            (x - y, lambda v: v[i] - v[j]),
            (op("tanh")(x) * y, lambda v: torch.tanh(v[i]) * v[j]),
            (x / (y * y + 1.0), lambda v: v[i] / (v[j] * v[j] + 1.0)),
            (op("maximum")(x, y), lambda v: torch.maximum(v[i], v[j])),
            (op("minimum")(x, y), lambda v: torch.minimum(v[i], v[j])),
            (op("where")(x > y, x * 2.0, y), lambda v: torch.where(v[i] > v[j], v[i] * 2.0, v[j])),
        ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def reduction(self) -> None:
        k, torch = self.pick(), self.torch
        x = self.values[k]
        if not x.shape:
            return
        axis, keep = int(self.rng.integers(-len(x.shape), len(x.shape))), bool(self.rng.integers(2))
        op = Op.get
        table: list[tuple[Any, Step]] = [(op("sum")(x, axis, keep), lambda v: v[k].sum(dim=axis, keepdim=keep))]
        if x.shape[axis] > 0:
            table += [
                (op("mean")(x, axis, keep), lambda v: v[k].mean(dim=axis, keepdim=keep)),
                (op("max")(x, axis, keep), lambda v: torch.amax(v[k], dim=axis, keepdim=keep)),
                (op("min")(x, axis, keep), lambda v: torch.amin(v[k], dim=axis, keepdim=keep)),
            ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def movement(self) -> None:
        k, torch = self.pick(), self.torch
        x = self.values[k]
        shape, rank = x.shape, len(x.shape)
        op = Op.get
        order = tuple(int(a) for a in self.rng.permutation(rank))
        wide = (2, *shape)
        table: list[tuple[Any, Step]] = [
            (op("permute_dims")(x, order), lambda v: v[k].permute(order)),
            (op("reshape")(x, (int(np.prod(shape)),)), lambda v: v[k].reshape(int(np.prod(shape)))),
            (op("broadcast_to")(x, wide), lambda v: v[k].expand(wide)),
            (op("expand_dims")(x, 0), lambda v: v[k].unsqueeze(0)),
        ]
        if rank:
            table += [
                (op("concat")([x, x], axis=0), lambda v: torch.cat([v[k], v[k]], dim=0)),
                (op("flip")(x, 0), lambda v: torch.flip(v[k], (0,))),
            ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def matmul(self) -> None:
        i, j, torch = self.pick(), self.pick(), self.torch
        x, y = self.values[i], self.values[j]
        if len(x.shape) != 2 or len(y.shape) != 2:
            return
        op = Op.get
        x, y = op("tanh")(x), op("tanh")(y)
        if x.shape[1] == y.shape[0]:
            self.add(op("matmul")(x, y), lambda v: torch.tanh(v[i]) @ torch.tanh(v[j]))
        elif x.shape[1] == y.shape[1]:
            self.add(op("matmul")(x, op("permute_dims")(y)), lambda v: torch.tanh(v[i]) @ torch.tanh(v[j]).T)

    def rows(self) -> None:
        k, torch = self.pick(), self.torch
        x = self.values[k]
        if not x.shape or x.shape[-1] == 0:
            return
        op = Op.get
        axis = int(self.rng.integers(len(x.shape)))
        if x.shape[axis] == 0:
            return
        table: list[tuple[Any, Step]] = [
            (op("nn.softmax")(x, axis), lambda v: torch.softmax(v[k], axis)),
            (op("nn.log_softmax")(x, axis), lambda v: torch.log_softmax(v[k], axis)),
        ]
        self.add(*table[int(self.rng.integers(len(table)))])
