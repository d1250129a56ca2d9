"""Normalisation beside PyTorch in float64, native and interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Var
from pullback.relax.interpreter import value_info
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.tir import Var as SizeVar
from tests.relax.op.backends import to_numpy
from tests.relax.op.test_normalization import adjoint_module

functional = torch.nn.functional
rng = np.random.default_rng(0)


def compare(ours: Callable[..., Expr], theirs: Callable[..., Any], values: list[np.ndarray], outputs: int = 1) -> None:
    """Results and adjoints of Σ results · weights, on both backends."""
    tensors = [torch.tensor(v, requires_grad=True) for v in values]
    expected = theirs(*tensors)
    expected = expected if isinstance(expected, tuple) else (expected,)
    weights = [rng.standard_normal(tuple(e.shape)) for e in expected]
    sum((e * torch.tensor(w)).sum() for e, w in zip(expected, weights, strict=True)).backward()
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate(values)]
    module = adjoint_module(ours, params, outputs, [value_info(w) for w in weights])
    for target in ("debug", "llvm"):
        (_, *results), adjoints = to_numpy(pullback.compile(module, target).function("main_adjoint")(*values, *weights))
        for result, e in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, e.detach().numpy(), rtol=1e-9, atol=1e-11)
        for adjoint, t in zip(adjoints, tensors, strict=True):
            gradient = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
            np.testing.assert_allclose(adjoint, gradient, rtol=1e-9, atol=1e-11)


def channels(*sizes: int) -> list[np.ndarray]:
    return [rng.uniform(0.5, 2.0, sizes) for _ in range(4)]


@pytest.mark.parametrize("shape", [(7, 5), (4, 3, 9), (3, 17, 5, 6), (2, 3, 1, 1), (3, 4, 17, 16)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(shape: tuple[int, ...], training: bool) -> None:
    def theirs(x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        out = functional.batch_norm(x, mean.detach().clone(), var.detach().clone(), gamma, beta, training, 0.3, 1e-3)
        if not training:
            frozen = (x - spread(mean)) / torch.sqrt(spread(var) + 1e-3) * spread(gamma) + spread(beta)
            torch.testing.assert_close(out, frozen)
            return frozen, mean, var
        axes = [a for a in range(x.ndim) if a != 1]
        new_mean, new_var = 0.7 * mean + 0.3 * x.mean(axes), 0.7 * var + 0.3 * x.var(axes)
        moved = mean.detach().clone(), var.detach().clone()
        functional.batch_norm(x, *moved, training=True, momentum=0.3)
        torch.testing.assert_close((new_mean, new_var), moved)  # PyTorch's own has no gradient
        return out, new_mean, new_var

    def spread(value: Any) -> Any:
        return value.reshape(1, -1, *(1,) * (len(shape) - 2))

    def ours(*args: Expr) -> Expr:
        return ops.nn.batch_norm(*args, epsilon=1e-3, momentum=0.3, training=training)

    x = rng.standard_normal(shape) * 3 + 50  # a mean much larger than the deviation
    compare(ours, theirs, [x, *channels(shape[1])], 3)


def test_batch_norm_over_the_last_axis() -> None:
    def theirs(x: Any, gamma: Any, beta: Any) -> Any:
        return functional.batch_norm(x.movedim(-1, 1), None, None, gamma, beta, True).movedim(1, -1)

    def ours(x: Expr, gamma: Expr, beta: Expr) -> Expr:
        return ops.nn.batch_norm(x, gamma, beta, ops.zeros_like(beta), ops.ones_like(beta), axis=-1)[0]

    compare(ours, theirs, [rng.standard_normal((3, 4, 5, 17)), *channels(17)[:2]])


def test_group_and_instance_norm() -> None:
    x, gamma, beta = rng.standard_normal((3, 6, 4, 5)), *channels(6)[:2]
    compare(
        lambda x, g, b: ops.nn.group_norm(x, g, b, num_groups=3, channel_axis=1, axes=(2, 3)),
        lambda x, g, b: functional.group_norm(x, 3, g, b),
        [x, gamma, beta],
    )
    compare(
        lambda x, g, b: ops.nn.instance_norm(x, g, b, channel_axis=1, axes=(2, 3)),
        lambda x, g, b: functional.instance_norm(x, weight=g, bias=b),
        [x, gamma, beta],
    )


def test_layer_and_rms_norm() -> None:
    x, gamma, beta = rng.standard_normal((3, 4, 17)) + 20, *channels(17)[:2]
    compare(ops.nn.layer_norm, lambda x, g, b: functional.layer_norm(x, (17,), g, b), [x, gamma, beta])
    compare(ops.nn.rms_norm, lambda x, g: functional.rms_norm(x, (17,), g, 1e-5), [x, gamma])


@pytest.mark.parametrize("pixels", [3, 300])
def test_symbolic_batch(pixels: int) -> None:
    x = Var("x", TensorStructInfo((SizeVar("n"), 4, pixels), "float64"))
    gamma = Var("gamma", TensorStructInfo((4,), "float64"))
    value, scale = rng.standard_normal((5, 4, pixels)), np.ones(4)
    for f, expected in (
        (
            lambda x, g: ops.nn.group_norm(x, g, g, num_groups=2, channel_axis=1, axes=2),
            functional.group_norm(torch.tensor(value), 2) + 1,
        ),
        (
            lambda x, g: ops.nn.batch_norm(x, g, g, g, g)[0],
            functional.batch_norm(torch.tensor(value), None, None, training=True) + 1,
        ),
    ):
        builder = BlockBuilder()
        with builder.function("main", [x, gamma]):
            builder.emit_func_output(builder.emit(f(x, gamma)))
        for target in ("debug", "llvm"):
            got = pullback.compile(builder.get(), target).function("main")(value, scale)
            np.testing.assert_allclose(to_numpy(got), expected.numpy(), rtol=1e-9, atol=1e-12)
