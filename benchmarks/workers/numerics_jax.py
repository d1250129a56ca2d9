"""JAX's side of the numeric kernels: ``value_and_grad``, jitted, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.numerics import KERNELS
from benchmarks.numerics.kernel import Arrays, Kernel
from benchmarks.workers.numerics_pullback import Named, first_calls, timed
from benchmarks.workers.protocol import Cases, need, serve, told, versions_of


def load() -> dict[str, str]:
    need("jax", "jaxlib")
    import jax

    jax.config.update("jax_enable_x64", True)
    return versions_of("jax", "jaxlib")


def prepare(names: str, preset: str) -> Cases:
    return told([Named(KERNELS[name], preset) for name in names.split(",")], lambda case: timed(case, gradients_of))


def gradients_of(kernel: Kernel, preset: str, inputs: Arrays) -> Callable[[], list[Any]]:
    import jax
    import jax.numpy as jnp

    arrays = [jnp.asarray(array) for array in inputs.values()]
    places = tuple(list(inputs).index(name) for name in kernel.wrt)
    function = jax.jit(jax.value_and_grad(kernel.form("jax", preset), argnums=places))

    def call() -> list[Any]:
        value, gradients = jax.block_until_ready(function(*arrays))
        return [value, *gradients]

    return call


if __name__ == "__main__":
    serve(load, prepare, about=lambda: {"first calls": first_calls})
