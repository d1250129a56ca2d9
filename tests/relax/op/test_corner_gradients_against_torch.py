"""Derivatives at zeros of either sign, infinities, NaN and ties beside PyTorch's; where they differ, ours is stated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.transform.gradient import Gradient

F, INF, NAN = torch.nn.functional, math.inf, math.nan
NUMBERS = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, INF, -INF, NAN])
ROWS = np.array([[0.0, 0, 0], [1, 0, -1], [INF, 1, 2], [-INF, 1, 2], [NAN, 1, 2], [2, 2, 2], [3, -3, 3]])

BINARY: dict[str, Callable[..., Any]] = {
    "divide": torch.div, "power": torch.pow, "maximum": torch.maximum, "minimum": torch.minimum, "atan2": torch.atan2,
    "hypot": torch.hypot, "logaddexp": torch.logaddexp, "xlogy": torch.xlogy, "fmod": torch.fmod,
}  # fmt: skip
UNARY: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in (
        "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sinc", "asin", "acos",
        "atan", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "logit", "sigmoid")},
    "nan_to_num": torch.nan_to_num,
    "nn.silu": F.silu, "nn.softplus": F.softplus, "nn.logsigmoid": F.logsigmoid, "nn.mish": F.mish,
}  # fmt: skip
ROWWISE: dict[str, tuple[Callable[..., Expr], Callable[..., Any]]] = {
    "prod": (lambda x: ops.prod(x, 1), lambda x: x.prod(1)),
    "std": (lambda x: ops.std(x, 1), lambda x: x.std(1, correction=0)),
    "logsumexp": (lambda x: ops.logsumexp(x, 1), lambda x: x.logsumexp(1)),
    "norm 0.5": (lambda x: ops.norm(x, 0.5, 1), lambda x: torch.linalg.vector_norm(x, 0.5, dim=1)),
    "norm 2": (lambda x: ops.norm(x, 2.0, 1), lambda x: torch.linalg.vector_norm(x, 2, dim=1)),
    "norm 3": (lambda x: ops.norm(x, 3.0, 1), lambda x: torch.linalg.vector_norm(x, 3, dim=1)),
    "softmax": (lambda x: ops.square(ops.nn.softmax(x, 1)), lambda x: x.softmax(1) ** 2),
}
# What PyTorch has no number for, or another one: the arguments at which our adjoints are these.
OURS: dict[str, Callable[..., Any]] = {
    "hypot": lambda x, y: (x == 0) & (y == 0),  # 0, as of norm
    "xlogy": lambda x, y: (x == 0) & (y == 0),  # 0
    "logit": lambda x: (x == 0) & np.signbit(x),  # the sign of an infinity
}


def adjoints(f: Callable[..., Expr], *values: np.ndarray, native: bool = False) -> list[np.ndarray]:
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate(values)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(ops.sum(f(*params)))
    module = Gradient("main")(builder.get())
    with np.errstate(all="ignore"):
        if native:
            return [a.numpy() for a in pullback.compile(module).function("main_adjoint")(*values)[1]]
        return list(evaluate(module, "main_adjoint", list(values))[1])


def check(name: str, f: Callable[..., Expr], theirs: Callable[..., Any], *values: np.ndarray) -> None:
    tensors = [torch.tensor(v, requires_grad=True) for v in values]
    theirs(*tensors).sum().backward()
    own = OURS[name](*values) if name in OURS else np.zeros(values[0].shape, bool)
    for native in (False, True):
        for found, tensor in zip(adjoints(f, *values, native=native), tensors, strict=True):
            expected = np.where(own, found, tensor.grad.numpy())
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-300, err_msg=f"{name}, native={native}")


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    check(name, Op.get(name), UNARY[name], NUMBERS)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    check(name, Op.get(name), BINARY[name], *(m.ravel().copy() for m in np.meshgrid(NUMBERS, NUMBERS)))


@pytest.mark.parametrize("name", ROWWISE)
def test_rows(name: str) -> None:
    check(name, *ROWWISE[name], ROWS)


@pytest.mark.parametrize("native", [False, True])
def test_those_at_zero_are_numbers(native: bool) -> None:
    zeros = np.array([0.0, -0.0, 0.0, -0.0]), np.array([0.0, 0.0, -0.0, -0.0])
    for op in (ops.atan2, ops.hypot, ops.xlogy):
        for found in adjoints(op, *zeros, native=native):
            np.testing.assert_array_equal(found, 0.0)
    dx, dy = adjoints(ops.xlogy, np.zeros(2), np.array([0.5, 2.0]), native=native)
    np.testing.assert_allclose(dx, np.log([0.5, 2.0]))
    np.testing.assert_array_equal(dy, 0.0)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_angles_of_points_whose_squares_are_out_of_range(size: float, native: bool) -> None:
    x, y = np.array([3.0, 0.0]) * size, np.array([4.0, 1.0]) * size
    dx, dy = adjoints(ops.atan2, x, y, native=native)
    np.testing.assert_allclose(dx * size, [4 / 25, 1.0])
    np.testing.assert_allclose(dy * size, [-3 / 25, 0.0])


def test_nan_is_not_masked() -> None:
    """What is undefined has no derivative 0."""
    bad = np.array([NAN, 1.0])
    for op in (ops.atan2, ops.hypot):
        for found in adjoints(op, bad, bad[::-1].copy()):
            assert np.all(np.isnan(found))
    for f in (lambda x: ops.norm(x), lambda x: ops.norm(x, 3.0), lambda x: ops.std(x)):
        assert np.all(np.isnan(adjoints(f, bad)[0]))
    assert np.all(np.isnan(adjoints(ops.logit, np.array([2.0, -1.0]))[0]))
    assert adjoints(ops.power, bad, np.zeros(2))[0].tolist() == [0.0, 0.0]
