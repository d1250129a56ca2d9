"""Comparison of arrays, and of derivatives with differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError


def _array(value: Any) -> np.ndarray:
    return np.asanyarray(value.numpy() if hasattr(value, "numpy") else value)


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7, verbose: bool = True) -> None:
    """Raise AssertionError unless both have one shape, and |actual - desired| ≤ atol + rtol · |desired| everywhere.

    Args:
        actual: a tensor, an array, or what NumPy makes one of.
        desired: what it should be.
        rtol: the relative tolerance.
        atol: the absolute tolerance.
        verbose: whether the error shows both arrays.

    Raises:
        AssertionError: where the shapes differ, or elements by more than the tolerance.

    Examples:
        >>> from pullback.testing import assert_allclose
        >>> assert_allclose(pullback.tensor([1.0]), np.ones(1))
        >>> assert_allclose(pullback.tensor([1.0]), np.ones(2))
        Traceback (most recent call last):
        AssertionError: the shapes differ: (1,) and (2,)
    """
    actual, desired = _array(actual), _array(desired)
    if actual.shape != desired.shape:
        raise AssertionError(f"the shapes differ: {actual.shape} and {desired.shape}")
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol, verbose=verbose)


def _numbered(arrays: Sequence[np.ndarray] | dict[str, np.ndarray]) -> dict[Any, np.ndarray]:
    """By their names, or numbers."""
    return dict(arrays) if isinstance(arrays, dict) else dict(enumerate(arrays))


def check_numerical_grads(
    function: Callable[..., float],
    input_values: Sequence[np.ndarray] | dict[str, np.ndarray],
    grad_values: Sequence[np.ndarray] | dict[str, np.ndarray],
    function_value: float | None = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
    acceptable_fail_percentage: float | None = None,
) -> None:
    """Compare gradients of a function of arrays, which returns a number, with its differences ``delta`` apart.

    Inputs and gradients are sequences, or dictionaries by the names of keyword arguments. At most
    ``acceptable_fail_percentage`` of the elements of each may be apart from the difference by more than
    ``atol · max |gradient| + rtol · |difference|``; None: not one. Else an AssertionError names them.

    Args:
        function: takes the arrays, by position or by name; of an array that it returns the sum counts.
        input_values: the arrays at which it is differentiated; each element is moved in turn.
        grad_values: the gradients to check, of the shapes of the inputs.
        function_value: the function's value there, to check as well.
        delta: how far an element is moved, to either side.
        atol: the tolerance, as a part of the largest gradient; absolute for ``function_value``.
        rtol: the tolerance relative to the difference.
        acceptable_fail_percentage: of the elements, 0 to 100.

    Raises:
        AssertionError: where a gradient, its shape or the value is wrong.
        ArgumentError: where inputs and gradients do not correspond.

    Examples:
        >>> from pullback.testing import check_numerical_grads
        >>> w = np.array([1.0, 2.0])
        >>> check_numerical_grads(lambda w: (w**2).sum(), [w], [2 * w])
        >>> check_numerical_grads(lambda w: (w**2).sum(), {"w": w}, {"w": w})
        Traceback (most recent call last):
        AssertionError: the gradient of w differs at 2 of 2 places, first at (0,): 1.0 where the difference gives ...
    """
    named = isinstance(input_values, dict)
    if named != isinstance(grad_values, dict) or len(input_values) != len(grad_values):
        raise ArgumentError("check_numerical_grads: inputs and gradients must correspond")
    values, grads = _numbered(input_values), _numbered(grad_values)

    def at(changed: dict[Any, np.ndarray]) -> float:
        found = function(**changed) if named else function(*changed.values())
        return float(np.sum(_array(found), dtype="float64"))

    for name, x in values.items():
        grad = _array(grads[name])
        if grad.shape != x.shape:
            raise AssertionError(f"the gradient of {name} has the shape {grad.shape}, the input {x.shape}")
        numeric = np.empty(x.shape, "float64")
        for i in np.ndindex(*x.shape):
            ends = []
            for step in (delta, -delta):
                moved = x.copy()
                moved[i] += step
                ends.append((moved[i], at(values | {name: moved})))
            (high, above), (low, below) = ends
            numeric[i] = (above - below) / float(high - low)
        allowed = atol * max(np.abs(grad).max(initial=0), 1e-30) + rtol * np.abs(numeric)
        wrong = np.argwhere(~(np.abs(grad - numeric) <= allowed))
        limit = 0 if acceptable_fail_percentage is None else acceptable_fail_percentage * x.size / 100
        if len(wrong) > limit:
            first = tuple(map(int, wrong[0]))
            raise AssertionError(
                f"the gradient of {name} differs at {len(wrong)} of {x.size} places, first at {first}: "
                f"{grad[first]} where the difference gives {numeric[first]}"
            )
    if function_value is not None:
        np.testing.assert_allclose(function_value, at(values), rtol=rtol, atol=atol)
