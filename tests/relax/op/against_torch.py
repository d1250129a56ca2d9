"""An op beside its counterpart in PyTorch, in float64: the value, and the adjoints of Σ value · weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.transform.gradient import Gradient

Sides = tuple[Callable[..., Expr], Callable[..., Any], tuple[np.ndarray, ...]]  # ours, theirs, the arguments of both


def ours(f: Callable[..., Expr], values: tuple[np.ndarray, ...], weight: np.ndarray) -> tuple[Any, list[np.ndarray]]:
    """The result, and the adjoints of Σ result · weight."""
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate(values)]
    builder = BlockBuilder()
    with builder.function("main", params):
        result = builder.emit(f(*params))
        builder.emit_func_output((ops.sum(result * weight), result))
    floats = [p for p in params if p.dtype == "float64"]
    (_, result), adjoints = evaluate(Gradient("main", floats)(builder.get()), "main_adjoint", values)
    return result, list(adjoints)


def compare(sides: Sides, rtol: float = 1e-9) -> None:
    """Adjoints are PyTorch's to ``rtol``, values to a tenth of that."""
    f, theirs, values = sides
    tensors = [torch.tensor(v, requires_grad=v.dtype == np.float64) for v in values]
    expected = theirs(*tensors)
    weight = np.asarray(np.random.default_rng(0).uniform(0.5, 2.0, tuple(expected.shape)))
    (expected * torch.tensor(weight)).sum().backward()
    got, adjoints = ours(f, values, weight)
    np.testing.assert_allclose(got, expected.detach().numpy(), rtol=rtol / 10, atol=1e-12)
    for adjoint, tensor in zip(adjoints, (t for t in tensors if t.requires_grad), strict=True):
        gradient = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
        np.testing.assert_allclose(adjoint, gradient, rtol=rtol, atol=1e-11)
