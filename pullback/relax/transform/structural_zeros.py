"""Zeros of adjoints that stand for values that were not taken: they do not meet an infinite derivative.

    y = where(x > 0, log(x), x)          log_adjoint = where(x > 0, y_adjoint, 0)
                                 →       x_adjoint = xdivy(log_adjoint, x)            # not 0 / 0

An adjoint may hold such zeros to one of three degrees. It is ``MASKED`` when its elements are those of others or zeros:
it comes from a where, a slice, a gather, an extremum. Through what adds up products it becomes ``THINNED``: it is zero
where all that it adds up is, or where the other factor is. Else it is ``DENSE``. A product with a factor that depends
on no parameter that the other one depends on, such as a mask, thins too: where the factor is 0 the function does not
move with the other one at all. But ``exp(log(x))`` thins nothing: its derivative at 0 is no structural zero.

Products and quotients of a masked adjoint with anything else are ``multiply_no_nan`` and ``xdivy``; those of a thinned
one where the op's derivative has poles (``Op.singular``). All others are the textbook's. In a sum of products there is
no choice between elements: it stays a contraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.op import Op
from pullback.relax.expr import Call, Constant, Expr, Tuple, TupleGetItem
from pullback.relax.op_calls import is_op_call, op_of
from pullback.relax.transform.roots import Roots
from pullback.tir.derivative import DENSE, MASKED, THINNED
from pullback.tir.expr import FLOATS

_PRODUCTS = ("multiply", "multiply_no_nan")
_SUMS = ("add", "subtract")


class StructuralZeros:
    """What is known of the adjoints of one function."""

    def __init__(self, roots: Roots) -> None:
        self.degrees: dict[Expr, int] = {}  # of adjoints
        self.roots = roots  # with which parameters the values move

    # -- degrees

    def degree(self, expr: Any, roots: int, known: dict[Expr, int | None] | None = None) -> int | None:
        """The degree of an expression that is linear in adjoints, and the adjoint of what moves with ``roots``; None of
        one that holds no adjoint."""
        known = {} if known is None else known
        if expr in self.degrees:
            return self.degrees[expr]
        if isinstance(expr, TupleGetItem):
            return self.degree(expr.tuple_value, roots, known)
        if not isinstance(expr, (Call, Tuple)):
            return None
        if expr not in known:
            known[expr] = self._degree(expr, roots, known)
        return known[expr]

    def degree_of_any(self, dy: Any) -> int:
        """The degree of the adjoint of a tensor, or the highest of those of a tuple's fields."""
        return max((self.degrees.get(d, DENSE) for d in (dy if isinstance(dy, list) else [dy])), default=DENSE)

    def _degree(self, expr: Call | Tuple, roots: int, known: dict[Expr, int | None]) -> int | None:
        parts = expr.fields if isinstance(expr, Tuple) else expr.args
        found = [self.degree(part, roots, known) for part in parts]
        degrees = [d for d in found if d is not None]
        if not degrees:
            return None
        if isinstance(expr, Tuple):
            return max(degrees)
        op = op_of(expr)
        if op.zeros == "makes" or any(_is_zero(part) for part in parts):
            return MASKED
        result = min(degrees) if op.short in _SUMS else max(degrees)
        if op.zeros == "mixes":
            result = min(result, THINNED)
        if op.zeros == "mixes" or op.short in _PRODUCTS:
            factors = [part for part, d in zip(parts, found, strict=True) if d is None and not _is_nonzero(part)]
            if factors and not self.roots.of_all(factors) & roots:
                result = max(result, THINNED)
        return result

    # -- products

    def guarded(self, op: Op, contributions: Sequence[Any], roots: int) -> list[Any]:
        """What the gradient rule of ``op`` gave, with products in which structural zeros stay zeros."""
        if op.zeros == "mixes":
            return list(contributions)
        least = THINNED if op.singular else MASKED
        degrees: dict[Expr, int | None] = {}
        done: dict[Expr, Any] = {}

        def guard(expr: Any) -> Any:
            if not isinstance(expr, (Call, Tuple, TupleGetItem)) or self.degree(expr, roots, degrees) is None:
                return expr
            if expr not in done:
                done[expr] = rebuilt(expr)
            return done[expr]

        def rebuilt(expr: Any) -> Any:
            if isinstance(expr, TupleGetItem):
                return TupleGetItem(guard(expr.tuple_value), expr.index)
            if isinstance(expr, Tuple):
                return Tuple(tuple(guard(f) for f in expr.fields))
            args = [guard(a) for a in expr.args]
            found = [self.degree(a, roots, degrees) for a in args]
            if sum(d is not None for d in found) == 1 and max(d for d in found if d is not None) >= least:
                product = _guarded_product(expr, args, found[0] is not None)
                if product is not None:
                    return product
            same = all(a is b for a, b in zip(args, expr.args, strict=True))
            return expr if same else Call(expr.op, tuple(args), expr.attrs, expr.sinfo_args, expr.info, span=expr.span)

        return [guard(c) for c in contributions]


def _guarded_product(call: Call, args: Sequence[Any], is_first: bool) -> Expr | None:
    """The product or quotient of an adjoint, the first argument or the second, that is 0 where the adjoint is; None
    of what is neither, or where nothing can go wrong."""
    name = op_of(call).short
    if name not in ("multiply", "divide", "vecdot"):
        return None
    adjoint, factor = args if is_first else reversed(args)
    if _is_nonzero(factor) and np.isfinite(factor.data.astype(np.float64)).all():
        return None
    if name == "divide":
        return Op.get("xdivy")(adjoint, factor) if is_first else None
    product = Op.get("multiply_no_nan")(factor, adjoint)
    return product if name == "multiply" else Op.get("sum")(product, **call.attrs)


def _is_zero(expr: Any) -> bool:
    if isinstance(expr, Constant):
        return expr.dtype in FLOATS and not np.any(expr.data)
    return is_op_call(expr) and expr.op.short in ("zeros", "zeros_like")


def _is_nonzero(expr: Any) -> bool:
    return isinstance(expr, Constant) and bool(np.all(expr.data))
