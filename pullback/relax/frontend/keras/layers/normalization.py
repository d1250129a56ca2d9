"""Batch normalisation: whole, so that its gradient is that of the op."""

from __future__ import annotations

from typing import Any

from pullback.relax import op
from pullback.relax.frontend.keras.layers.form import trains
from pullback.relax.frontend.keras.table import KERAS, Call, cast, run_call


@KERAS.register("layers.BatchNormalization")
def batch_normalization(c: Call, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    moves = trains(training) and c.trainable
    if moves and (mask is not None or c.renorm):
        return run_call(c, inputs, training=training, mask=mask)
    # In half precision Keras computes in float32, and so does the op.
    dtype = "float64" if inputs.dtype == "float64" else "float32"
    weights = {name: c.weight(getattr(c.source, name)) for name in ("moving_mean", "moving_variance")}
    mean, variance = (cast(w, dtype) for w in weights.values())
    gamma = cast(c.weight(c.gamma), dtype) if c.scale else op.ones(mean.shape, dtype)
    beta = cast(c.weight(c.beta), dtype) if c.center else op.zeros(mean.shape, dtype)
    found = op.nn.batch_norm(
        inputs, gamma, beta, mean, variance, axis=c.axis, epsilon=float(c.epsilon), center=bool(c.center),
        scale=bool(c.scale), momentum=1.0 - float(c.momentum), training=moves, unbiased=False,
    )  # fmt: skip
    if moves:
        c.assign(c.moving_mean, found[1])
        c.assign(c.moving_variance, found[2])
    return c.cast(found[0])
