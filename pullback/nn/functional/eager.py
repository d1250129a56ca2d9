"""Functions called on arrays, outside of a model: they are compiled and computed at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.nn.trace import is_tracing
from pullback.relax.expr import Expr
from pullback.runtime.tensor import Tensor

__all__: list[str] = []


def on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, which builds a program of graph values, also for arrays: it returns the tensors that the program
    computes of them, in the form for inference, as a module does that is called with arrays."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_tracing():
            return function(*args, **kwargs)
        values = _flat([*args, *kwargs.values()])
        if not any(map(_is_array, values)) or any(isinstance(value, Expr) for value in values):
            return function(*args, **kwargs)

        def rebuilt(value: Any, inputs: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(rebuilt(item, inputs) for item in value) if _holds_arrays(value) else value
            return next(inputs) if _is_array(value) else value

        def forward(*inputs: Any) -> Any:
            left = iter(inputs)
            given = [rebuilt(value, left) for value in args]
            return function(*given, **{name: rebuilt(value, left) for name, value in kwargs.items()})

        from pullback.nn.container import Lambda

        arrays = [value for value in values if _is_array(value)]
        return Lambda(forward)(*arrays)

    call.__module__ = __package__  # where users find it, and pickle
    return call


def _flat(values: Any) -> list[Any]:
    return [leaf for value in values for leaf in (_flat(value) if isinstance(value, (list, tuple)) else [value])]


def _holds_arrays(values: Any) -> bool:
    return any(map(_is_array, _flat(values)))


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Tensor)) or (not isinstance(value, Expr) and hasattr(value, "__dlpack__"))
