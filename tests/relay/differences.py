"""Programs of relay run by the evaluator, and derivatives by differences: the oracle of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.module import IRModule
from pullback.relay.evaluate import Interpreter
from pullback.relay.expr import Function, Tuple, TupleWrapper, as_expr, call_op, const, var
from pullback.relay.op import get
from pullback.relay.transform.gradient import gradient

_RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return np.asarray(_RNG.normal(size=shape))


def between(low: float, high: float, *shape: int) -> np.ndarray:
    return np.asarray(_RNG.uniform(low, high, size=shape))


def apart(*shape: int) -> np.ndarray:
    """Numbers of which no two are near to one another, nor to 0."""
    size = int(np.prod(shape))
    return (_RNG.permutation(size).reshape(shape) - (size - 1) / 2) / 4 + 0.05


def indices(high: int, *shape: int) -> np.ndarray:
    return np.asarray(_RNG.integers(0, high, size=shape)).astype("int32")


def program(name: str, args: Sequence[Any], attrs: dict[str, Any]) -> tuple[Function, list[np.ndarray]]:
    """What an operator gives, weighted (of several results the sum of all floats), as a function of all of its tensors;
    and these. A list among the arguments is a tuple."""
    params, values, given = [], [], []
    for arg in args:
        parts = [var("x", shape=a.shape, dtype=str(a.dtype)) for a in (arg if isinstance(arg, list) else [arg])]
        params += parts
        values += arg if isinstance(arg, list) else [arg]
        given.append(Tuple(tuple(parts)) if isinstance(arg, list) else parts[0])
    result = get(name)(*given, **attrs)
    found = run(Function(tuple(params), as_expr(result)), *values)
    if not isinstance(found, tuple):
        return Function(tuple(params), _weighted(result, found)), values
    fields = result if isinstance(result, TupleWrapper) else TupleWrapper(result, len(found))
    terms = [call_op("sum", _weighted(fields[k], v)) for k, v in enumerate(found) if v.dtype.kind == "f"]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return Function(tuple(params), total), values


def _weighted(result: Any, value: np.ndarray) -> Any:
    weights = np.random.default_rng(3).uniform(0.5, 1.5, value.shape).astype(value.dtype)
    return call_op("multiply", result, const(weights))


def run(function: Function, *args: Any, mod: IRModule | None = None) -> Any:
    """What the function gives: an array, or a tuple of such."""
    return arrays(Interpreter(mod).function(function)(*args))


def arrays(value: Any) -> Any:
    return np.asarray(value.numpy()) if hasattr(value, "numpy") else tuple(map(arrays, value))


def differences(f: Callable[..., Any], args: Sequence[np.ndarray], step: float = 1e-5) -> list[np.ndarray]:
    """The derivatives of the sum of ``f(*args)`` by central differences; zeros where an argument holds no floats."""
    found = []
    for k, arg in enumerate(args):
        derivative = np.zeros(arg.shape, arg.dtype)
        if arg.dtype.kind == "f":
            for index in np.ndindex(arg.shape):
                sums = []
                for sign in (1, -1):
                    moved = arg.copy()
                    moved[index] += sign * step
                    sums.append(np.sum(f(*args[:k], moved, *args[k + 1 :])))
                derivative[index] = (sums[0] - sums[1]) / (2 * step)
        found.append(derivative)
    return found


def check_gradient(
    function: Function,
    args: Sequence[np.ndarray],
    mod: IRModule | None = None,
    modes: Sequence[str] = ("higher_order", "first_order"),
    atol: float = 1e-7,
    step: float = 1e-5,
) -> None:
    """The gradient of a function of one tensor against differences, in float64."""
    expected = differences(lambda *xs: run(function, *xs, mod=mod), args, step)
    value = run(function, *args, mod=mod)
    for mode in modes:
        result, adjoints = run(gradient(function, mod, mode), *args, mod=mod)
        np.testing.assert_array_equal(result, value, err_msg=mode)
        assert len(adjoints) == len(args)
        for k, (adjoint, wanted) in enumerate(zip(adjoints, expected, strict=True)):
            assert (adjoint.shape, adjoint.dtype) == (wanted.shape, wanted.dtype), f"{mode}, argument {k}"
            np.testing.assert_allclose(adjoint, wanted, rtol=1e-6, atol=atol, err_msg=f"{mode}, argument {k}")
