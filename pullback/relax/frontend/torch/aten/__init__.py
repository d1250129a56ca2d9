"""What ATen's operators are here, one file a family. Importing this fills the table; no file needs PyTorch."""

from __future__ import annotations

from pullback.relax.frontend.torch.aten import layers, losses, normalization, pooling, recurrent, vision

__all__ = ["layers", "losses", "normalization", "pooling", "recurrent", "vision"]
