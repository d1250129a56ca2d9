"""Executors: what runs programs of relay, and what is built of them."""

import importlib
from typing import Any

from pullback.relay.backend.options import Executor, Runtime

_MODULES = ("executor_factory", "interpreter", "vm", "aot", "graph")


def __getattr__(name: str) -> Any:
    """A module of the package, loaded when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Executor", "Runtime", "executor_factory", "interpreter", "vm"]
