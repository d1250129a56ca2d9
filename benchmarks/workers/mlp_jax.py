"""JAX's side of the MLP step: one jitted function from donated parameters to new ones."""

from __future__ import annotations

from typing import Any

from benchmarks.workers import mlp_step
from benchmarks.workers.protocol import Cases, serve, versions_of


def load() -> dict[str, str]:
    import jax  # noqa: F401

    return versions_of("jax", "jaxlib")


def prepare(variant: str) -> Cases:
    import jax
    import jax.numpy as jnp

    x, y = (jnp.asarray(array) for array in mlp_step.batch())
    parameters = [jnp.asarray(array) for array in mlp_step.initial_parameters()]

    def loss_of(values: list[Any], x: Any, y: Any) -> Any:
        w0, b0, w1, b1, w2, b2 = values
        hidden = jax.nn.relu(x @ w0 + b0)
        hidden = jax.nn.relu(hidden @ w1 + b1)
        log_probabilities = jax.nn.log_softmax(hidden @ w2 + b2)
        return -jnp.sum(jnp.take_along_axis(log_probabilities, y[:, None], axis=1))

    def whole(values: list[Any], x: Any, y: Any) -> tuple[list[Any], Any]:
        loss, gradients = jax.value_and_grad(loss_of)(values, x, y)
        rate, decay = mlp_step.LEARNING_RATE, mlp_step.WEIGHT_DECAY
        return [v - rate * (g + decay * v) for v, g in zip(values, gradients, strict=True)], loss

    compiled = jax.jit(whole, donate_argnums=0)

    def step() -> float:
        nonlocal parameters
        parameters, loss = compiled(parameters, x, y)
        return float(loss)

    return {"step": step}


if __name__ == "__main__":
    serve(load, prepare)
