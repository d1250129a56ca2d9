"""The solvers in JAX. Its reverse mode wants loops of known length, so triangles are masked rows of full length; the
factorizations take rank-one steps, of which few values are kept for the gradient. (``jax.numpy.linalg`` has Cholesky
and LU as calls of LAPACK: these are the loops.)"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax


def cholesky(n: int) -> Any:
    places = jnp.arange(n)

    def step(a: Any, k: Any) -> tuple[Any, Any]:
        column = a[:, k]
        factor = jnp.where(places >= k, column / jnp.sqrt(column[k]), 0.0)
        return a - jnp.outer(factor, factor), factor

    def run(x: Any, c: Any) -> Any:
        lower = jnp.tril(x)
        _, columns = lax.scan(step, lower + jnp.tril(x, -1).T, places)
        return jnp.sum(columns.T * c)

    return run


def lu(n: int) -> Any:
    places = jnp.arange(n)

    def step(a: Any, k: Any) -> tuple[Any, Any]:
        row = a[k]
        upper = jnp.where(places >= k, row, 0.0)
        lower = jnp.where(places > k, a[:, k] / row[k], 0.0)
        return a - jnp.outer(lower, upper), (lower, upper)

    def run(x: Any, c: Any) -> Any:
        _, (lower, upper) = lax.scan(step, x, places)
        return jnp.sum((lower.T + upper) * c)

    return run


def durbin(n: int) -> Any:
    places = jnp.arange(n)

    def before(z: Any, k: Any) -> Any:
        """z[k - 1], z[k - 2] … z[0], then zeros."""
        return jnp.where(places < k, jnp.roll(z[::-1], k), 0.0)

    def run(r: Any, c: Any) -> Any:
        def step(carry: tuple[Any, Any, Any], k: Any) -> tuple[Any, None]:
            y, alpha, beta = carry
            beta = beta * (1.0 - alpha * alpha)
            alpha = -(r[k] + before(r, k) @ y) / beta
            y = (y + alpha * before(y, k)).at[k].set(alpha)
            return (y, alpha, beta), None

        start = jnp.zeros(n).at[0].set(-r[0]), -r[0], jnp.ones(())
        (y, _, _), _ = lax.scan(step, start, places[1:])
        return y @ c

    return run


def trisolv(n: int) -> Any:
    def run(x: Any, b: Any, c: Any) -> Any:
        def step(y: Any, row: tuple[Any, Any, Any]) -> tuple[Any, None]:
            line, right, i = row
            return y.at[i].set((right - line @ y) / line[i]), None  # y is 0 from i on

        y, _ = lax.scan(step, jnp.zeros(n), (x, b, jnp.arange(n)))
        return y @ c

    return run
