"""Maps and differential equations as loops of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.numerics.dynamics import (
    ABSOLUTE,
    FIRST_STEP,
    HORIZON,
    LEAST,
    MOST,
    RELATIVE,
    RK4_DT,
    SAFETY,
    UNTIL,
)
from benchmarks.numerics.graphs import graph, number
from pullback.ir.module import IRModule
from pullback.script import relax as R


def mandelbrot(n: int, max_steps: int) -> IRModule:
    grid = np.linspace(-0.5, 0.5, n)

    def main(centre: Any, width: Any, c: Any) -> Any:
        a = R.strided_slice(centre, [0], [0], [1]) + width * R.const(grid[None, :])
        b = R.strided_slice(centre, [0], [1], [2]) + width * R.const(grid[:, None])

        def near(re: Any, im: Any) -> Any:
            return re * re + im * im <= number(HORIZON)

        def step(re: Any, im: Any, count: Any) -> Any:
            inside = near(re, im)
            return (
                R.where(inside, re * re - im * im + a, re),
                R.where(inside, number(2.0) * re * im + b, im),
                R.where(inside, count + number(1.0), count),
            )

        start = (R.zeros((n, n), "float64"),) * 3
        re, im, count = R.while_loop(lambda re, im, count: R.any(near(re, im)), step, start, max_steps=max_steps)
        return R.sum((count - R.log2(R.log2(re * re + im * im))) * c)

    return graph(main, centre=(2,), width=(), c=(n, n))


def rk4(n: int, steps: int) -> IRModule:
    def main(x: Any, forcing: Any, c: Any) -> Any:
        def rate(x: Any) -> Any:
            return (R.roll(x, -1) - R.roll(x, 2)) * R.roll(x, 1) - x + forcing

        def step(_: Any, x: Any) -> Any:
            k1 = rate(x)
            k2 = rate(x + k1 * number(RK4_DT / 2))
            k3 = rate(x + k2 * number(RK4_DT / 2))
            k4 = rate(x + k3 * number(RK4_DT))
            return (x + (k1 + number(2.0) * k2 + number(2.0) * k3 + k4) * number(RK4_DT / 6),)

        (last,) = R.fori_loop(steps, step, (x,))
        return R.sum(last * c)

    return graph(main, x=(n,), forcing=(n,), c=(n,))


def adaptive(n: int, max_steps: int) -> IRModule:
    def main(y: Any, growth: Any, effects: Any, c: Any) -> Any:
        def rate(y: Any) -> Any:
            return y * (growth + R.matmul(effects, y))

        def step(t: Any, h: Any, y: Any) -> Any:
            h = R.minimum(h, number(UNTIL) - t)
            k1 = rate(y)
            k2 = rate(y + k1 * (h * number(0.5)))
            k3 = rate(y + k2 * (h * number(0.75)))
            new = y + (k1 * number(2.0) + k2 * number(3.0) + k3 * number(4.0)) * (h / number(9.0))
            error = (k1 * number(-5.0) + k2 * number(6.0) + k3 * number(8.0) + rate(new) * number(-9.0)) * (
                h / number(72.0)
            )
            share = error / (number(ABSOLUTE) + number(RELATIVE) * R.abs(y))
            size = R.sqrt(R.mean(share * share))
            good = size <= number(1.0)
            factor = R.clip(number(SAFETY) * R.power(size, number(-1 / 3)), LEAST, MOST)
            return R.where(good, t + h, t), h * factor, R.where(good, new, y)

        start = (R.zeros((), "float64"), number(FIRST_STEP), y)
        _, _, last = R.while_loop(lambda t, h, y: t < number(UNTIL * (1 - 1e-12)), step, start, max_steps=max_steps)
        return R.sum(last * c)

    return graph(main, y=(n,), growth=(n,), effects=(n, n), c=(n,))
