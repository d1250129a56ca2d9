"""What ONNX's operators are here, one file a family. Importing this fills the table; no file needs the package onnx."""

from __future__ import annotations

from pullback.relax.frontend.onnx.ops import elementwise, reductions, shapes

__all__ = ["elementwise", "reductions", "shapes"]
