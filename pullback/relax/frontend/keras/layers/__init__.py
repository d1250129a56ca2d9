"""What the layers of Keras are here: those that are more than operations, and the names of those that are not."""

from __future__ import annotations

from pullback.relax.frontend.keras.layers import (
    activations,
    normalization,
    preprocessing,
    random,
    recurrent,
    refused,
    traced,
    wrappers,
)

__all__ = ["activations", "normalization", "preprocessing", "random", "recurrent", "refused", "traced", "wrappers"]
