"""Ways to bring a graph function besides the script: layers under TVM's names, and models of other frameworks."""

from __future__ import annotations

import importlib
from typing import Any

from pullback.ir.errors import ArgumentError, suggestion
from pullback.relax.frontend import nn
from pullback.relax.frontend.converters import UnsupportedOps, register_converter

__all__ = ["UnsupportedOps", "keras", "nn", "onnx", "register_converter", "torch"]

_IMPORTERS = ("torch", "onnx", "keras")  # rooms that are loaded on first use: they need the framework


def load_tables(source: str) -> None:
    """Fill the table of conversions of a source; an ArgumentError for an unknown one."""
    if source not in _IMPORTERS:
        raise ArgumentError(
            f"there is no source {source!r}{suggestion(source, _IMPORTERS)}", hint=f"they are {', '.join(_IMPORTERS)}"
        )
    importlib.import_module(f"{__name__}.{source}")


def __getattr__(name: str) -> Any:
    if name in _IMPORTERS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
