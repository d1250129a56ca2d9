"""Accesses that certainly lie outside their buffers, found before a kernel is compiled.

      for i in range(4):          i + 1 takes the values 1 … 4
          B[i] = A[i + 1]    →    index 4 is outside axis 0 of A, which has 4 elements

Nothing is said of what cannot be known: symbolic sizes, loops whose length depends on data, what stands under an
``if`` or is one side of a choice, indices that are not a sum of loop variables times constants, each variable once.
That is checked while the kernel runs (``checked.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import ShapeError
from pullback.tir.expr import Binary, BufferLoad, Cast, IntImm, PrimExpr, Select, Var, as_expr
from pullback.tir.stmt import Allocate, BufferStore, For, If, Let, PrimFunc, Seq
from pullback.tir.visitor import children, distinct, walk

MOST_COPIES = 1 << 14  # of the body of unrolled loops
Range = tuple[int, int]  # the least and the largest value, both taken


@deep
def check_bounds(function: PrimFunc) -> None:
    """Raise a ShapeError at the first access that lies outside its buffer whenever the kernel runs, and at unrolled
    loops that are too long to be written out."""
    sizes = frozenset(v for b in function.buffers for n in b.shape for v in distinct(as_expr(n)) if isinstance(v, Var))
    _check(function.name, function.body, {}, 1, sizes)


def _check(name: str, node: Any, ranges: Mapping[Var, Range], copies: int, sizes: frozenset[Var]) -> None:
    """``copies``: how many times unrolled loops write the statement."""
    if isinstance(node, Seq):
        for stmt in node.stmts:
            _check(name, stmt, ranges, copies, sizes)
    elif isinstance(node, For):
        extent = _range(node.extent, {})
        if extent is None:
            if all(v in sizes for v in distinct(node.extent) if not isinstance(v, (Binary, IntImm))):
                _check(name, node.body, ranges, copies, sizes)
        elif extent[0] > 0:  # an empty loop touches nothing
            if node.kind == "unrolled":
                copies *= extent[0]
                _expect_short(name, node, copies)
            _check(name, node.body, {**ranges, node.var: (0, extent[0] - 1)}, copies, sizes)
    elif isinstance(node, Let):
        _loads(name, node.value, ranges, node.span)
        _check(name, node.body, ranges, copies, sizes)
    elif isinstance(node, Allocate):
        _check(name, node.body, ranges, copies, sizes)
    elif isinstance(node, If):
        _loads(name, node.condition, ranges, node.span)
    elif isinstance(node, BufferStore):
        _loads(name, node.value, ranges, node.span)
        _access(name, node, ranges, node.span)


def _expect_short(name: str, node: For, copies: int) -> None:
    if copies > MOST_COPIES:
        message = f"{name}: the unrolled loop over {node.var.name} writes its body {copies} times"
        hint = f"at most {MOST_COPIES} are possible: make it a serial loop, for {node.var.name} in range(…)"
        raise ShapeError(message, span=node.span, hint=hint)


def _loads(name: str, value: PrimExpr, ranges: Mapping[Var, Range], span: Any) -> None:
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, BufferLoad):
            _access(name, node, ranges, node.span or span)
        elif isinstance(node, Select):
            stack.append(node.condition)  # which of the sides counts is not known
        elif isinstance(node, Binary) and node.kind in ("and", "or"):
            stack.append(node.a)
        else:
            stack += [c for c in children(node) if isinstance(c, PrimExpr)]


def _access(name: str, node: BufferLoad | BufferStore, ranges: Mapping[Var, Range], span: Any) -> None:
    for axis, (index, size) in enumerate(zip(node.indices, node.buffer.shape, strict=True)):
        _loads(name, index, ranges, span)
        found, extent = _range(index, ranges), _range(size, {})
        if found is None:
            continue
        bad = found[0] if found[0] < 0 else found[1]
        if bad < 0 or (extent is not None and bad >= extent[0]):
            of = f"which has {extent[0]} elements" if extent is not None else "which begins at 0"
            message = f"{name}: index {bad} is outside axis {axis} of {node.buffer.name}, {of}"
            raise ShapeError(message, span=span, hint="indices count from 0; shorten the loop, or put an if around")


def _range(expr: Any, ranges: Mapping[Var, Range]) -> Range | None:
    """The range of an expression; None when it is not known to take both ends."""
    if isinstance(expr, int):
        return expr, expr
    variables = [n for n in walk(expr) if isinstance(n, Var)]
    return _interval(expr, ranges) if len(variables) == len(set(variables)) else None


def _interval(expr: PrimExpr, ranges: Mapping[Var, Range]) -> Range | None:
    if isinstance(expr, IntImm):
        return expr.value, expr.value
    if isinstance(expr, Var):
        return ranges.get(expr)
    if isinstance(expr, Cast):
        return _interval(expr.value, ranges)
    if not isinstance(expr, Binary):
        return None
    a, b = _interval(expr.a, ranges), _interval(expr.b, ranges)
    if a is None or b is None:
        return None
    if expr.kind == "add":
        return a[0] + b[0], a[1] + b[1]
    if expr.kind == "sub":
        return a[0] - b[1], a[1] - b[0]
    if expr.kind == "mul" and (a[0] == a[1] or b[0] == b[1]):
        ends = a[0] * b[0], a[1] * b[1]
        return min(ends), max(ends)
    return None
