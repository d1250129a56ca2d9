"""First and second derivatives in float64 against numeric differences, along random directions."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import pullback
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Constant, Expr, Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.catalogue import gradient_kind
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Domain
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.relax.transform.gradient import Gradient
from tests.relax.op.backends import call_of, to_numpy
from tests.samples import Case, all_ops, cases, dtypes_of

STEP = 1e-5
FEW_ADJOINTS = (
    "grad.no_grad",  # that is what it is for
    "nn.hinge_embedding_loss",  # its targets are 1 or -1, and floats: between, it is no function of them
)
Arrays = Sequence[np.ndarray]


def float_cases(op: Op) -> list[Case]:
    """The samples in float64 around which the op is differentiable, with something to differentiate."""
    if isinstance(op.samples, Domain) and "float64" not in dtypes_of(op):
        return []
    return [c for c in cases(op, "float64") if c.smooth and any(a.dtype.kind == "f" and a.size for a in c.args)]


def outputs(call: Expr) -> list[Expr]:
    """The floating-point results of a call."""
    fields = list(call) if isinstance(call.struct_info, TupleStructInfo) else [call]
    return [f for f in fields if f.dtype == "float64"]


def weighted_sum(terms: Sequence[Expr], weights: Sequence[Expr]) -> Expr:
    """Σ terms · weights."""
    total = None
    for term, weight in zip(terms, weights, strict=True):
        product = ops.sum(term * weight)
        total = product if total is None else total + product
    assert total is not None
    return total


def floats(params: Sequence[Var]) -> list[Var]:
    return [p for p in params if isinstance(p.struct_info, TensorStructInfo) and p.dtype == "float64"]


def first_module(case: Case, rng: np.random.Generator) -> tuple[IRModule, list[np.ndarray]]:
    """``main(arguments…, weights…)`` = Σ op(arguments…) · weights, with its adjoint; and the weights."""
    params, call = call_of(case)
    weights = [rng.standard_normal(o.shape) for o in outputs(call)]
    weight_vars = [Var(f"weight{k}", value_info(w)) for k, w in enumerate(weights)]
    builder = BlockBuilder()
    with builder.function("main", [*params, *weight_vars]):
        result = builder.emit(call)
        builder.emit_func_output(weighted_sum(outputs(result), weight_vars))
    return Gradient("main", floats([*params, *weight_vars]))(builder.get()), weights


def second_module(module: IRModule, directions: Arrays) -> IRModule:
    """``second`` = Σ adjoints of ``main`` · directions, with its adjoint."""
    builder = BlockBuilder(module)
    params = [Var(p.name, p.struct_info) for p in module["main"].params]
    with builder.function("second", params):
        adjoints = builder.emit(module.get_global_var("main_adjoint")(*params))[1]
        terms = [adjoints[k] for k in range(len(directions))]
        builder.emit_func_output(weighted_sum(terms, [Constant(d) for d in directions]))
    return Gradient("second", floats(params))(builder.get())


def along(values: Arrays, directions: Arrays, step: float) -> list[np.ndarray]:
    """The floats among the values moved by ``step`` times the directions."""
    moves = iter(directions)
    return [v + step * next(moves) if v.dtype == np.float64 else v for v in values]


def numeric(f: Callable[[Arrays], float], values: Arrays, directions: Arrays) -> float:
    """The derivative of f along the directions: central differences of fourth order."""
    at = {k: f(along(values, directions, k * STEP)) for k in (-2, -1, 1, 2)}
    return float((at[-2] - 8 * at[-1] + 8 * at[1] - at[2]) / (12 * STEP))


def check(module: IRModule, name: str, values: Arrays, directions: Arrays) -> list[np.ndarray]:
    """The adjoints of ``name`` at the values, once they agree with the numeric derivative."""
    value, adjoints = evaluate(module, f"{name}_adjoint", values)
    expected = numeric(lambda v: float(evaluate(module, name, v)), values, directions)
    terms = [np.sum(a * d) for a, d in zip(adjoints, directions, strict=True)]
    scale = 1 + abs(float(value)) + sum(map(abs, terms))
    assert abs(sum(terms) - expected) <= 1e-8 * scale, f"{name}: {sum(terms)} but numerically {expected}"
    return list(adjoints)


@pytest.mark.allowance(25)  # nearly every op
@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_first_and_second_derivatives(op: Op) -> None:
    moving = 0  # samples of which some adjoint is not zero
    for case in float_cases(op):
        rng = np.random.default_rng(zlib.crc32(case.id.encode()))
        if not outputs(call_of(case)[1]):
            continue
        module, weights = first_module(case, rng)
        values = [*case.args, *weights]
        directions = [rng.standard_normal(v.shape) for v in values if v.dtype == np.float64]
        try:
            adjoints = check(module, "main", values, directions)
            moving += any(np.any(a) for a in adjoints[: len(directions) - len(weights)])
            twice = second_module(module, directions)
            check(twice, "second", values, [rng.standard_normal(d.shape) for d in directions])
        except AssertionError as error:
            raise AssertionError(f"{case.id}: {error}") from None
    is_exempt = gradient_kind(op) == "zero" or op.short in FEW_ADJOINTS or op.family == "own"
    assert is_exempt or moving >= 3, f"{op.short}: {moving} samples with a gradient that is not zero"


@pytest.mark.allowance(15)
@pytest.mark.parametrize("op", [o for o in all_ops() if float_cases(o)], ids=lambda op: op.short)
def test_native_adjoints_are_the_interpreters(op: Op) -> None:
    """All samples at once, so that it is one compilation."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    samples = [c for c in float_cases(op) if outputs(call_of(c)[1])]
    if not samples:
        return
    calls = [call_of(c, f"_{k}") for k, c in enumerate(samples)]
    params = [p for ps, _ in calls for p in ps]
    builder = BlockBuilder()
    with builder.function("main", params):
        results = [o for _, call in calls for o in outputs(builder.emit(call))]
        weights = [Constant(rng.standard_normal(o.shape)) for o in results]
        builder.emit_func_output(weighted_sum(results, weights))
    module = Gradient("main", floats(params))(builder.get())
    values = [a for c in samples for a in c.args]
    expected, adjoints = evaluate(module, "main_adjoint", values)
    got, native = to_numpy(pullback.compile(module).function("main_adjoint")(*values))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    for a, b, p in zip(native, adjoints, floats(params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=p.name)
