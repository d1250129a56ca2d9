"""What the operations of ``keras.ops`` are here, one file a family. Importing this fills the table."""

from __future__ import annotations

from pullback.relax.frontend.keras.ops import (
    array,
    elementwise,
    image,
    linear,
    network,
    reduction,
    refused,
)

__all__ = ["array", "elementwise", "image", "linear", "network", "reduction", "refused"]
