"""Functions that call themselves, with what they compute in Python over NumPy: for the tests of closing, derivatives
and native code.

    PROGRAMS["tree"].module, .function, .arguments          function(*arguments), the same as main of the module
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.script import ir as I
from pullback.script import relax as R


@dataclass(frozen=True)
class Program:
    """``arguments``: floats, by which ``main`` is differentiated, then integers."""

    module: IRModule
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    @property
    def given(self) -> list[np.ndarray]:
        return [np.asarray(a) for a in self.arguments]

    @property
    def active(self) -> list[str]:
        floats = [a.dtype == np.float64 for a in self.given]
        return [p.name for p, is_float in zip(self.module["main"].params, floats, strict=True) if is_float]


@I.ir_module
class Factorial:
    """Something is done with the result."""

    @R.function
    def factorial(x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        if x > R.const(1.0, "float64"):
            y = x * Factorial.factorial(x - R.const(1.0, "float64"))
        else:
            y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        return Factorial.factorial(x)


def factorial(x):
    return x * factorial(x - 1.0) if x > 1.0 else np.exp(x)


@I.ir_module
class Fibonacci:
    """Two calls, and an integer result beside the float, by which a branch is decided."""

    @R.function
    def fibonacci(n: R.Tensor((), "int64"), x: R.Tensor((2,), "float64")) -> R.Tuple(
        R.Tensor((), "int64"), R.Tensor((2,), "float64")
    ):
        if n < 2:
            count = R.const(1)
            y = x
        else:
            a, p = Fibonacci.fibonacci(n - 1, R.sin(x))
            b, q = Fibonacci.fibonacci(n - 2, x * x)
            count = a + b
            if R.equal(R.mod(count, 2), 0):
                y = p + q
            else:
                y = p * q
        return count, y

    @R.function
    def main(x: R.Tensor((2,), "float64"), n: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        count, y = Fibonacci.fibonacci(n, x)
        return R.sum(y) * R.astype(count, "float64")


def fibonacci(n, x):
    if n < 2:
        return 1, x
    (a, p), (b, q) = fibonacci(n - 1, np.sin(x)), fibonacci(n - 2, x * x)
    return a + b, (p + q if (a + b) % 2 == 0 else p * q)


def fibonacci_sum(x, n):
    count, y = fibonacci(n, x)
    return y.sum() * count


@I.ir_module
class Tree:
    """A tree in arrays: of each node the numbers of two others, negative where there is none, and a vector. What a node
    is comes of those under it, as in a recursive network."""

    @R.function
    def main(
        values: R.Tensor((7, 3), "float64"),
        w: R.Tensor((3, 3), "float64"),
        u: R.Tensor((3, 3), "float64"),
        left: R.Tensor((7,), "int64"),
        right: R.Tensor((7,), "int64"),
    ) -> R.Tensor((), "float64"):
        def node(k: R.Tensor((), "int64")) -> R.Tensor((3,), "float64"):
            x = R.take(values, k, axis=0)
            if k < 0:
                y = R.zeros((3,), "float64")
            else:
                a = node(R.take(left, k, axis=0))
                b = node(R.take(right, k, axis=0))
                y = R.tanh(R.matmul(a, w) + R.matmul(b, u) + x)
            return y

        h = node(R.const(0))
        return R.sum(h * h)


def tree(values, w, u, left, right):
    def node(k):
        return np.tanh(node(left[k]) @ w + node(right[k]) @ u + values[k]) if k >= 0 else np.zeros(3)

    h = node(0)
    return (h * h).sum()


@I.ir_module
class Mutual:
    """Two functions that call one another; one calls itself besides."""

    @R.function
    def even(n: R.Tensor((), "int64"), x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        if n < 1:
            y = x
        else:
            y = R.sin(Mutual.odd(n - 1, x * R.const(1.1, "float64"))) + x
        return y

    @R.function
    def odd(n: R.Tensor((), "int64"), x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        if n < 1:
            y = x * x
        else:
            if n > 3:
                y = Mutual.odd(n - 3, x) * Mutual.even(n - 2, x)
            else:
                y = R.cos(Mutual.even(n - 1, x)) * x
        return y

    @R.function
    def main(x: R.Tensor((), "float64"), n: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        return Mutual.even(n, x) * Mutual.odd(n, x + R.const(0.5, "float64"))


def even(n, x):
    return np.sin(odd(n - 1, x * 1.1)) + x if n >= 1 else x


def odd(n, x):
    if n < 1:
        return x * x
    return odd(n - 3, x) * even(n - 2, x) if n > 3 else np.cos(even(n - 1, x)) * x


def mutual(x, n):
    return even(n, x) * odd(n, x + 0.5)


@I.ir_module
class Loops:
    """Calls in a loop, whose count is that of the call, and a loop around the first call."""

    @R.function
    def main(x: R.Tensor((3,), "float64"), a: R.Tensor((), "float64"), n: R.Tensor((), "int64")) -> R.Tensor(
        (), "float64"
    ):
        def f(k: R.Tensor((), "int64"), x: R.Tensor((3,), "float64")) -> R.Tensor((3,), "float64"):
            y = x * a
            for i in R.range(k, max_steps=5):
                y = R.tanh(y + f(i, R.sin(x) * R.const(0.5, "float64"))) + x
            return y

        total = R.const(0.0, "float64")
        for i in R.range(2):
            total = total + R.sum(f(n - i, x * R.astype(i + 1, "float64"))) * a
        return total


def loops(x, a, n):
    def f(k, x):
        y = x * a
        for i in range(k):
            y = np.tanh(y + f(i, np.sin(x) * 0.5)) + x
        return y

    return sum(f(n - i, x * (i + 1)).sum() * a for i in range(2))


@I.ir_module
class Open:
    """Calls in a loop whose length nobody knows."""

    @R.function
    def main(x: R.Tensor((), "float64"), a: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        def f(x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
            y = x
            t = x
            while t > R.const(0.5, "float64"):
                t = t * R.const(0.5, "float64") * a
                y = y + R.sin(f(t)) * a
            return y

        return f(x)


def open_ended(x, a):
    def f(x):
        y = t = x
        while t > 0.5:
            t = t * 0.5 * a
            y = y + np.sin(f(t)) * a
        return y

    return f(x)


@I.ir_module
class Higher:
    """A recursive function takes another one, and hands it on; what that reads around it moves."""

    @R.function
    def main(x: R.Tensor((2,), "float64"), a: R.Tensor((), "float64"), n: R.Tensor((), "int64")) -> R.Tensor(
        (), "float64"
    ):
        def step(x: R.Tensor((2,), "float64")) -> R.Tensor((2,), "float64"):
            return R.sin(x * a) + x

        def around(k: R.Tensor((), "int64"), x: R.Tensor((2,), "float64")) -> R.Tensor((2,), "float64"):
            if k > 0:
                y = step(around(k - 1, step(x))) * x
            else:
                y = x
            return y

        return R.sum(around(n, x))


def higher(x, a, n):
    def step(x):
        return np.sin(x * a) + x

    def around(k, x):
        return step(around(k - 1, step(x))) * x if k > 0 else x

    return around(n, x).sum()


@I.ir_module
class Tuples:
    """Arguments and results are tuples; one result is never used, and one argument only handed on."""

    @R.function
    def main(x: R.Tensor((2,), "float64"), n: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        def f(p: R.Tuple(R.Tensor((2,), "float64"), R.Tensor((), "int64")), z: R.Tensor((2,), "float64")) -> R.Tuple(
            R.Tensor((2,), "float64"), R.Tuple(R.Tensor((), "float64"), R.Tensor((), "float64"))
        ):
            x, k = p
            if k > 0:
                y, pair = f((x * x, k - 1), z)
                result = (y + x, (pair[0] * R.sum(x), pair[1] + R.const(1.0, "float64")))
            else:
                result = (R.exp(x), (R.sum(x * x), R.const(2.0, "float64")))
            return result

        y, pair = f((x, n), x)
        return R.sum(y) * pair[0]


def tuples(x, n):
    def f(x, k):
        if k > 0:
            y, s = f(x * x, k - 1)
            return y + x, s * x.sum()
        return np.exp(x), (x * x).sum()

    y, s = f(x, n)
    return y.sum() * s


@I.ir_module
class Segments:
    """Calls in some steps of a loop of which the gradient runs segments again, and of one in which it does not."""

    @R.function
    def main(x: R.Tensor((2,), "float64"), a: R.Tensor((), "float64"), n: R.Tensor((), "int64")) -> R.Tensor(
        (), "float64"
    ):
        def f(k: R.Tensor((), "int64"), x: R.Tensor((2,), "float64")) -> R.Tensor((2,), "float64"):
            y = x * a
            if k > 0:
                for i in R.range(4, checkpoint_every=2):
                    y = R.sin(y) + x
                    if R.equal(R.mod(i, 2), 0):
                        y = y * f(k - 1, R.tanh(y))
            return y

        total = x
        for _ in R.range(3, checkpoint_every=2):
            total = R.tanh(f(n, total) + x)
        return R.sum(total)


def segments(x, a, n):
    def f(k, x):
        y = x * a
        for i in range(4 if k > 0 else 0):
            y = np.sin(y) + x
            if i % 2 == 0:
                y = y * f(k - 1, np.tanh(y))
        return y

    total = x
    for _ in range(3):
        total = np.tanh(f(n, total) + x)
    return total.sum()


def _floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape) * 0.5


_LEFT, _RIGHT = np.array([1, 3, -1, -1, -1, 6, -1]), np.array([2, 4, 5, -1, -1, -1, -1])

PROGRAMS = {
    "factorial": Program(Factorial, factorial, (4.5,)),
    "fibonacci": Program(Fibonacci, fibonacci_sum, (np.array([0.7, 1.1]), 6)),
    "tree": Program(Tree, tree, (_floats(7, 3), _floats(3, 3, seed=1), _floats(3, 3, seed=2), _LEFT, _RIGHT)),
    "mutual": Program(Mutual, mutual, (0.7, 9)),
    "loops": Program(Loops, loops, (np.array([0.3, -0.4, 0.9]), 0.8, 3)),
    "open": Program(Open, open_ended, (2.7, 0.9)),
    "higher": Program(Higher, higher, (np.array([0.4, 0.6]), 1.3, 4)),
    "segments": Program(Segments, segments, (np.array([0.4, -0.6]), 0.9, 2)),
    "tuples": Program(Tuples, tuples, (np.array([0.4, 0.6]), 4)),
}
