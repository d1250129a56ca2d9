"""The kernels that the decomposition of normalisation gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.driver.pipeline import plan_function, prepare
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Tuple, Var
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform import Gradient
from pullback.target import Target


def adjoint_module(f: Callable[..., Expr], params: list[Var], outputs: int, weights: list[Any]) -> IRModule:
    """``main(params…, weights…)`` = (Σ result · weight, results…), with its adjoint for the params."""
    weight_vars = [Var(f"weight{k}", w) for k, w in enumerate(weights)]
    builder = BlockBuilder()
    with builder.function("main", [*params, *weight_vars]):
        call = builder.emit(f(*params))
        results = [call[k] for k in range(outputs)] if outputs > 1 else [call]
        total = sum((ops.sum(r * w) for r, w in zip(results[1:], weight_vars[1:], strict=True)), ops.sum(
            results[0] * weight_vars[0]))  # fmt: skip
        builder.emit_func_output(Tuple((builder.emit(total), *(builder.emit(r) for r in results))))
    return Gradient("main", params)(builder.get())


def kernels(f: Callable[..., Expr], *shapes: tuple[int, ...]) -> list[Any]:
    """The kernels of the adjoint of Σ f · weight."""
    params = [Var(f"x{k}", TensorStructInfo(s, "float32")) for k, s in enumerate(shapes)]
    module = adjoint_module(f, params, 1, [TensorStructInfo(shapes[0], "float32")])
    return plan_function(prepare(module), "main_adjoint", {}, Target("llvm -mtriple=x86_64-linux-gnu")).steps


def test_few_passes_over_memory() -> None:
    """Batch norm: statistics, output with what follows it, sums of the adjoint, dx. Layer norm: all of a row at once,
    then the sums over rows for both parameters. Mean and 1/√variance are computed once."""

    def batch(x: Expr, gamma: Expr, beta: Expr) -> Expr:
        return ops.nn.batch_norm(x, gamma, beta, ops.zeros_like(beta), ops.ones_like(beta))[0]

    names = kernels(batch, (16, 8, 12, 12), (8,), (8,))
    assert len([n for n in names if "mean" in n]) == 1 and len(names) <= 6, names
    names = kernels(ops.nn.layer_norm, (64, 96), (96,), (96,))
    assert len([n for n in names if "mean" in n]) == 1 and len(names) <= 6, names


def test_large_images_are_read_once_for_their_statistics() -> None:
    """The mean and the variance of each image are one kernel, and what follows from them for the batch is small."""

    def batch(x: Expr, gamma: Expr, beta: Expr) -> Expr:
        return ops.nn.batch_norm(x, gamma, beta, ops.zeros_like(beta), ops.ones_like(beta))[0]

    names = kernels(batch, (16, 8, 20, 20), (8,), (8,))
    first, *others = (n for n in names if "mean" in n)
    assert first.startswith("fused_subtract_vecdot_subtract_mean") and len(others) == 1 and len(names) <= 7, names
