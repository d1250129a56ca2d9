"""The stencils in JAX: sweeps are ``fori_loop`` of known length, recurrences along a line are ``scan``."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from benchmarks.numerics.stencils import adi_numbers


def jacobi_2d(steps: int, n: int) -> Any:
    def sweep(old: Any, new: Any) -> Any:
        inner = old[1:-1, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:] + old[2:, 1:-1] + old[:-2, 1:-1]
        return new.at[1:-1, 1:-1].set(0.2 * inner)

    def step(_: Any, a: Any) -> Any:
        b = sweep(a, a)
        return sweep(b, b)

    return lambda x, c: jnp.sum(lax.fori_loop(0, steps, step, x) * c)


def seidel_2d(steps: int, n: int) -> Any:
    def element(left: Any, others: Any) -> tuple[Any, Any]:
        new = (others + left) / 9.0
        return new, new

    def line(above: Any, lines: tuple[Any, Any]) -> tuple[Any, Any]:
        here, below = lines
        others = above[:-2] + above[1:-1] + above[2:] + here[1:-1] + here[2:] + below[:-2] + below[1:-1] + below[2:]
        _, inner = lax.scan(element, here[0], others)
        new = jnp.concatenate([here[:1], inner, here[-1:]])
        return new, new

    def step(_: Any, a: Any) -> Any:
        _, inner = lax.scan(line, a[0], (a[1:-1], a[2:]))
        return jnp.concatenate([a[:1], inner, a[-1:]])

    return lambda x, c: jnp.sum(lax.fori_loop(0, steps, step, x) * c)


def adi(steps: int, n: int) -> Any:
    a, b, d, e = adi_numbers(steps, n)

    def factors(off: float, diagonal: float) -> Any:
        """``p`` of 0 to n - 2."""

        def next_factor(p: Any, _: None) -> tuple[Any, Any]:
            new = -off / (off * p + diagonal)
            return new, new

        return jnp.concatenate([jnp.zeros(1), lax.scan(next_factor, jnp.zeros(()), None, n - 2)[1]])

    def solve(known: Any, off: float, diagonal: float, p: Any) -> Any:
        """Lines 1 to n - 2, whose systems run along the first axis; 1 before and after them."""
        ones = jnp.ones(n - 2)

        def forwards(q: Any, row: tuple[Any, Any]) -> tuple[Any, Any]:
            right, before = row
            new = (right - off * q) / (off * before + diagonal)
            return new, new

        def backwards(v: Any, row: tuple[Any, Any]) -> tuple[Any, Any]:
            q, factor = row
            new = factor * v + q
            return new, new

        _, q = lax.scan(forwards, ones, (known, p[:-1]))
        return lax.scan(backwards, ones, (q, p[1:]), reverse=True)[1]

    def framed(inner: Any) -> Any:
        """With lines of ones before and after; what is beside them is read by nobody."""
        ones = jnp.ones((1, n - 2))
        return jnp.concatenate([ones, inner, ones])

    def run(x: Any, c: Any) -> Any:
        p, r = factors(a, b), factors(d, e)

        def step(_: Any, u: Any) -> Any:
            known = -d * u[1:-1, :-2] + (1.0 + 2.0 * d) * u[1:-1, 1:-1] - d * u[1:-1, 2:]
            v = framed(solve(known, a, b, p))
            known = -a * v[:-2] + (1.0 + 2.0 * a) * v[1:-1] - a * v[2:]
            inner = framed(solve(known.T, d, e, r)).T
            return u.at[1:-1].set(inner)

        return jnp.sum(lax.fori_loop(0, steps, step, x) * c)

    return run


def heat_3d(steps: int, n: int) -> Any:
    def sweep(old: Any) -> Any:
        middle = old[1:-1, 1:-1, 1:-1]
        return old.at[1:-1, 1:-1, 1:-1].set(
            middle
            + 0.125
            * (
                (old[2:, 1:-1, 1:-1] - 2.0 * middle + old[:-2, 1:-1, 1:-1])
                + (old[1:-1, 2:, 1:-1] - 2.0 * middle + old[1:-1, :-2, 1:-1])
                + (old[1:-1, 1:-1, 2:] - 2.0 * middle + old[1:-1, 1:-1, :-2])
            )
        )

    return lambda x, c: jnp.sum(lax.fori_loop(0, steps, lambda _, a: sweep(sweep(a)), x) * c)
