"""Programs written as statements: bindings, branches and results, scope by scope."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.node import current_span
from pullback.relay.expr import Expr, If, Let, Var, as_expr, var
from pullback.relay.ty import IncompleteType, Type


class ScopeError(UserError, RuntimeError):
    """Statements of a :class:`ScopeBuilder` in an order that is no program."""


class _Scope:
    def __init__(self) -> None:
        self.bindings: list[tuple[Var, Expr]] = []
        self.result: Expr | None = None
        self.open_if: tuple[Expr, Expr, Any] | None = None  # condition, what it gives if true, span

    def close(self, what: str) -> Expr:
        if self.open_if is not None:
            raise ScopeError(f"an if_scope in {what} has no else_scope", hint="with builder.else_scope(): …")
        if self.result is None:
            raise ScopeError(f"{what} has no result", hint="builder.ret(value) says what it is")
        result = self.result
        for variable, value in reversed(self.bindings):
            result = Let(variable, value, result, span=value.span)
        return result


class ScopeBuilder:
    """Builds an expression of ``Let`` and ``If``.

    >>> sb = ScopeBuilder()
    >>> x, c = var("x", shape=()), var("c", "bool")
    >>> with sb.if_scope(c):
    ...     y = sb.let("y", x + x)
    ...     sb.ret(y)
    >>> with sb.else_scope():
    ...     sb.ret(x)
    >>> type(sb.get()).__name__
    'If'
    """

    def __init__(self) -> None:
        self._scopes = [_Scope()]

    def let(self, variable: Any, value: Any) -> Var:
        """Bind ``value`` to a variable, or to a new one of that name (or of that name and type: a pair); returns it."""
        if isinstance(variable, (list, tuple)):
            if len(variable) not in (1, 2):
                raise ArgumentError(f"let takes a name and a type, got {len(variable)} items", hint='("x", type)')
            variable = var(*variable)
        elif isinstance(variable, str):
            variable = var(variable)
        if not isinstance(variable, Var):
            hint = 'write builder.let("x", value)'
            raise ArgumentError(f"let binds a variable or a name, got {type(variable).__name__}", hint=hint)
        self._scopes[-1].bindings.append((variable, as_expr(value)))
        return variable

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """What is computed where the scalar bool is true; an :meth:`else_scope` follows. The ``If`` is the result of
        the scope around."""
        span = current_span()
        if self._scopes[-1].result is not None or self._scopes[-1].open_if is not None:
            raise ScopeError(
                "this scope has a result already, which an If would be", hint="an If is the last statement"
            )
        with self._branch() as branch:
            yield
        self._scopes[-1].open_if = as_expr(cond), branch.close("the if_scope"), span

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is computed otherwise."""
        opened = self._scopes[-1].open_if
        if opened is None:
            raise ScopeError(
                "an else_scope follows an if_scope", hint="with builder.if_scope(condition): … comes first"
            )
        with self._branch() as branch:
            yield
        false_branch = branch.close("the else_scope")
        cond, true_branch, span = opened
        self._scopes[-1].open_if = None
        self._scopes[-1].result = If(cond, true_branch, false_branch, span=span)

    @contextmanager
    def _branch(self) -> Iterator[_Scope]:
        """A scope of its own, inside."""
        scope = _Scope()
        self._scopes.append(scope)
        try:
            yield scope
        finally:
            self._scopes.pop()

    def type_of(self, expr: Any) -> Type:
        """A type that inference finds to be the expression's; a variable's is what it was declared with, if so. Any
        other expression is bound in this scope."""
        if isinstance(expr, Var) and expr.type_annotation is not None:
            return expr.type_annotation
        type_ = IncompleteType()
        self.let(var("unify", type_), expr)
        return type_

    def ret(self, value: Any) -> None:
        """The result of the scope."""
        if self._scopes[-1].result is not None or self._scopes[-1].open_if is not None:
            raise ScopeError("this scope has a result already", hint="a scope has one builder.ret, or one If")
        self._scopes[-1].result = as_expr(value)

    def get(self) -> Expr:
        """The whole expression."""
        if len(self._scopes) != 1:
            raise ScopeError("get gives the outermost scope", hint="call it after all with blocks")
        return self._scopes[0].close("the program")
