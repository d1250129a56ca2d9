"""What ONNX's operators are here, one file a family. Importing this fills the table; no file needs the package onnx."""

from __future__ import annotations

from pullback.relax.frontend.onnx.ops import (
    attention,
    control,
    elementwise,
    images,
    indices,
    layers,
    optimizers,
    patches,
    quantize,
    random,
    recurrent,
    reductions,
    sequences,
    shapes,
    signal,
    text,
)

__all__ = [
    "attention",
    "control",
    "elementwise",
    "images",
    "indices",
    "layers",
    "optimizers",
    "patches",
    "quantize",
    "random",
    "recurrent",
    "reductions",
    "sequences",
    "shapes",
    "signal",
    "text",
]
