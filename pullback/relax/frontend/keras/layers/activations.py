"""The softmax layer, which Keras writes with functions of its backend."""

from __future__ import annotations

from typing import Any

from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.keras.ops.network import softmax_over
from pullback.relax.frontend.keras.table import KERAS, Call, cast


@KERAS.register("layers.Softmax")
def softmax(c: Call, inputs: Any, mask: Any = None) -> Any:
    if mask is not None:
        kept = mask if mask.dtype == "bool" else op.greater(mask, cast(0.5, mask.dtype))
        least = -3e4 if inputs.dtype == "float16" else -1e9
        inputs = op.where(kept, inputs, const(least, inputs.dtype))
    return softmax_over(op.nn.softmax, inputs, c.axis)
