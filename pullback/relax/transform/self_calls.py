"""Which functions call themselves, by way of others too, and whether that is all that they do last.

    def f(x): return f(x * 2) if x < 9 else x          only tail calls: a loop (``tail_calls.py``)
    def f(x): return x * f(x - 1) if x > 1 else x      something is done with the result (``recursive_calls.py``)

A function is known by its text and by what its free variables stand for (:class:`Known`). To mention a function counts
as to call it, as whoever gets it may do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.module import GlobalVar, IRModule
from pullback.relax.analysis import called_functions, free_vars, used_vars
from pullback.relax.expr import Call, Expr, Function, If, SeqExpr, Var
from pullback.relax.transform.closed_form import Known, leaves_of

Stops = Callable[[Function], bool]  # of functions that are open already: what calls them is closed elsewhere


class SelfCalls:
    def __init__(self, module: IRModule, stops: Stops) -> None:
        self.module, self.stops = module, stops

    def calls_itself(self, known: Known) -> bool:
        return self.reaches(known, known.function)

    def reaches(self, known: Known, target: Function) -> bool:
        """Whether a call of a function may call ``target``."""
        return any(k.function is target for k in self.reached(known))

    def reached(self, known: Known) -> Iterator[Known]:
        """The functions that a call of one may call."""
        seen, stack = set(), [known]
        while stack:
            current = stack.pop()
            for callee in self.mentioned(current):
                key = id(callee.function), id(callee.env) if callee.env else 0
                if key not in seen:
                    seen.add(key)
                    yield callee
                    if not self.stops(callee.function):
                        stack.append(callee)

    def mentioned(self, known: Known) -> Iterator[Known]:
        yield from self.of_module(called_functions(known.function))
        for var in free_vars(known.function):
            value = known.env.get(var)
            if isinstance(value, Known):
                yield value

    def of_module(self, names: Iterable[str]) -> Iterator[Known]:
        for name in names:
            function = self.module.functions.get(name)
            if isinstance(function, Function):
                yield Known(name, function)

    def has_only_tail_calls(self, known: Known, arguments: Sequence[Any]) -> bool:
        """Whether nothing is done with what a function's calls of itself give, but to return it."""
        return _TailCheck(self, known).body(known.function.body, _with(known, arguments), ())


def _with(known: Known, arguments: Sequence[Any]) -> dict[Any, Any]:
    given = zip(known.function.params, arguments, strict=True)
    return {**known.env, **{p: a for p, a in given if isinstance(a, Known)}}


class _TailCheck:
    """Goes the way of ``tail_calls.Tail``; ``entered``: the functions that it is in."""

    def __init__(self, calls: SelfCalls, target: Known) -> None:
        self.calls, self.target = calls, target.function

    def body(self, body: SeqExpr, env: Mapping[Any, Any], entered: tuple[Function, ...]) -> bool:
        bindings = list(body.bindings)
        before, last = bindings[:-1], bindings[-1] if bindings else None
        value = last.value if last is not None and isinstance(body.body, Var) and body.body is last.var else None
        rest = before if isinstance(value, If) or self.is_call(value) else bindings
        if any(self.mentions(b.value, env) for b in rest):
            return False
        if isinstance(value, If):
            return self.body(value.then, env, entered) and self.body(value.otherwise, env, entered)
        return not self.is_call(value) or self.call(value, env, entered)

    def is_call(self, value: Any) -> bool:
        return isinstance(value, Call) and isinstance(value.op, (GlobalVar, Expr))

    def call(self, call: Any, env: Mapping[Any, Any], entered: tuple[Function, ...]) -> bool:
        if any(self.mentions(a, env) for a in call.args):
            return False
        callees = list(self.functions(call.op, env))
        if not any(map(self.leads_back, callees)):
            return True
        (callee,) = callees
        if callee.function is self.target:
            return True
        return callee.function not in entered and self.body(
            callee.function.body, _with(callee, [env.get(a) for a in call.args]), (*entered, callee.function)
        )

    def mentions(self, expr: Any, env: Mapping[Any, Any]) -> bool:
        """Whether an expression has a function in it that leads back."""
        return any(map(self.leads_back, self.functions(expr, env)))

    def functions(self, expr: Any, env: Mapping[Any, Any]) -> Iterator[Known]:
        yield from self.calls.of_module(called_functions(expr))
        for var in used_vars(expr):
            value = env.get(var)
            if isinstance(value, Known):
                yield value

    def leads_back(self, known: Known) -> bool:
        if self.calls.stops(known.function):
            return False
        return known.function is self.target or self.calls.reaches(known, self.target)


def captured(functions: Iterable[Known]) -> list[Var]:
    """The variables of the open function that functions read around them, and those that they call."""
    found: dict[Var, None] = {}
    seen, stack = set(), list(functions)
    while stack:
        known = stack.pop()
        for var in free_vars(known.function):
            value = known.env.get(var)
            if isinstance(value, Known):
                if (id(value.function), id(value.env)) not in seen:
                    seen.add((id(value.function), id(value.env)))
                    stack.append(value)
            elif isinstance(value, Expr):
                found.update((v, None) for leaf in leaves_of(value) for v in used_vars(leaf))
    return list(found)
