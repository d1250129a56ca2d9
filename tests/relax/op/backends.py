"""The ways to run calls of an op. A backend is a function from cases to their results, each an array or a tuple."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pullback
from pullback import te
from pullback.ir.module import IRModule
from pullback.ir.node import assert_structural_equal
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Tuple, Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.transform.legalize_ops import LegalizeOps
from pullback.relax.transform.raise_ops import RaiseOps
from pullback.te.interpreter import evaluate as evaluate_te
from tests.samples import Case

Backend = Callable[[Sequence[Case]], list[Any]]


def call_of(case: Case, suffix: str = "") -> tuple[list[Var], Call]:
    """The call on variables, with its struct info deduced."""
    names = case.op.signature.tensors * max(1, len(case.args))
    pairs = enumerate(zip(names, case.args, strict=False))
    params = [Var(f"{n}{k}{suffix}", value_info(a)) for k, (n, a) in pairs]
    return params, Call(case.op, tuple(params), case.attrs)


def module_of(cases: Sequence[Case]) -> IRModule:
    """A module whose ``main`` makes all the calls: one compilation for many samples."""
    calls = [call_of(case, f"_{k}") for k, case in enumerate(cases)]
    builder = BlockBuilder()
    with builder.function("main", [p for params, _ in calls for p in params]):
        builder.emit_func_output(Tuple(tuple(builder.emit(call) for _, call in calls)))
    return builder.get()


def arguments(cases: Sequence[Case]) -> list[np.ndarray]:
    return [a for case in cases for a in case.args]


def interpreter(cases: Sequence[Case]) -> list[Any]:
    """The graph IR's interpreter: the NumPy meaning."""
    return list(evaluate(module_of(cases), "main", arguments(cases)))


def legalized(cases: Sequence[Case]) -> list[Any]:
    """The plain loops of the tensor expressions, by the loop IR's interpreter."""
    return list(evaluate(LegalizeOps()(module_of(cases)), "main", arguments(cases)))


def native(cases: Sequence[Case]) -> list[Any]:
    """Machine code."""
    return list(map(to_numpy, pullback.compile(module_of(cases)).function("main")(*arguments(cases))))


def raised(cases: Sequence[Case]) -> list[Any]:
    """Machine code of the legalised module, which the compiler raises to ops again: nothing is lost on the way."""
    module = module_of(cases)
    legal = LegalizeOps()(module)
    assert_structural_equal(RaiseOps()(legal), module)
    return list(map(to_numpy, pullback.compile(legal).function("main")(*arguments(cases))))


def to_numpy(value: Any) -> Any:
    return tuple(map(to_numpy, value)) if isinstance(value, tuple) else value.numpy()


def tensor_expressions(cases: Sequence[Case]) -> list[Any]:
    """The tensor expressions, by their own interpreter; of ops without one, what else there is."""
    return [_tensor_expression(case) if case.op.te else legalized([case])[0] for case in cases]


def _tensor_expression(case: Case) -> Any:
    inputs = [te.placeholder(a.shape, a.dtype.name, f"p{k}") for k, a in enumerate(case.args)]
    result = case.op.te(*inputs, **case.attrs)  # type: ignore[misc]
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    values = evaluate_te(outputs, dict(zip(inputs, case.args, strict=True)))
    return tuple(values) if isinstance(result, (tuple, list)) else values[0]


BACKENDS: dict[str, Backend] = {
    "te": tensor_expressions,
    "interpreter": interpreter,
    "legalized": legalized,
    "native": native,
    "raised": raised,
}


def as_list(value: Any) -> list[np.ndarray]:
    return list(value) if isinstance(value, tuple) else [value]
