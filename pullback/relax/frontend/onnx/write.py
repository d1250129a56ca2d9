"""Trained weights back into files of ONNX."""

from __future__ import annotations

from typing import Any


def to_onnx(model: Any, path: Any) -> None:
    raise NotImplementedError
