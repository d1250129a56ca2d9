"""A kernel: what it computes, of what, and with respect to which of its inputs it is differentiated."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Sizes = Mapping[str, int]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kernel:
    """``value``: a number of the inputs and the sizes, in NumPy. The inputs named in ``wrt`` are differentiated.

    ``sizes``: ``tiny`` ones for tests, and those of NPBench's presets S and M where it has the kernel.
    """

    name: str
    title: str
    draw: Callable[..., Arrays]  # of a random generator and the sizes
    value: Callable[..., Any]  # of the inputs and the sizes
    wrt: tuple[str, ...]
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    step: float = 1e-4  # of numeric differences

    def inputs(self, preset: str) -> Arrays:
        """The same numbers whenever they are drawn."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        return {name: np.asarray(array, np.float64) for name, array in self.draw(rng, **self.sizes[preset]).items()}

    def reference(self, preset: str, inputs: Arrays) -> float:
        """The value, by NumPy."""
        return float(self.value(**inputs, **self.sizes[preset]))

    def form(self, library: str, preset: str) -> Any:
        """The kernel as ``library`` has it: of ours a module with the function ``main``, of JAX's a function."""
        family = self.value.__module__
        return getattr(importlib.import_module(f"{family}_{library}"), self.name)(**self.sizes[preset])


def slope(kernel: Kernel, preset: str, inputs: Arrays, ways: Arrays) -> float:
    """The derivative of the reference along some ways, by differences of fourth order."""

    def at(times: float) -> float:
        moved = {k: v + times * kernel.step * ways[k] if k in ways else v for k, v in inputs.items()}
        return kernel.reference(preset, moved)

    return (at(-2) - 8 * at(-1) + 8 * at(1) - at(2)) / (12 * kernel.step)
