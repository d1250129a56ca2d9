"""What a benchmarked model says of itself: sizes, data, initial values, cost, and its forward pass for each side.

All sides start from the same arrays. Arrays are in the layouts of the graph IR: images (N, C, H, W), weights of
convolutions (O, I, H, W), weights of linear layers (inputs, outputs). A side may keep them in the layout that it likes
best (:mod:`benchmarks.workers`); such conversions are not timed. They are drawn once, and nobody writes to them.

Values are drawn in float32. With ``dtype="float64"`` a model trains on the same values in float64: that is the judge of
how exact float32 is (:mod:`benchmarks.losses`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

Arrays = dict[str, np.ndarray]
Values = Mapping[str, Any]  # arrays of a library by name


@dataclass(frozen=True)
class Optimizer:
    """``kind``: sgd or adam, in PyTorch's formulas, with PyTorch's defaults for what is not said here."""

    kind: str
    learning_rate: float
    weight_decay: float = 0.0


@dataclass(frozen=True)
class Model(ABC):
    """A classifier: logits (N, classes) against int64 labels (N,), by softmax cross entropy.

    ``dtype``: float32 or float64, of parameters, states, activations, and of inputs that are no indices. ``seed``: of
    the initial parameters.
    """

    dtype: str = field(default="float32", kw_only=True)
    seed: int = field(default=1, kw_only=True)

    name: ClassVar[str]
    optimizer: ClassVar[Optimizer]
    reduction: ClassVar[str] = "mean"
    loss_tolerance: ClassVar[float] = 2e-3  # relative, between sides, of ten losses in float32
    embeddings: ClassVar[tuple[str, ...]] = ()  # matrices that are no weights of linear layers

    @property
    @abstractmethod
    def title(self) -> str:
        """Sizes, batch and optimizer, for the table."""

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of the batch on which all steps are made."""
        x, labels = self.drawn[0].values()
        return x, labels

    def parameters(self) -> Arrays:
        """Initial parameters."""
        return self.drawn[1]

    def states(self) -> Arrays:
        """Initial states: what a forward pass replaces."""
        return self.drawn[2]

    @cached_property
    def drawn(self) -> tuple[Arrays, Arrays, Arrays]:
        """Data, parameters and states, kept: to draw them is no side's work, and takes longer than some first steps."""
        data = dict(zip(("x", "labels"), self.draw_data(), strict=True))
        groups = data, self.draw_parameters(), self.initial_states()
        return tuple({name: self._typed(array) for name, array in group.items()} for group in groups)  # type: ignore[return-value]

    def _typed(self, array: np.ndarray) -> np.ndarray:
        array = array.astype(self.dtype) if array.dtype == np.float32 else array
        array.flags.writeable = False
        return array

    # What a model says, in float32.

    @abstractmethod
    def draw_data(self) -> tuple[np.ndarray, np.ndarray]: ...

    @abstractmethod
    def draw_parameters(self) -> Arrays: ...

    def initial_states(self) -> Arrays:
        return {}

    @abstractmethod
    def flops(self) -> int:
        """Of the matrix products and convolutions in one training step."""

    # The forward pass of each side: logits, and the new states (PyTorch changes them in place).

    @abstractmethod
    def torch(self, p: Values, s: Values, x: Any) -> Any: ...

    @abstractmethod
    def jax(self, p: Values, s: Values, x: Any) -> tuple[Any, Values]: ...

    @abstractmethod
    def relax(self, emit: Any, op: Any, p: Values, s: Values, x: Any) -> tuple[Any, Values]:
        """In graph IR: ``emit(expr)`` binds, ``op`` holds the ops. It serves `pullback.relax` and `tvm.relax` alike."""


class Initial:
    """Draws initial values, the same for a seed: weights normal with variance 2 / fan-in, biases zero."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)
        self.arrays: Arrays = {}

    def linear(self, name: str, inputs: int, outputs: int) -> None:
        self.arrays[f"{name}_weight"] = self.normal((inputs, outputs), inputs)
        self.arrays[f"{name}_bias"] = np.zeros(outputs, np.float32)

    def conv(self, name: str, outputs: int, inputs: int, kernel: int) -> None:
        self.arrays[f"{name}_weight"] = self.normal((outputs, inputs, kernel, kernel), inputs * kernel * kernel)

    def norm(self, name: str, width: int) -> None:
        self.arrays[f"{name}_gamma"] = np.ones(width, np.float32)
        self.arrays[f"{name}_beta"] = np.zeros(width, np.float32)

    def normal(self, shape: tuple[int, ...], fan_in: float) -> np.ndarray:
        return (self.generator.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)


def images(batch: int, channels: int, size: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images and labels."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((batch, channels, size, size), dtype=np.float32)
    return x, generator.integers(0, classes, batch)


def conv_jax(x: Any, weight: Any, stride: int = 1, padding: int = 0) -> Any:
    """NHWC by HWIO."""
    from jax import lax

    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2, dimension_numbers=numbers)
