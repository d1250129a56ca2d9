"""Samples of relay's operators: calls on arrays with what an independent program gives for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.relay.expr import Call, Expr, Function, TupleGetItem, TupleWrapper, as_expr, call_op, var
from pullback.relay.op import get
from pullback.relay.testing import run_infer_type
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, TupleType
from tests.relay.differences import run

RNG = np.random.default_rng(11)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def uniform(low: float, high: float, *shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.uniform(low, high, size=shape).astype(dtype)


def integers(low: int, high: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    return RNG.integers(low, high, size=shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """A call of the operator ``op`` on the arrays: ``call`` builds it from expressions (by default the operator itself
    on them), ``expect`` gives the values, of the dtypes that the result has. ``dynamic``: whether the type is known of
    arguments whose sizes are not; ``tolerance``: that of comparisons."""

    op: str
    arrays: Sequence[Any]
    expect: Callable[..., Any]
    call: Callable[..., Any] | None = None
    dynamic: bool = True
    tolerance: float = 1e-5
    attrs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ",".join("x".join(map(str, np.shape(a))) or "scalar" for a in self.arrays)
        attrs = ",".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"{self.op}-{shapes}-{attrs}"[:80]

    def build(self, *args: Expr) -> Any:
        face = self.call or get(self.op)
        return face(*args, **self.attrs)

    def function(self, loose: Callable[[int, int], bool] = lambda i, axis: False) -> Function:
        """The call as a function; ``loose(argument, axis)`` says which sizes are not known."""
        params = []
        for i, array in enumerate(self.arrays):
            shape = [AnySize() if loose(i, axis) else size for axis, size in enumerate(np.shape(array))]
            params.append(var(f"x{i}", TensorType(tuple(shape), np.asarray(array).dtype.name)))
        return Function(params, as_expr(self.build(*params)))

    def expected(self) -> Any:
        found = self.expect(*self.arrays)
        return tuple(map(np.asarray, found)) if isinstance(found, (tuple, list)) else np.asarray(found)


def operators(expr: Any) -> set[str]:
    """The names of the operators that are called."""
    if isinstance(expr, TupleWrapper):
        expr = expr.tuple_value
    if isinstance(expr, TupleGetItem):
        return operators(expr.tuple_value)
    if isinstance(expr, Call):
        return {expr.op.name}.union(*map(operators, expr.args))
    return set()


def type_of(value: Any) -> Any:
    if isinstance(value, tuple):
        return TupleType(tuple(map(type_of, value)))
    return TensorType(value.shape, value.dtype.name)


def admits(type_: Any, exact: Any) -> bool:
    """Whether a value of the type ``exact`` is one of ``type_``, whose sizes need not all be known."""
    if isinstance(type_, TupleType):
        same = isinstance(exact, TupleType) and len(type_.fields) == len(exact.fields)
        return same and all(map(admits, type_.fields, exact.fields))
    if type_.dtype != exact.dtype or type_.ndim != exact.ndim:
        return False
    return all(isinstance(a, AnySize) or a == b for a, b in zip(type_.shape, exact.shape, strict=True))


def close(found: Any, expected: Any, tolerance: float) -> None:
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            close(a, b, tolerance)
        return
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def check_value(case: Case) -> None:
    """The call calls the operator; its type is that of the expected values, its value is close to them."""
    function = case.function()
    assert case.op in operators(function.body)
    expected = case.expected()
    typed = run_infer_type(function)
    exact = type_of(expected)
    assert admits(typed.body.checked_type, exact), f"{typed.body.checked_type} against {exact}"
    close(run(typed, *case.arrays), expected, case.tolerance)


def check_unknown_sizes(case: Case, loose: Callable[[int, int], bool]) -> None:
    """With sizes that are not known the type has the rank and dtype of the values; run, the values are the same."""
    expected = case.expected()
    typed = run_infer_type(case.function(loose))
    exact = type_of(expected)
    assert admits(typed.body.checked_type, exact), f"{typed.body.checked_type} against {exact}"
    close(run(typed, *case.arrays), expected, case.tolerance)


def every(i: int, axis: int) -> bool:
    return True


def first(i: int, axis: int) -> bool:
    return axis == 0


def torch_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays from one of PyTorch's tensors."""
    import torch

    def call(*arrays: np.ndarray) -> Any:
        found = function(*(torch.from_numpy(np.ascontiguousarray(a)) for a in arrays))
        return tuple(f.numpy() for f in found) if isinstance(found, (tuple, list)) else found.numpy()

    return call


def named(name: str) -> Callable[..., Any]:
    """The operator of that name, as Python calls it."""
    return lambda *args, **attrs: call_op(name, *args, **attrs)
