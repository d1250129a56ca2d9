"""A call of ours beside one of PyTorch's, in float64: values and adjoints, interpreted and native."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import pullback
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.transform.gradient import Gradient


def run(module: IRModule, values: list[np.ndarray]) -> Iterator[tuple[Any, list[np.ndarray]]]:
    """The results of ``main_adjoint``, interpreted and native."""
    value, adjoints = evaluate(module, "main_adjoint", values)
    yield value, list(adjoints)
    value, adjoints = pullback.compile(module).function("main_adjoint")(*values)
    yield [v.numpy() for v in value], [a.numpy() for a in adjoints]


def compare(ours: Callable[..., Any], theirs: Callable[..., torch.Tensor], values: list[np.ndarray]) -> None:
    """The results, and the adjoints of Σ result · weight, of both sides. Integers have no adjoint."""
    tensors = [torch.tensor(v, requires_grad=v.dtype.kind == "f") for v in values]
    expected = theirs(*tensors)
    weight = np.random.default_rng(1).standard_normal(tuple(expected.shape))
    expected.backward(torch.tensor(weight))
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate(values)]
    builder = BlockBuilder()
    with builder.function("main", params):
        result = builder.emit(ours(*params))
        builder.emit_func_output((ops.sum(result * weight), result))
    floats = [k for k, v in enumerate(values) if v.dtype.kind == "f"]
    module = Gradient("main", [params[k] for k in floats])(builder.get())
    for (_, got), adjoints in run(module, values):
        np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-9, atol=1e-9)
        for adjoint, k in zip(adjoints, floats, strict=True):
            np.testing.assert_allclose(adjoint, tensors[k].grad.numpy(), rtol=1e-9, atol=1e-9)
