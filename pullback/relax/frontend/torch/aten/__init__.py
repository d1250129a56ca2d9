"""What ATen's operators are here, one file a family. Importing this fills the table; no file needs PyTorch."""

from __future__ import annotations

from pullback.relax.frontend.torch.aten import (
    activation,
    backward,
    create,
    foreach,
    index,
    layers,
    linear_algebra,
    losses,
    normalization,
    order,
    pointwise,
    pooling,
    recurrent,
    reduce,
    shape,
    sizes,
    vision,
)

__all__ = [
    "activation", "backward", "create", "foreach", "index", "layers", "linear_algebra", "losses", "normalization",
    "order", "pointwise", "pooling", "recurrent", "reduce", "shape", "sizes", "vision",
]  # fmt: skip
