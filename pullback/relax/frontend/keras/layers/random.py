"""Layers that draw random numbers in training: other ones than Keras's, by the trainer's seed."""

from __future__ import annotations

import math
from typing import Any

from pullback.nn import functional as F
from pullback.nn.functional.form import in_train_phase
from pullback.relax import op
from pullback.relax.frontend.keras.layers.form import trains
from pullback.relax.frontend.keras.table import KERAS, Call


@KERAS.register("layers.Dropout")
def dropout(c: Call, inputs: Any, training: Any = None) -> Any:
    if not trains(training) or not c.rate:
        return inputs
    if c.noise_shape is None:
        return op.dropout(inputs, p=float(c.rate))
    sizes = [n if s is None else s for n, s in zip(inputs.shape, c.noise_shape, strict=True)]
    return _dropped(inputs, sizes, c.rate)


def _dropped(x: Any, sizes: Any, rate: float) -> Any:
    """What one draw for each place of a tensor of these sizes leaves."""
    return x * op.dropout(op.ones(tuple(sizes), x.dtype), p=float(rate))


@KERAS.register("layers.SpatialDropout1D", "layers.SpatialDropout2D", "layers.SpatialDropout3D")
def spatial_dropout(c: Call, inputs: Any, training: Any = None) -> Any:
    if not trains(training) or not c.rate:
        return inputs
    is_last = getattr(c.source, "data_format", "channels_last") == "channels_last"
    kept = (0, len(inputs.shape) - 1 if is_last else 1)
    return _dropped(inputs, [n if a in kept else 1 for a, n in enumerate(inputs.shape)], c.rate)


@KERAS.register("layers.GaussianDropout")
def gaussian_dropout(c: Call, inputs: Any, training: Any = None) -> Any:
    if not trains(training) or not c.rate:
        return inputs
    noise = _normal(inputs, 1.0, math.sqrt(c.rate / (1.0 - c.rate)))
    return in_train_phase(inputs * noise, inputs)


@KERAS.register("layers.GaussianNoise")
def gaussian_noise(c: Call, inputs: Any, training: Any = None) -> Any:
    if not trains(training) or not c.stddev:
        return inputs
    return in_train_phase(inputs + _normal(inputs, 0.0, float(c.stddev)), inputs)


def _normal(x: Any, mean: float, deviation: float) -> Any:
    return op.astype(op.random.normal(shape=x.shape, mean=mean, std=deviation), x.dtype)


@KERAS.register("layers.AlphaDropout")
def alpha_dropout(c: Call, inputs: Any, training: Any = None) -> Any:
    if not trains(training) or not c.rate:
        return inputs
    if c.noise_shape is None:
        return F.alpha_dropout(inputs, float(c.rate), True)
    from pullback.ir.errors import UserError

    raise UserError("AlphaDropout with a noise_shape is not converted", hint="leave noise_shape out")
