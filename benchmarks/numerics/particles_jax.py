"""Gravity and clusters in JAX: loops of known length."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.numerics.particles import DT, SOFTENING


def nbody(n: int, steps: int) -> Any:
    def accelerations(mass: Any, pos: Any) -> Any:
        apart = pos[:, None, :] - pos[:, :, None]
        square = jnp.sum(apart * apart, 0) + SOFTENING**2
        return jnp.sum(apart * (mass / (square * jnp.sqrt(square))), 2)

    def run(mass: Any, pos: Any, vel: Any, c: Any) -> Any:
        def step(_: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            pos, vel, acc = state
            vel = vel + acc * (DT / 2)
            pos = pos + vel * DT
            acc = accelerations(mass, pos)
            return pos, vel + acc * (DT / 2), acc

        pos, vel, _ = lax.fori_loop(0, steps, step, (pos, vel, accelerations(mass, pos)))
        return jnp.sum(pos * c[0]) + jnp.sum(vel * c[1])

    return run


def kmeans(n: int, d: int, k: int, steps: int) -> Any:
    def distances(x: Any, centres: Any) -> Any:
        return jnp.sum(x * x, 1)[:, None] - 2.0 * (x @ centres.T) + jnp.sum(centres * centres, 1)

    def run(x: Any, start: Any) -> Any:
        def step(_: Any, centres: Any) -> Any:
            member = jax.nn.one_hot(jnp.argmin(distances(x, centres), 1), k, dtype=x.dtype)
            return (member.T @ x) / jnp.maximum(jnp.sum(member, 0), 1.0)[:, None]

        return jnp.sum(jnp.min(distances(x, lax.fori_loop(0, steps, step, start)), 1))

    return run
