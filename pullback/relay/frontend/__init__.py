"""Importers: models of PyTorch, ONNX and Keras as modules of relay with their parameters."""

from __future__ import annotations

from pullback.relay.frontend.keras import from_keras
from pullback.relay.frontend.onnx import from_onnx
from pullback.relay.frontend.torch import from_pytorch

__all__ = ["from_keras", "from_onnx", "from_pytorch"]
