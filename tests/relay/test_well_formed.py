"""Which programs are well-formed, and how `duplicate` makes others so."""

from __future__ import annotations

import pytest

from pullback.ir import IRModule
from pullback.ir.node import structural_equal
from pullback.relay.adt import Clause, Match, PatternTuple, PatternVar
from pullback.relay.analysis import all_vars, bound_vars, free_vars, well_formed
from pullback.relay.analysis.well_formed import problems_of
from pullback.relay.duplicate import duplicate
from pullback.relay.expr import Expr, Function, If, Let, RefCreate, Tuple, call_op, const, var
from pullback.relay.infer import infer_expr
from pullback.relay.ty import TypeVar
from pullback.relay.visitor import post_order

X, Y, Z = (var(n, shape=()) for n in "xyz")
ONCE = Let(X, const(1.0), X)
F = Function((X,), X + Y)

CASES: dict[str, tuple[Expr, str]] = {
    "variable": (X, ""),
    "let": (ONCE, ""),
    "function": (F, ""),
    "a function at two places": (Tuple((F, F)), ""),
    "lets of one variable": (Let(X, const(1.0), Let(X, const(2.0), X)), "%x is bound more than once"),
    "lets side by side": (Tuple((ONCE, Let(X, const(2.0), X))), "%x is bound more than once"),
    "parameter twice": (Function((X, X), X), "%x is bound more than once"),
    "parameter and let": (Function((X,), Let(X, const(1.0), X)), "%x is bound more than once"),
    "a loss that has the parameters of its model": (Function((X, Y), F(X)), "%x is bound more than once"),
    "outside of its scope": (Tuple((ONCE, X)), "%x is used outside of its scope"),
    "before its scope": (Tuple((X, ONCE)), "%x is bound after it was used as a free one"),
    "in the other clause": (
        Match(Z, (Clause(PatternVar(X), X), Clause(PatternVar(Y), X))),
        "%x is used outside of its scope",
    ),
    "pattern that binds twice": (
        Match(Z, (Clause(PatternTuple((PatternVar(X), PatternVar(X))), X),)),
        "%x is bound more than once",
    ),
    "clauses of one variable": (
        Match(Z, (Clause(PatternVar(X), X), Clause(PatternVar(X), X))),
        "%x is bound more than once",
    ),
    "recursion": (Let(X, Function((), X()), X), ""),
    "branches": (If(Z, Let(X, Z, X), Let(Y, Z, Y)), ""),
}


@pytest.mark.parametrize("name", CASES)
def test_well_formed(name: str) -> None:
    expr, problem = CASES[name]
    assert [e.message for e in problems_of(expr)][:1] == ([problem] if problem else [])
    assert well_formed(expr) == (problem == "")


def test_modules() -> None:
    shared = Function((X,), X)
    assert well_formed(IRModule({"f": shared, "g": Function((X,), call_op("tanh", X))}))
    module = IRModule({"f": F})
    assert not well_formed(module) and well_formed(F)
    (problem,) = problems_of(module)
    assert problem.message == "%y in @f is not bound"
    assert problem.hint == "make it a parameter of @f, or bind it by a Let"


def test_hint_names_duplicate() -> None:
    (problem,) = problems_of(CASES["a loss that has the parameters of its model"][0])
    assert problem.hint == "relay.duplicate(expr) gives an expression with variables of its own"


def test_depth() -> None:
    names = [var(f"v{i}") for i in range(10_000)]
    expr: Expr = X
    for name in names:
        expr = Let(name, X, expr)
    assert well_formed(expr)
    copy = duplicate(expr)
    assert well_formed(copy) and free_vars(copy) == [X] and not set(bound_vars(copy)) & set(names)


BOUND_TWICE = [name for name, (_, problem) in CASES.items() if problem == "%x is bound more than once"]
BAD_BINDERS = {"parameter twice", "pattern that binds twice"}


@pytest.mark.parametrize("name", sorted(set(BOUND_TWICE) - BAD_BINDERS))
def test_duplicate_makes_well_formed(name: str) -> None:
    expr, _ = CASES[name]
    copy = duplicate(expr)
    assert well_formed(copy) and free_vars(copy) == free_vars(expr)
    assert len(bound_vars(copy)) > len(bound_vars(expr)) and not set(bound_vars(copy)) & set(bound_vars(expr))


def test_duplicate_of_a_well_formed_expression_is_equal() -> None:
    a = TypeVar("a")
    p, m = var("p", a), var("m")
    f = Function((p,), Let(Z, RefCreate(p), Match(Z, (Clause(PatternVar(m), Tuple((m, p, Y))),))), a, (a,))
    copy = duplicate(f)
    assert structural_equal(copy, f) and free_vars(copy) == [Y]
    assert not (set(all_vars(copy)) - {Y}) & set(all_vars(f))
    assert copy.type_params[0] is not a and copy.ret_type is copy.type_params[0] is copy.params[0].type_annotation


def test_duplicate_keeps_sharing() -> None:
    shared = X + X
    copy = duplicate(Function((X,), shared * shared))
    assert copy.body.args[0] is copy.body.args[1]
    twice = duplicate(Tuple((F, F)))
    assert twice.fields[0] is twice.fields[1] is not F


def test_duplicate_of_a_node_under_two_binders() -> None:
    """The sum is one node, and means another one under each binder; what does not depend on them stays one."""
    same, outer = call_op("tanh", Y), X + const(1.0)
    expr = Tuple((Let(X, const(1.0), outer * same), Let(X, const(2.0), outer * same)))
    copy = duplicate(expr)
    one, other = copy.fields
    assert one.body.args[0].args[0] is one.variable and other.body.args[0].args[0] is other.variable
    assert one.body.args[1] is other.body.args[1]
    assert well_formed(copy)


def test_duplicate_of_shadowed_variables() -> None:
    inner = Let(X, X + const(1.0), X)  # the value's X is the one that this Let binds
    copy = duplicate(Function((X,), Tuple((inner, X))))
    (param,), (let, last) = copy.params, copy.body.fields
    assert last is param and let.body is let.variable is not param and let.value.args[0] is let.variable


def test_duplicate_of_an_inferred_function() -> None:
    copy = infer_expr(duplicate(infer_expr(Function((X, Y), F(X)))))
    assert copy.checked_type.ret_type == X.type_annotation
    assert len(list(post_order(copy))) > 3
