"""Whether variables are bound once, and used where they are bound."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relay.adt import Match, bound_by
from pullback.relay.expr import Function, Let, Var
from pullback.relay.visitor import children


class IllFormed(UserError):
    """A variable is bound twice, or is used where nothing binds it."""


class _Checker:
    """Visits each node once, in the scope in which it is found first, and variables wherever they stand."""

    def __init__(self) -> None:
        self.several: list[UserError] = []  # variables that are bound more than once
        self.outside: list[UserError] = []  # uses outside of their scopes
        self.free: dict[Var, None] = {}
        self._open: Counter[Var] = Counter()  # scopes around that bind it
        self._bound: set[Any] = set()

    def check(self, expr: Any) -> None:
        seen: set[Any] = set()
        todo: list[Any] = [expr]
        while todo:
            task = todo.pop()
            if isinstance(task, _Binding):
                task.enter(self)
            elif isinstance(task, _End):
                self._open.subtract(task.variables)
            elif isinstance(task, Var):
                self._use(task)
            elif task not in seen:
                seen.add(task)
                todo.extend(reversed(_parts(task)))

    def _use(self, var: Var) -> None:
        if self._open[var]:
            return
        if var in self._bound:
            hint = "use it inside of the function, Let or clause that binds it"
            self.outside.append(IllFormed(f"%{var.name} is used outside of its scope", span=var.span, hint=hint))
        else:
            self.free[var] = None

    def bind(self, variables: Any, span: Any) -> None:
        for var in variables:
            if var in self._bound or var in self.free:
                how = "is bound more than once" if var in self._bound else "is bound after it was used as a free one"
                hint = "relay.duplicate(expr) gives an expression with variables of its own"
                self.several.append(IllFormed(f"%{var.name} {how}", span=var.span or span, hint=hint))
            self._bound.add(var)
            self._open[var] += 1


class _Binding:
    def __init__(self, variables: Any, span: Any) -> None:
        self.variables, self.span = variables, span

    def enter(self, checker: _Checker) -> None:
        checker.bind(self.variables, self.span)


class _End:
    def __init__(self, variables: Any) -> None:
        self.variables = variables


def _parts(node: Any) -> tuple[Any, ...]:
    """What is inside, with the scopes around it."""
    if isinstance(node, Let):
        return _Binding([node.variable], node.span), node.value, node.body, _End([node.variable])
    if isinstance(node, Function):
        return _Binding(node.params, node.span), node.body, _End(node.params)
    if isinstance(node, Match):
        clauses = ((bound_by(c.lhs), c) for c in node.clauses)
        scoped = (part for names, c in clauses for part in (_Binding(names, c.span), c.rhs, _End(names)))
        return node.data, *scoped
    return children(node)


def _checked(expr: Any) -> _Checker:
    checker = _Checker()
    checker.check(expr)
    return checker


def unbound_in(name: str, function: Function) -> list[UserError]:
    """Uses of variables in a function of a module where nothing binds them."""
    checker = _checked(function)
    hint = f"make it a parameter of @{name}, or bind it by a Let"
    free = [IllFormed(f"%{v.name} in @{name} is not bound", span=v.span, hint=hint) for v in checker.free]
    return free + checker.outside


def problems_of(program: Any) -> list[UserError]:
    """What is wrong with the variables of an expression or a module; an empty list where nothing is.

    An expression may have free variables, a function of a module may not. Functions of a module may have variables in
    common.
    """
    if not isinstance(program, IRModule):
        checker = _checked(program)
        return checker.several + checker.outside
    functions = [(name, f) for name, f in program.items() if isinstance(f, Function)]
    return [p for name, f in functions for p in (*_checked(f).several, *unbound_in(name, f))]


def well_formed(expr: Any) -> bool:
    """Whether each variable of an expression or a module is bound once, and used only where it is bound.

    >>> from pullback.relay.expr import var
    >>> x = var("x", shape=())
    >>> well_formed(Function((x,), x)), well_formed(Function((x,), Function((x,), x)))
    (True, False)
    """
    return not problems_of(expr)
