"""Initial values of parameters: distributions, by name and by pattern of parameter names.

    >>> pullback.trainer(net, loss, optimizer, example=x, init={"*.weight": "kaiming_normal", "emb*": Normal(0.02)})

An initializer is called with NumPy's generator and a shape, and returns an array. *Fans* of a weight (outputs, inputs,
kernel…) are PyTorch's: inputs and outputs, each times the number of kernel positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.runtime.dtype import numpy_dtype


class Initializer(Protocol):
    """Draws an array of a shape."""

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray: ...


class Constant:
    """All elements are ``value``."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.value)


class Uniform:
    """Uniform between ``low`` and ``high``."""

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        self.low, self.high = low, high

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return generator.uniform(self.low, self.high, shape)


class Normal:
    """Normal with the standard deviation ``std`` and the mean ``mean``."""

    def __init__(self, std: float = 1.0, mean: float = 0.0) -> None:
        self.std, self.mean = std, mean

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return generator.normal(self.mean, self.std, shape)


class KaimingUniform:
    """Uniform in ±gain·√(3 / fan_in), gain = √(2 / (1 + a²)). He et al. 2015; PyTorch's layers begin with a = √5."""

    def __init__(self, a: float = 0.0) -> None:
        self.a = a

    def __call__(self, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        bound = math.sqrt(6.0 / (1.0 + self.a**2) / max(1, fans(shape)[0]))
        return generator.uniform(-bound, bound, shape)


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """fan_in and fan_out of a weight (outputs, inputs, kernel…); a ShapeError for a rank below two."""
    if len(shape) < 2:
        raise ShapeError(f"a tensor of shape {shape} has no fans", hint="an initializer with fans takes weights")
    positions = math.prod(shape[2:])
    return shape[1] * positions, shape[0] * positions


_NAMES: dict[str, Callable[[], Initializer]] = {
    "zeros": lambda: Constant(0.0),
    "ones": lambda: Constant(1.0),
    "uniform": Uniform,
    "normal": Normal,
    "kaiming_uniform": KaimingUniform,
}


def initializer(init: Any) -> Initializer:
    """An initializer from one, its name, a number (all elements) or None (zeros)."""
    if init is None:
        return Constant(0.0)
    if isinstance(init, (int, float)) and not isinstance(init, bool):
        return Constant(float(init))
    if isinstance(init, str) and init in _NAMES:
        return _NAMES[init]()
    if isinstance(init, type):
        return init()
    if callable(init):
        return init
    raise ArgumentError(f"{init!r} is no initializer", hint=f"their names are {', '.join(_NAMES)}")


def by_pattern(init: Any) -> Mapping[str, Initializer]:
    """Initializers by pattern of names: a mapping, or one initializer for all."""
    if isinstance(init, Mapping):
        return {pattern: initializer(one) for pattern, one in init.items()}
    return {"*": initializer(init)}


def match(patterns: Mapping[str, Initializer], names: Sequence[str]) -> dict[str, Initializer]:
    """For each name the initializer of the first pattern that matches it, as in ``fnmatch``; an ArgumentError for a
    pattern that matches none."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ArgumentError(
                f"init: no parameter matches {pattern!r}; the parameters are: {', '.join(names)}",
                hint="patterns are those of a shell: 'body.*', '*.weight'",
            )
    found = {name: next((p for p in patterns if fnmatchcase(name, p)), None) for name in names}
    return {name: patterns[pattern] for name, pattern in found.items() if pattern is not None}


def drawn(chosen: Mapping[str, Initializer], seed: int, types: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of these types, drawn by name. Those of rank 0 and 1 are left out under an initializer that needs fans."""
    values = {}
    for place, (name, info) in enumerate(types.items()):
        if name in chosen:
            generator = np.random.Generator(np.random.PCG64([seed, place]))
            try:
                array = np.asarray(chosen[name](generator, info.shape), np.float64)
            except ShapeError as error:
                if len(info.shape) > 1:
                    raise ShapeError(f"{name}: {error.message}", hint=error.hint) from None
                continue
            values[name] = array.astype(numpy_dtype(info.dtype))
    return values


__all__ = [
    "Constant", "Initializer", "KaimingUniform", "Normal", "Uniform", "by_pattern", "drawn", "fans", "initializer",
    "match",
]  # fmt: skip
