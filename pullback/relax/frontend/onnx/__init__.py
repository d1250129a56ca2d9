"""Models of ONNX."""

from __future__ import annotations

from pullback.relax.frontend.onnx import ops  # fills the table
from pullback.relax.frontend.onnx.known import NeedsValue
from pullback.relax.frontend.onnx.model import OnnxModel
from pullback.relax.frontend.onnx.module import from_onnx
from pullback.relax.frontend.onnx.table import ONNX
from pullback.relax.frontend.onnx.write import to_onnx

__all__ = ["ONNX", "NeedsValue", "OnnxModel", "from_onnx", "ops", "to_onnx"]
