"""Mean and variance in one pass: sums beside the first element (`relax/op/nn/moments.py`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Var
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo


def batch_norm(x: Expr, gamma: Expr, beta: Expr) -> Expr:
    return ops.nn.batch_norm(x, gamma, beta, ops.zeros_like(beta), ops.ones_like(beta))[0]


NORMS: dict[str, tuple[Callable[..., Expr], tuple[int, ...], int]] = {
    "layer": (ops.nn.layer_norm, (5, 300), 1),
    "layer of few": (ops.nn.layer_norm, (40, 4), 1),
    "group": (lambda *args: ops.nn.group_norm(*args, num_groups=2, channel_axis=1, axes=2), (2, 4, 80), 1),
    "group of large channels": (
        lambda *args: ops.nn.group_norm(*args, num_groups=2, channel_axis=1, axes=2),
        (2, 4, 400),
        1,
    ),
    "instance": (lambda *args: ops.nn.instance_norm(*args, channel_axis=1, axes=2), (3, 4, 100), 1),
    "batch": (batch_norm, (6, 3, 50), 1),
    "batch of large images": (batch_norm, (6, 3, 20, 20), 1),
}


def normalized(name: str, x: np.ndarray, mode: str) -> np.ndarray:
    norm, shape, axis = NORMS[name]
    size, dtype = shape[axis], str(x.dtype)
    params = [Var(n, TensorStructInfo(s, dtype)) for n, s in (("x", shape), ("gamma", (size,)), ("beta", (size,)))]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(norm(*params)))
    vm = relax.VirtualMachine(pullback.compile(builder.get(), mode), pullback.cpu())
    arguments = (x, np.ones(size, dtype), np.zeros(size, dtype))
    return vm["main"](*map(pullback.nd.array, arguments)).numpy()


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize(
    ("kind", "relative", "absolute"), [("far from zero", 0, 2e-2), ("far from the first", 5e-5, 5e-5)]
)
def test_statistics_of_what_is_far(name: str, kind: str, relative: float, absolute: float) -> None:
    """Of 1e4 a float32 knows 5e-4; E x² - (E x)² of such numbers would know nothing of their deviations. The one that
    the others are summed beside is 20 deviations away: of the sums, 400 times the variance, two digits go."""
    x = np.random.default_rng(0).standard_normal(NORMS[name][1])
    if kind == "far from zero":
        x += 1e4
    else:
        x.reshape(x.shape[0], x.shape[1], -1)[..., 0] = 1e3
    x = x.astype(np.float32)
    expected = normalized(name, x.astype(np.float64), "debug")
    np.testing.assert_allclose(normalized(name, x, "llvm"), expected, relative, absolute)


@pytest.mark.parametrize("name", NORMS)
def test_equal_elements_have_no_variance(name: str) -> None:
    """Nor a negative one, of which there is no root."""
    x = np.full(NORMS[name][1], 0.1, np.float32)
    np.testing.assert_allclose(normalized(name, x, "llvm"), 0, atol=1e-4)


@pytest.mark.parametrize("name", NORMS)
def test_an_infinite_first_element_is_not_hidden(name: str) -> None:
    x = np.ones(NORMS[name][1], np.float32)
    x.reshape(-1)[0] = np.inf
    expected = normalized(name, x.astype(np.float64), "debug")
    np.testing.assert_array_equal(np.isnan(normalized(name, x, "llvm")), np.isnan(expected))
