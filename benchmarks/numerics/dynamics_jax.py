"""Maps and differential equations in JAX. Its reverse mode wants loops of known length: those that depend on values are
scans of the most steps that are allowed, of which the ones that are not needed do nothing (``cond``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

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


def bounded_while(condition: Callable[[Any], Any], body: Callable[[Any], Any], start: Any, most: int) -> Any:
    """``lax.while_loop`` for reverse mode."""

    def step(state: Any, _: None) -> tuple[Any, None]:
        return lax.cond(condition(state), body, lambda s: s, state), None

    return lax.scan(step, start, None, most)[0]


def mandelbrot(n: int, max_steps: int) -> Any:
    grid = jnp.linspace(-0.5, 0.5, n)

    def run(centre: Any, width: Any, c: Any) -> Any:
        a, b = centre[0] + width * grid[None, :], centre[1] + width * grid[:, None]

        def near(state: Any) -> Any:
            return state[0] * state[0] + state[1] * state[1] <= HORIZON

        def step(state: Any) -> Any:
            (re, im, count), inside = state, near(state)
            new = re * re - im * im + a, 2.0 * re * im + b
            return tuple(jnp.where(inside, *both) for both in zip((*new, count + 1.0), state, strict=True))

        start = (jnp.zeros((n, n)),) * 3
        re, im, count = bounded_while(lambda state: near(state).any(), step, start, max_steps)
        return jnp.sum((count - jnp.log2(jnp.log2(re * re + im * im))) * c)

    return run


def rk4(n: int, steps: int) -> Any:
    def run(x: Any, forcing: Any, c: Any) -> Any:
        def rate(x: Any) -> Any:
            return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + forcing

        def step(_: Any, x: Any) -> Any:
            k1 = rate(x)
            k2 = rate(x + k1 * (RK4_DT / 2))
            k3 = rate(x + k2 * (RK4_DT / 2))
            k4 = rate(x + k3 * RK4_DT)
            return x + (k1 + 2.0 * k2 + 2.0 * k3 + k4) * (RK4_DT / 6)

        return lax.fori_loop(0, steps, step, x) @ c

    return run


def adaptive(n: int, max_steps: int) -> Any:
    def run(y: Any, growth: Any, effects: Any, c: Any) -> Any:
        def rate(y: Any) -> Any:
            return y * (growth + effects @ y)

        def step(state: Any) -> Any:
            t, h, y = state
            h = jnp.minimum(h, UNTIL - t)
            k1 = rate(y)
            k2 = rate(y + k1 * (h * 0.5))
            k3 = rate(y + k2 * (h * 0.75))
            new = y + (k1 * 2.0 + k2 * 3.0 + k3 * 4.0) * (h / 9.0)
            error = (k1 * -5.0 + k2 * 6.0 + k3 * 8.0 + rate(new) * -9.0) * (h / 72.0)
            share = error / (ABSOLUTE + RELATIVE * jnp.abs(y))
            size = jnp.sqrt(jnp.mean(share * share))
            good = size <= 1.0
            factor = jnp.clip(SAFETY * size ** (-1 / 3), LEAST, MOST)
            return jnp.where(good, t + h, t), h * factor, jnp.where(good, new, y)

        start = jnp.zeros(()), jnp.full((), FIRST_STEP), y
        return bounded_while(lambda state: state[0] < UNTIL * (1 - 1e-12), step, start, max_steps)[2] @ c

    return run
