"""Random programs of branches and loops in each other, over a few small vectors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.script import relax as R
from tests.driver.test_control_native import F32, I64, as_tuples, const, data, tensor
from tests.relax.test_control import build

SIZE = 4
STEPS = (0, 1, 2, 3, 17, 18)


class Maker:
    """Makes the program of a seed: its module, and the arrays that ``main`` takes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def make(self, depth: int = 2) -> tuple[IRModule, list[np.ndarray]]:
        params = [tensor(name, SIZE) for name in "abc"]
        return build(params, lambda *values: as_tuples(tuple(self.block(values, depth, 4)))), data(*params)

    def block(self, values: Any, depth: int, count: int) -> list[Any]:
        """So many values, computed of these by a few ops, branches and loops."""
        known = list(values)
        for _ in range(self.rng.randrange(1, 4)):
            inner = depth > 0 and self.rng.random() < 0.5
            known += self.control(known, depth - 1) if inner else [self.op(known)]
        return [self.rng.choice(known[-count - 3 :]) for _ in range(count)]

    def op(self, known: list[Any]) -> Any:
        a, b = self.rng.choice(known), self.rng.choice(known)
        table = const(np.arange(SIZE * SIZE).reshape(SIZE, SIZE) / 20)
        makers = (
            lambda: R.tanh(a + b),
            lambda: R.sin(a) * b * const(0.5),
            lambda: R.maximum(a, b),
            lambda: a,
            lambda: R.reshape(R.permute_dims(R.reshape(a, (2, 2)), [1, 0]), (SIZE,)),
            lambda: R.broadcast_to(R.reshape(R.sum(R.tanh(a)), (1,)), (SIZE,)) * const(0.25),
            lambda: R.reshape(R.tanh(R.matmul(R.reshape(a, (1, SIZE)), table)), (SIZE,)),
            lambda: const(np.arange(SIZE) / SIZE),
        )
        return self.rng.choice(makers)()

    def control(self, known: list[Any], depth: int) -> list[Any]:
        """What a branch or a loop of some kind gives."""
        initial = [self.rng.choice(known) for _ in range(self.rng.randrange(1, 4))]
        makers = (self.branch, self.counted, self.counted_later, self.until, self.scanned)
        return self.rng.choice(makers)(known, depth, initial)

    def branch(self, known: list[Any], depth: int, initial: list[Any]) -> list[Any]:
        condition = R.sum(self.rng.choice(known)) > const(self.rng.choice([-1.0, 0.0, 0.5]))
        bodies = [lambda: tuple(self.block(known, depth, len(initial)))] * 2
        return list(R.cond(condition, *bodies))

    def counted(self, known: list[Any], depth: int, initial: list[Any]) -> list[Any]:
        def body(i, *carries):
            number = R.broadcast_to(R.reshape(R.astype(i, F32) * const(0.1), (1,)), (SIZE,))
            return tuple(self.block([*known, *carries, number], depth, len(initial)))

        return list(R.fori_loop(self.rng.choice(STEPS), body, tuple(initial)))

    def counted_later(self, known: list[Any], depth: int, initial: list[Any]) -> list[Any]:
        count = R.sum(R.astype(self.rng.choice(known) > const(0.0), I64))
        most = self.rng.choice([None, SIZE, 9])
        body = lambda i, *carries: tuple(self.block([*known, *carries], depth, len(initial)))  # noqa: E731
        return list(R.fori_loop(count, body, tuple(initial), max_steps=most))

    def until(self, known: list[Any], depth: int, initial: list[Any]) -> list[Any]:
        most = const(self.rng.choice([0.0, 1.0, 3.0]))
        found = R.while_loop(
            lambda q, *carries: (q < most) & (R.sum(carries[0]) < const(50.0)),
            lambda q, *carries: (q + const(1.0), *self.block([*known, *carries], depth, len(initial))),
            (const(0.0), *initial),
            max_steps=self.rng.choice([None, 3, 8]),
        )
        return list(found)[1:]

    def scanned(self, known: list[Any], depth: int, initial: list[Any]) -> list[Any]:
        rows = R.stack([self.rng.choice(known) for _ in range(max(1, self.rng.choice(STEPS)))], axis=0)
        more = self.rng.randrange(0, 3)

        def body(*values):
            found = self.block([*known, *values], depth, len(initial) + more)
            return tuple(found[: len(initial)]), tuple(found[len(initial) :])

        carries, ys = R.scan(body, tuple(initial), (rows,), reverse=self.rng.random() < 0.5)
        return [*carries, *(R.sum(y, axis=[0]) * const(0.1) for y in ys)]
