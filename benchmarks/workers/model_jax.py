"""JAX's side of a training step: one jitted function, which donates parameters, states and moments.

Images are kept channels-last, as JAX's users have them: XLA's convolutions on the CPU are written for that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.models import MODELS, Model
from benchmarks.models.base import Optimizer
from benchmarks.workers.protocol import Cases, Step, draw_model, serve, versions_of

BETA1, BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8


def load() -> dict[str, str]:
    import jax  # noqa: F401

    return versions_of("jax", "jaxlib")


def prepare(name: str, variant: str) -> Cases:
    return {"step": step_of(MODELS[name])}


def step_of(model: Model) -> Step:
    import jax
    import jax.numpy as jnp

    def array(value: np.ndarray, axes: tuple[int, ...]) -> Any:
        return jnp.asarray(value.transpose(axes) if value.ndim == 4 else value)

    x, y = (array(value, (0, 2, 3, 1)) for value in model.data())
    values = {name: array(value, (2, 3, 1, 0)) for name, value in model.parameters().items()}
    states = {name: jnp.asarray(value) for name, value in model.states().items()}
    moments = jax.tree.map(jnp.zeros_like, (values, values)) if model.optimizer.kind == "adam" else ()

    def loss_of(values: Any, states: Any, x: Any, y: Any) -> tuple[Any, Any]:
        logits, updated = model.jax(values, states, x)
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
        return (losses.mean() if model.reduction == "mean" else losses.sum()), updated

    def whole(values: Any, states: Any, moments: Any, count: Any, x: Any, y: Any) -> tuple[Any, ...]:
        (loss, states), gradients = jax.value_and_grad(loss_of, has_aux=True)(values, states, x, y)
        values, moments = update(model.optimizer, values, gradients, moments, count)
        return values, states, moments, count + 1, loss

    compiled = jax.jit(whole, donate_argnums=(0, 1, 2, 3))
    kept = (values, states, moments, jnp.ones(()))

    def step() -> float:
        nonlocal kept
        *new, loss = compiled(*kept, x, y)
        kept = tuple(new)
        return float(loss)

    return step


def update(optimizer: Optimizer, values: Any, gradients: Any, moments: Any, count: Any) -> tuple[Any, Any]:
    """SGD or Adam, in PyTorch's formulas."""
    import jax
    import jax.numpy as jnp

    rate, decay = optimizer.learning_rate, optimizer.weight_decay
    if decay:
        gradients = jax.tree.map(lambda g, v: g + decay * v, gradients, values)
    if optimizer.kind == "sgd":
        return jax.tree.map(lambda v, g: v - rate * g, values, gradients), moments
    first = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, moments[0], gradients)
    second = jax.tree.map(lambda m, g: BETA2 * m + (1 - BETA2) * g * g, moments[1], gradients)
    scale1, scale2 = 1 / (1 - BETA1**count), 1 / (1 - BETA2**count)
    values = jax.tree.map(
        lambda v, m, s: v - rate * (m * scale1) / (jnp.sqrt(s * scale2) + ADAM_EPSILON), values, first, second
    )
    return values, (first, second)


if __name__ == "__main__":
    serve(load, prepare, draw_model)
