"""What the norms share: mean and variance over some axes, what follows from them, and the checks of parameters.

With x̂ = (x - mean)·r and r = 1/√(variance + epsilon):

    y  = x̂·gamma + beta                                           dgamma = Σ dy·x̂        dbeta = Σ dy
    dx = r·(d - mean d - x̂·mean(d·x̂))   with d = dy·gamma    (Ioffe & Szegedy, Batch Normalization, 2015, section 3)

The adjoint writes mean and r as the decomposition does, so EliminateCommonSubexpr makes them one: the backward pass
reads what the forward pass computed. Half-precision types are computed in float32 and rounded once at the end; scale,
bias and statistics may be float32 then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError
from pullback.relax.op.family import expect_dtype, expect_same_dtype, known_shape, normalize_axes, wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import count, scalar_count
from pullback.relax.struct_info import TensorStructInfo, format_shape, same_shape

LARGE_PART = 256  # elements of an image that make its own mean and variance worth their while
LONG = 32  # elements that are worth one pass: they are no one vector


def widened(x: Any) -> Any:
    """A value in the type in which it is computed."""
    return as_dtype(x, wide(x.dtype))


def as_dtype(x: Any, dtype: str) -> Any:
    return x if x.dtype == dtype else ops.astype(x, dtype)


def split_axes(x: Any, axes: Any) -> tuple[list[int], list[int]]:
    """The axes counted from the front, and the other axes."""
    own = list(normalize_axes("normalisation", axes, len(x.shape)))
    return own, [a for a in range(len(x.shape)) if a not in own]


def spread(parameter: Any, x: Any, axes: Any) -> Any:
    """A parameter whose axes are those axes of x, in x's computing type, made to broadcast against x."""
    own, others = split_axes(x, axes)
    leads = own == list(range(len(others), len(x.shape)))
    return widened(parameter if leads else ops.expand_dims(parameter, others))


def mean_product(x: Any, y: Any, axes: Sequence[int]) -> Any:
    """The mean of x·y over the axes, which are kept with size 1."""
    return ops.vecdot(x, y, axes, True) / scalar_count(x, axes)


@dataclass(frozen=True)
class Moments:
    """Mean and r = 1/√(variance + epsilon) of x over the axes, which are kept with size 1.

    Of n elements beside one of them, ``near``, both sums are taken in one pass: with t = x - near and E = Σ/n

        mean = near + E t        variance = E t² - (E t)²

    (Chan, Golub and LeVeque, Algorithms for Computing the Sample Variance, 1983: shifted data). The variance has the
    error of a sum of (near - mean)² + variance, which is about twice, and n times where all others are equal.

    What has the size of x is built anew for each use: computing it again is free where x is read, and each use is fused
    with its own reader.
    """

    x: Any
    axes: Sequence[int]
    epsilon: float

    @cached_property
    def near(self) -> Any:
        """The first element; None: there are few, of which another pass is free, or it is not known how many. No
        result depends on which one it is, so it has no derivative."""
        size = count(self.x.shape, self.axes)
        if not isinstance(size, int) or size < LONG:
            return None
        first = ops.strided_slice(self.x, self.axes, [0] * len(self.axes), [1] * len(self.axes))
        return ops.grad.no_grad(first)

    @property
    def shifted(self) -> Any:
        return self.x - self.near

    @cached_property
    def offset(self) -> Any:
        return ops.mean(self.shifted, self.axes, True)

    @cached_property
    def mean(self) -> Any:
        return ops.mean(self.x, self.axes, True) if self.near is None else self.near + self.offset

    @property
    def centered(self) -> Any:
        return self.x - self.mean

    @cached_property
    def variance(self) -> Any:
        if self.near is None:
            return mean_product(self.centered, self.centered, self.axes)
        squares = mean_product(self.shifted, self.shifted, self.axes)
        return ops.maximum(squares - ops.square(self.offset), 0.0)  # rounded, the difference may be below 0

    @cached_property
    def inverse(self) -> Any:
        return ops.rsqrt(self.variance + self.epsilon)

    @property
    def normal(self) -> Any:
        return self.centered * self.inverse


def scaled(normal: Any, gamma: Any, beta: Any) -> Any:
    """x̂·gamma + beta; either may be None."""
    if gamma is not None and beta is not None:
        return ops.ewise_fma(normal, gamma, beta)
    y = normal if gamma is None else normal * gamma
    return y if beta is None else y + beta


def adjoints(
    dy: Any, moments: Moments, gamma: Any, rest: Sequence[int], scale: bool, center: bool
) -> tuple[Any, Any, Any]:
    """dx, dgamma and dbeta in the computing type; the parameters broadcast, ``rest`` are the axes that they lack."""
    axes, m = moments.axes, moments

    def d() -> Any:
        return dy * gamma if scale else dy

    # x̂·mean(d·x̂) is (x - mean)·k, without a pass over x that waits for its variance. (E d·t - E d · E t would not
    # wait for the mean either, but float32 losses of a GPT were 2.6 times as far from float64 as PyTorch's.) The two
    # differences come first: where d hardly varies, or all of it along x̂, little is left of them, and that is not
    # rounded before.
    k = ops.square(m.inverse) * mean_product(d(), m.centered, axes)
    dx = m.inverse * ops.ewise_fma(m.centered, -k, d() - ops.mean(d(), axes, True))
    return dx, ops.vecdot(dy, m.normal, rest) if scale else None, ops.sum(dy, rest) if center else None


def narrowed(values: Sequence[Any], dtype: str) -> tuple[Any, ...]:
    return tuple(None if v is None else as_dtype(v, dtype) for v in values)


def narrowed_adjoints(values: Sequence[Any], x: Any, parameter: Any) -> tuple[Any, ...]:
    """The adjoint of x, and those of its parameters, in their types."""
    return narrowed(values[:1], x.dtype) + narrowed(values[1:], parameter.dtype)


def check_parameters(
    name: str, x: TensorStructInfo, axes: Any, *parameters: tuple[str, TensorStructInfo]
) -> TensorStructInfo:
    """The type of x, when the parameters have the sizes of its axes, and its dtype or that in which it is computed."""
    shape = known_shape(name, x)
    expect_dtype(name, x, "float")
    expected = [shape[a] for a in normalize_axes(name, axes, len(shape))]
    for label, info in parameters:
        if not same_shape(known_shape(name, info, label), expected):
            got = format_shape(info.shape)
            raise ShapeError(f"{name}: {label} must have the shape {format_shape(expected)} of the axes, got {got}")
    if any(info.dtype != wide(x.dtype) for _, info in parameters):
        expect_same_dtype(name, x, *(i for _, i in parameters))
    return x


def spread_array(parameter: np.ndarray, x: np.ndarray, axes: Any) -> np.ndarray:
    return np.expand_dims(parameter, tuple(split_axes(x, axes)[1])).astype(x.dtype)


def standardized_array(x: np.ndarray, axes: Sequence[int], epsilon: float) -> np.ndarray:
    own = tuple(axes)
    return (x - np.mean(x, own, keepdims=True)) / np.sqrt(np.var(x, own, keepdims=True) + x.dtype.type(epsilon))
