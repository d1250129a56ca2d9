"""Inference of whole modules, and of expressions in one: strongly connected functions together, callees first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relay.adt import Match
from pullback.relay.analysis.call_graph import components, global_vars
from pullback.relay.analysis.matches import unmatched_cases
from pullback.relay.analysis.variables import free_type_vars
from pullback.relay.analysis.well_formed import unbound_in
from pullback.relay.expr import Function, Var, as_expr
from pullback.relay.infer.annotate import Annotator
from pullback.relay.infer.errors import TypeInferenceError, raise_all
from pullback.relay.infer.inferencer import Inferencer
from pullback.relay.infer.words import expr_text
from pullback.relay.ty import IncompleteType
from pullback.relay.visitor import post_order

_SHOWN = 3  # patterns that a match lacks


@deep
def infer_module(mod: IRModule) -> IRModule:
    """A module of the same functions in which every expression has a ``checked_type``.

    Variables and functions that are not declared with their types get those that were found. Raises a UserError that
    lists all mistakes, each with its place.

    >>> from pullback.relay.expr import var
    >>> x = var("x", shape=(2, 3))
    >>> infer_module(IRModule.from_expr(Function((x,), x + x)))["main"].ret_type
    TensorType(shape=(2, 3), dtype='float32')
    """
    functions = {name: f for name, f in mod.items() if isinstance(f, Function)}
    inferencer = Inferencer(mod)
    _infer_functions(inferencer, functions)
    problems = list(_unbound(functions)) + list(inferencer.errors)
    problems += _incomplete_matches(functions.values(), mod) if not problems else []
    problems += list(_not_found(inferencer))
    if problems:
        raise_all(problems)
    annotator = Annotator(inferencer)
    result = mod.copy()
    for name, function in functions.items():
        result[name] = annotator.annotate(function)
    return result


@deep
def infer_expr(expr: Any, mod: IRModule | None = None) -> Any:
    """The expression with a ``checked_type`` in every part; global functions and data types are those of ``mod``.

    Free variables have the types that they are declared with, or that follow from their uses. Raises a UserError that
    lists all mistakes, each with its place.
    """
    expr, module = as_expr(expr), IRModule() if mod is None else mod
    inferencer = Inferencer(module)
    _infer_functions(inferencer, _reachable(expr, module))
    inferencer.infer(expr)
    problems = list(inferencer.errors)
    problems += _incomplete_matches([expr], module) if not problems else []
    problems += list(_not_found(inferencer))
    if problems:
        raise_all(problems)
    return Annotator(inferencer).annotate(expr)


def _infer_functions(inferencer: Inferencer, functions: dict[str, Function]) -> None:
    calls = {name: [g for g in global_vars(f) if g in functions] for name, f in functions.items()}
    for component in components(calls):
        for name in component:
            inferencer.declare(functions[name])
        for name in component:
            inferencer.function = name if len(functions) > 1 else None
            inferencer.infer(functions[name])
    inferencer.function = None


def _reachable(expr: Any, module: IRModule) -> dict[str, Function]:
    """The functions that the expression may call and that have no types yet."""
    found: dict[str, Function] = {}
    pending = list(global_vars(expr))
    while pending:
        name = pending.pop()
        function = module.functions.get(name)
        if name not in found and isinstance(function, Function) and function.checked_type_ is None:
            found[name] = function
            pending += global_vars(function)
    return found


def _unbound(functions: dict[str, Function]) -> Iterator[UserError]:
    """Variables of functions that nothing binds."""
    for name, function in functions.items():
        yield from unbound_in(name, function)
        for type_var in free_type_vars(function):
            hint = "a function binds those that it lists: Function(params, body, ret_type, type_params)"
            message = f"the type variable {type_var.name} in @{name} is not bound"
            yield TypeInferenceError(message, span=type_var.span, hint=hint)


def _incomplete_matches(exprs: Iterable[Any], module: IRModule) -> list[UserError]:
    """Matches that say that they are complete and are not."""
    found: dict[Match, UserError] = {}
    for expr in exprs:
        for node in post_order(expr):
            if not isinstance(node, Match) or not node.complete or node in found:
                continue
            missing = unmatched_cases(node, module)
            if missing:
                shown = ", ".join(map(str, missing[:_SHOWN])) + ", …" * (len(missing) > _SHOWN)
                hint = "add clauses for them, or say Match(…, complete=False)"
                message = f"{expr_text(node)} does not cover {shown}"
                found[node] = TypeInferenceError(message, span=node.span, hint=hint)
    return list(found.values())


def _not_found(inferencer: Inferencer) -> Iterator[UserError]:
    """Types that do not follow from anything: those of variables, or else of the first expression."""
    solver = inferencer.solver
    open_ = []
    for node, type_ in inferencer.types.items():
        known = solver.known(type_)
        if isinstance(known, IncompleteType) and known not in solver.excused:
            open_.append((node, known))
    variables = [(node, known) for node, known in open_ if isinstance(node, Var)]
    reported: set[IncompleteType] = set()
    for node, known in variables or open_[:1]:
        if known in reported:
            continue
        reported.add(known)
        declare = "declare it: relay.var(name, type)" if isinstance(node, Var) else None
        hint = declare or "declare the types of its variables, or the ret_type of the function that it calls"
        yield TypeInferenceError(f"the type of {expr_text(node)} cannot be inferred", span=node.span, hint=hint)
