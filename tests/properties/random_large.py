"""Random graphs of larger tensors: what is divided among threads, cut into chunks or kept apart from what it is read
with. Branches that meet in sums, tensors put together of one value several times, parts of all sizes, broadcasts
against size 1, sums over several axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir import Op
from pullback.relax import BlockBuilder, TensorStructInfo, Var, const
from tests.properties.random_graphs import Graph, Maker

MOST = 40_000  # elements of a tensor
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 48, 64, 100, 129, 256, 1000, 4099, 9000)


class LargeMaker(Maker):
    """Draws one graph from a seed. Its loss adds up sums of its values, without weights between the two."""

    def __init__(self, seed: int, torch: Any = None) -> None:
        super().__init__(seed, torch)
        self.rng = np.random.default_rng((seed, 2))
        self.builder = BlockBuilder()
        self.sizes = [int(s) for s in self.rng.choice(SIZES, size=4)]
        self.only_moves = bool(self.rng.integers(2))

    def shape(self) -> tuple[int, ...]:
        """Of a few common sizes, and not too large. Half of the axes' sizes may be 1."""
        rank, ones = int(self.rng.integers(1, 5)), float(self.rng.choice([0.0, 0.0, 0.5]))
        shape = [int(self.rng.choice([1, s], p=[ones, 1 - ones])) for s in self.rng.permutation(self.sizes)[:rank]]
        while np.prod(shape) > MOST:
            shape[int(np.argmax(shape))] //= 2
        return tuple(shape)

    def make(self) -> Graph:
        first = self.shape()
        shapes = [first, *(self.beside(first) for _ in range(int(self.rng.integers(0, 3))))]
        inputs = [self.rng.standard_normal(shape) for shape in shapes]
        params = [Var(f"x{k}", TensorStructInfo(a.shape, "float64")) for k, a in enumerate(inputs)]
        self.values = list(params)
        with self.builder.function("main", params):
            with self.builder.dataflow():
                for _ in range(int(self.rng.integers(3, 14))):
                    self.step()
                self.sums()
                weights = [np.zeros(v.shape) for v in self.values[len(params) :]]
                total: Any = const(0.0, "float64")
                for k, value in enumerate(self.values[len(params) :]):
                    if not value.shape:
                        weights[k] = np.ones(())
                        total = total + value
                out = self.builder.emit_output(total)
            self.builder.emit_func_output(out)
        return Graph(self.builder.get(), inputs, self.steps, weights, self.rounds)

    def beside(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts against this one, or any."""
        kind = int(self.rng.integers(5))
        if kind == 0:
            return self.shape()
        if kind <= 2:
            return (1,) * int(self.rng.integers(0, 2))
        return tuple(int(self.rng.choice([1, s])) for s in shape[int(self.rng.integers(len(shape))) :])

    def add(self, expr: Any, step: Any) -> None:
        if int(np.prod(expr.struct_info.shape)) <= MOST:
            super().add(expr, step)

    def step(self) -> None:
        moving = [self.parts, self.parts, self.repeated, self.repeated, self.unary, self.binary]
        others = [
            self.binary,
            self.reduction,
            self.movement,
            self.rows,
            self.totals,
            self.pieces,
            self.masks,
            self.matmul,
        ]
        options = moving if self.only_moves else moving + others
        for _ in range(20):
            before = len(self.values)
            options[int(self.rng.integers(len(options)))]()
            if len(self.values) > before:
                return

    def sums(self) -> None:
        """Sums of the last values."""
        for k in {len(self.values) - 1, *(self.pick() for _ in range(int(self.rng.integers(1, 6))))}:
            self.summed(k)

    def summed(self, k: int) -> None:
        """The sum of a value, of a function of it, or of its product with another."""
        op, torch, x = Op.get, self.torch, self.values[k]
        j = next((int(j) for j in self.rng.permutation(len(self.values)) if self.values[j].shape == x.shape), k)
        table: list[tuple[Any, Any]] = [
            (op("sum")(x), lambda v: v[k].sum()),
            (op("sum")(op("sin")(x)), lambda v: torch.sin(v[k]).sum()),
            (op("sum")(x * x), lambda v: (v[k] * v[k]).sum()),
            (op("mean")(op("cos")(x) * self.values[j]), lambda v: (torch.cos(v[k]) * v[j]).mean()),
        ]
        self.add(*table[int(self.rng.integers(len(table)))])

    def parts(self) -> None:
        """All parts of a tensor, of any sizes, or all but one."""
        k, torch, op = self.pick(), self.torch, Op.get
        x = self.values[k]
        if not x.shape:
            return
        axis = int(self.rng.integers(len(x.shape)))
        if x.shape[axis] < 2:
            return
        count = int(self.rng.integers(1, min(4, x.shape[axis])))
        at = sorted(int(p) for p in self.rng.choice(np.arange(1, x.shape[axis]), count, replace=False))
        parts, summed = self.builder.emit(op("split")(x, at, axis)), bool(self.rng.integers(2))
        for part in self.rng.permutation(count + 1)[: int(self.rng.integers(1, count + 2))]:
            self.add(parts[int(part)], lambda v, n=int(part): torch.tensor_split(v[k], at, axis)[n])
            if summed and self.values[-1].shape:
                self.summed(len(self.values) - 1)

    def repeated(self) -> None:
        """One value several times, with others or alone, side by side."""
        k, torch, op = self.pick(), self.torch, Op.get
        x = self.values[k]
        if not x.shape:
            return
        axis, times = int(self.rng.integers(len(x.shape))), int(self.rng.integers(2, 4))
        if int(np.prod(x.shape)) * times > MOST:
            return
        same = [j for j in range(len(self.values)) if self.values[j].shape == x.shape]
        chosen = [k if self.rng.random() < 0.6 else int(self.rng.choice(same)) for _ in range(times)]
        kind = int(self.rng.integers(3))
        if kind == 0 and len(x.shape) < 4:
            self.add(
                op("stack")([self.values[j] for j in chosen], axis), lambda v: torch.stack([v[j] for j in chosen], axis)
            )
        else:
            self.add(
                op("concat")([self.values[j] for j in chosen], axis), lambda v: torch.cat([v[j] for j in chosen], axis)
            )
