"""Rewriting the places that match a pattern, and turning them into functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.relay.analysis.equality import alpha_equal
from pullback.relay.dataflow_pattern.groups import PARTITIONED, Group, Groups
from pullback.relay.dataflow_pattern.matcher import Found
from pullback.relay.dataflow_pattern.patterns import DFPattern, FunctionPattern
from pullback.relay.expr import Call, Expr, as_expr
from pullback.relay.infer import infer_expr
from pullback.relay.visitor import ExprMutator

_MOST_ROUNDS = 100


class DFPatternCallback:
    """What replaces the places that match ``pattern``: a subclass sets that in ``__init__`` and writes
    :meth:`callback`.

    ``require_type``: expressions have their types when it is called. ``rewrite_once``: the result is not looked at
    again.
    """

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern: DFPattern | None = None
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: Expr) -> Expr:
        """:func:`rewrite` with this callback."""
        return rewrite(self, expr)

    def callback(self, pre: Expr, post: Expr, node_map: Found) -> Expr:
        """The replacement of ``pre``, a place that matches, or of ``post``, the same after what is inside has been
        rewritten. ``node_map`` has the expressions, rewritten, that each part of the pattern matches: a list."""
        raise NotImplementedError(f"{type(self).__name__} does not override callback")


class _Rewriter(ExprMutator):
    """Replaces the results of groups by what a function makes of them."""

    def __init__(self, groups: Groups, replacement: Callable[[Group, Any, _Rewriter], Any]) -> None:
        super().__init__()
        self.groups, self.replacement = groups, replacement

    def dispatch(self, expr: Any) -> Any:
        post = super().dispatch(expr)
        group = self.groups.of_root.get(expr)
        return post if group is None else self.replacement(group, post, self)


def _call_back(callback: DFPatternCallback) -> Callable[[Group, Any, _Rewriter], Any]:
    def replacement(group: Group, post: Any, rewriter: _Rewriter) -> Any:
        rewritten = {
            pattern: [post if e is group.root else rewriter.visit(e) for e in exprs]
            for pattern, exprs in group.found.items()
        }
        result = callback.callback(group.root, post, rewritten)
        if result is None:
            hint = "return post to leave the place as it is"
            raise UserError(f"{type(callback).__name__}.callback returned nothing", span=group.root.span, hint=hint)
        return as_expr(result)

    return replacement


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback], expr: Expr, mod: IRModule | None = None
) -> Expr:
    """The expression with every place that matches a callback's pattern replaced by what the callback returns, until
    nothing changes any more. Of overlapping places the one nearer to the result counts.

    ``mod`` has the global functions and data types, where callbacks or patterns ask for types. UserError where the
    expression still changes after 100 rounds.
    """
    callbacks = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    for callback in callbacks:
        if not isinstance(callback.pattern, DFPattern):
            hint = "set self.pattern in __init__"
            raise ArgumentError(f"{type(callback).__name__} has no pattern", hint=hint)
    expr = as_expr(expr)
    for _ in range(_MOST_ROUNDS):
        before = expr
        for callback in callbacks:
            if callback.require_type:
                expr = infer_expr(expr, mod)
            assert callback.pattern is not None
            expr = _Rewriter(Groups(callback.pattern, expr, mod), _call_back(callback)).visit(expr)
        if alpha_equal(before, expr) or any(callback.rewrite_once for callback in callbacks):
            return expr
    names = ", ".join(type(callback).__name__ for callback in callbacks)
    hint = "their replacements match the patterns again: say rewrite_once=True, or make the patterns narrower"
    raise UserError(f"the expression still changes after {_MOST_ROUNDS} rounds of {names}", hint=hint)


def partition(
    pattern: DFPattern,
    expr: Expr,
    attrs: Mapping[str, Any] | None = None,
    check: Callable[[Any], bool] = lambda expr: True,
) -> Expr:
    """The expression with every place that matches replaced by a call of a function that computes it.

    The functions have the attribute ``PartitionedFromPattern``, which names what is in them, and ``attrs``. A place for
    which ``check(place)`` is false stays.

    >>> from pullback.relay.dataflow_pattern import is_op, wildcard
    >>> from pullback.relay.expr import call_op, var
    >>> call = partition(is_op("tanh")(wildcard()), call_op("tanh", var("x")))
    >>> call.op.attrs["PartitionedFromPattern"]
    'tanh_'
    """
    if isinstance(pattern, FunctionPattern):
        hint = "a function is one already: partition calls, or what is in its body"
        raise ArgumentError("a FunctionPattern cannot be partitioned", hint=hint)

    def replacement(group: Group, post: Any, rewriter: _Rewriter) -> Any:
        if not check(group.root):
            return post
        function = group.function.with_attr({PARTITIONED: group.name, **(attrs or {})})
        return Call(function, tuple(rewriter.visit(arg) for arg in group.args), span=group.root.span)

    expr = as_expr(expr)
    return _Rewriter(Groups(pattern, expr), replacement).visit(expr)
