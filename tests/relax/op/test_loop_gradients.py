"""The derivatives of plain loops, taken without any rule, are those of the ops' gradient rules."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import pullback
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Constant, Expr, Tuple
from pullback.relax.interpreter import evaluate
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.relax.transform.gradient import Gradient
from pullback.relax.transform.kernel_gradients import KernelGradients
from tests.relax.op.backends import call_of, to_numpy
from tests.relax.op.test_gradients import float_cases, floats, outputs, weighted_sum
from tests.samples import Case, all_ops

ZERO_WHERE_THERE_IS_NONE = ("std",)  # rules that give 0 where no derivative exists; loops give NaN


def has_both(op: Op) -> bool:
    return bool(op.gradient and (op.te or op.kernel)) and bool(float_cases(op))


def seeds(call: Expr, rng: np.random.Generator) -> list[np.ndarray | None]:
    """An adjoint for each result of float type."""
    info = call.struct_info
    infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
    assert all(isinstance(i, TensorStructInfo) for i in infos)
    return [rng.standard_normal(i.shape) if i.dtype == "float64" else None for i in infos]


def by_rules(case: Case, weights: list[np.ndarray | None]) -> list[np.ndarray]:
    params, call = call_of(case)
    builder = BlockBuilder()
    with builder.function("main", params):
        results = outputs(builder.emit(call))
        builder.emit_func_output(weighted_sum(results, [Constant(w) for w in weights if w is not None]))
    module = Gradient("main", floats(params))(builder.get())
    return list(evaluate(module, "main_adjoint", case.args)[1])


@pytest.mark.parametrize("op", [o for o in all_ops() if has_both(o)], ids=lambda op: op.short)
def test_loops_have_the_gradient_of_the_rule(op: Op) -> None:
    """All samples at once, so that it is one compilation."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    samples = [c for c in float_cases(op) if outputs(call_of(c)[1])]
    calls = [call_of(c, f"_{k}") for k, c in enumerate(samples)]
    builder = BlockBuilder()
    kernels = KernelGradients(builder.get())
    expected: list[np.ndarray] = []
    with builder.function("main", [p for params, _ in calls for p in params]):
        found: list[Expr] = []
        for case, (params, call) in zip(samples, calls, strict=True):
            weights = seeds(call, rng)
            expected += by_rules(case, weights)
            dys = [None if w is None else Constant(w) for w in weights]
            dy = dys if isinstance(call.struct_info, TupleStructInfo) else dys[0]
            adjoints = kernels.adjoints(builder, call, dy, [True] * len(params))
            found += [a for a in adjoints if a is not None]
        builder.emit_func_output(Tuple(tuple(found)))
    module = builder.get()
    for name, kernel in kernels.module.items():
        module[name] = kernel
    got = to_numpy(pullback.compile(module).function("main")(*(a for c in samples for a in c.args)))
    for a, b in zip(got, expected, strict=True):
        a = np.where(np.isnan(a), 0, a) if op.short in ZERO_WHERE_THERE_IS_NONE else a
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
