"""Initial values of parameters and states."""

from __future__ import annotations

import math

import numpy as np

from pullback import nd
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax.struct_info import format_info
from pullback.relax.training.interface import Slot
from pullback.runtime.tensor import Tensor


def xavier_uniform(slot: Slot, generator: np.random.Generator) -> Tensor:
    """Uniform in ±√(6 / (fan_in + fan_out)); zeros for a rank below two, which has no fans (biases).
    (A bias of a higher rank is known by its use: ``initial_values`` in ``setup_trainer.py``.)

    The last two axes of a matrix (inputs, outputs) are its fans. From rank three on the tensor is a convolution's
    weight (outputs, inputs, kernel…), whose kernel positions multiply both. Source: Glorot & Bengio, Understanding the
    difficulty of training deep feedforward neural networks, AISTATS 2010, eq. 16.
    """
    shape = static_shape(slot)
    if len(shape) < 2:
        return zeros(slot)
    positions = math.prod(shape[2:])
    bound = math.sqrt(6.0 / max(1, (shape[0] + shape[1]) * positions))
    values = generator.uniform(-bound, bound, shape)
    return Tensor(shape, slot.info.dtype).copyfrom(values.astype(slot.numpy_dtype))


def generator(seed: int) -> np.random.Generator:
    """NumPy's generator PCG64 with a seed; an ArgumentError when it is none."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ArgumentError(f"a seed must be an int ≥ 0, got {seed!r}", hint="such as seed=0")
    return np.random.Generator(np.random.PCG64(seed))


def random_state(seed: int) -> Tensor:
    """The state of a model's random numbers before the first step: (seed mod 2⁶⁴, 0)."""
    return Tensor((2,), "uint64").copyfrom(np.array([seed % 2**64, 0], np.uint64))


def zeros(slot: Slot) -> Tensor:
    """Zeros of the slot's type, which take no memory before the first step."""
    return nd.zeros(static_shape(slot), slot.info.dtype)


def full(slot: Slot, value: float) -> Tensor:
    """A tensor of the slot's type with all elements equal."""
    if not value:
        return zeros(slot)
    shape = static_shape(slot)
    return Tensor(shape, slot.info.dtype).copyfrom(np.broadcast_to(slot.numpy_dtype.type(value), shape))


def static_shape(slot: Slot) -> tuple[int, ...]:
    """The shape; a ShapeError when it is symbolic."""
    if not slot.info.is_static:
        raise ShapeError(f"{slot} needs a shape that is known to be initialized, it is {format_info(slot.info)}")
    return slot.info.static_shape
