"""Values of relay expressions over NumPy, for tests of passes, and what a pass makes of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir import IRModule, assert_structural_equal
from pullback.ir.transform import PassContext
from pullback.relay.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from pullback.relay.op import Op
from pullback.relay.op.meaning import type_of_value, value
from pullback.relay.transform import InferType
from pullback.relay.visitor import post_order


def ran(step: Callable[[IRModule], IRModule], function: Any, **options: Any) -> Function:
    """What the pass makes of a function, or of an expression of its free variables, at level 3 unless said."""
    with PassContext(**({"opt_level": 3} | options)):
        return step(InferType()(IRModule.from_expr(function)))["main"]


def typed(function: Any) -> Function:
    return InferType()(IRModule.from_expr(function))["main"]


def becomes(step: Callable[[IRModule], IRModule], before: Any, expected: Any, **options: Any) -> Function:
    """Check that the pass makes ``expected`` of ``before``, and that both give the same values."""
    after = ran(step, before, **options)
    assert_structural_equal(after, typed(expected))
    return after


def stays(step: Callable[[IRModule], IRModule], before: Any, **options: Any) -> None:
    assert_structural_equal(ran(step, before, **options), typed(before))


def inputs(function: Any, seed: int = 0, positive: bool = False) -> list[np.ndarray]:
    """Arrays for the parameters."""
    draw = np.random.default_rng(seed)
    found = []
    for param in typed(function).params:
        drawn = draw.normal(size=param.checked_type.concrete_shape)
        dtype = param.checked_type.dtype
        drawn = np.abs(drawn) + 0.5 if positive else drawn
        found.append((drawn * 10 if "int" in dtype else drawn).astype(dtype))
    return found


def same_values(before: Any, after: Any, rtol: float = 1e-4, positive: bool = False) -> None:
    """Check that two functions of the same parameters give the same values."""
    arrays = inputs(before, positive=positive)
    a, b = flat(evaluated(typed(before), arrays)), flat(evaluated(after, arrays))
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(np.asarray(x, "float64"), np.asarray(y, "float64"), rtol=rtol, atol=rtol)


def flat(found: Any) -> list[Any]:
    return [x for f in found for x in flat(f)] if isinstance(found, tuple) else [found]


def evaluated(function: Function, arrays: list[Any]) -> Any:
    """The result of a function without recursion, references and matches."""
    return _value(function.body, dict(zip(function.params, arrays, strict=True)))


def _value(expr: Expr, known: dict[Any, Any]) -> Any:
    if expr in known:
        return known[expr]
    if isinstance(expr, Constant):
        return expr.data.numpy()
    if isinstance(expr, Tuple):
        found = tuple(_value(f, known) for f in expr.fields)
    elif isinstance(expr, TupleGetItem):
        found = _value(expr.tuple_value, known)[expr.index]
    elif isinstance(expr, Let):
        known[expr.variable] = _value(expr.value, known)
        found = _value(expr.body, known)
    elif isinstance(expr, If):
        found = _value(expr.true_branch if _value(expr.cond, known) else expr.false_branch, known)
    elif isinstance(expr, Function):
        return lambda *args: _value(expr.body, {**known, **dict(zip(expr.params, args, strict=True))})
    else:
        assert isinstance(expr, Call)
        args = [_value(arg, known) for arg in expr.args]
        if isinstance(expr.op, Op):
            found = value(expr.op, args, [type_of_value(a) for a in args], expr.attrs)
        else:
            found = _value(expr.op, known)(*args)
    known[expr] = found
    return found


def ops_in(expr: Any) -> list[str]:
    """The names of the operators called, in post-order."""
    return [n.op.name for n in post_order(expr) if isinstance(n, Call) and isinstance(n.op, Op)]


def free(name: str, *shape: int, dtype: str = "float32") -> Var:
    from pullback.relay.expr import var

    return var(name, shape=shape, dtype=dtype)
