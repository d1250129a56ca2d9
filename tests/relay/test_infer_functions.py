"""Types of functions: polymorphism, recursion of let-bound and of global functions, data types."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from pullback.ir import IRModule
from pullback.ir.node import structural_equal
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from pullback.relay.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, Var, call_op, const, var
from pullback.relay.infer import infer_expr, infer_module
from pullback.relay.loops import while_loop
from pullback.relay.prelude import Prelude
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    TensorType,
    TupleType,
    TypeCall,
    TypeVar,
    scalar_type,
)
from pullback.relay.visitor import post_order
from tests.relay.lists import Lists

F3, I0 = TensorType((3,), "float32"), scalar_type("int32")


def x(name: str = "x") -> Var:
    return var(name, F3)


def identity() -> Function:
    a = TypeVar("a")
    p = var("p", a)
    return Function((p,), p, a, (a,))


# polymorphism


def test_a_polymorphic_function_is_instantiated_at_each_use() -> None:
    f = var("f")
    found = infer_expr(Let(f, identity(), Tuple((f(x()), f(const(1)), f(Tuple((x(), const(1))))))))
    assert found.checked_type == TupleType((F3, I0, TupleType((F3, I0))))
    assert [call.type_args for call in found.body.fields] == [(F3,), (I0,), (TupleType((F3, I0)),)]
    a = found.value.type_params[0]
    assert structural_equal(found.variable.checked_type, FuncType((a,), a, (a,)))


def test_a_polymorphic_function_without_a_declared_result() -> None:
    a, b = TypeVar("a"), TypeVar("b")
    p, q, f = var("p", a), var("q", b), var("f")
    swap = Function((p, q), Tuple((q, p)), None, (a, b))
    found = infer_expr(Let(f, swap, Tuple((f(x(), const(1)), f(const(1), x())))))
    assert found.checked_type == TupleType((TupleType((I0, F3)), TupleType((F3, I0))))
    assert found.value.ret_type == TupleType((b, a))


def test_global_polymorphic_functions() -> None:
    module = IRModule(
        {"id": identity(), "main": Function((y := x(),), Tuple((GlobalVar("id")(y), GlobalVar("id")(1))))}
    )
    found = infer_module(module)
    assert found["main"].ret_type == TupleType((F3, I0))
    assert infer_expr(GlobalVar("id")(const(1)), found).checked_type == I0
    assert infer_expr(GlobalVar("id")(const(1)), module).checked_type == I0


def test_explicit_type_arguments() -> None:
    f = var("f")
    found = infer_expr(Let(f, identity(), Call(f, (x(),), type_args=(F3,))))
    assert found.body.type_args == (F3,) and found.checked_type == F3


def test_a_polymorphic_function_as_an_argument() -> None:
    g, b = var("g", FuncType((F3,), F3)), x("b")
    apply = Function((g, b), g(b))
    assert infer_expr(apply(identity(), x())).checked_type == F3


def test_a_polymorphic_function_of_a_function() -> None:
    a, b = TypeVar("a"), TypeVar("b")
    g, p = var("g", FuncType((a,), b)), var("p", a)
    apply = Function((g, p), g(p), b, (a, b))
    q = var("q")
    found = infer_expr(apply(Function((q,), Tuple((q, q))), x()))
    assert found.checked_type == TupleType((F3, F3)) and found.type_args == (F3, TupleType((F3, F3)))


def test_polymorphic_types_are_equal_whatever_their_parameters_are_called() -> None:
    b = TypeVar("b")
    f = var("f", FuncType((b,), b, (b,)))
    assert infer_expr(Let(f, identity(), f(x()))).checked_type == F3


# recursion


@pytest.mark.parametrize("declared", ["all", "parameters", "nothing"])
def test_recursion_of_a_let(declared: str) -> None:
    f = var("f", FuncType((F3, scalar_type("bool")), F3) if declared == "all" else None)
    p, c = (var("p"), var("c")) if declared == "nothing" else (var("p", F3), var("c", "bool"))
    ret = F3 if declared == "all" else None
    loop = Function((p, c), If(c, p, f(p + p, c)), ret)
    found = infer_expr(Let(f, loop, f(x(), const(True))))
    assert found.checked_type == F3
    assert found.variable.checked_type == FuncType((F3, scalar_type("bool")), F3) == found.value.checked_type


def test_recursion_of_a_global_function() -> None:
    p, c, f = var("p", F3), var("c", "bool"), GlobalVar("f")
    found = infer_module(IRModule({"f": Function((p, c), If(c, p, f(p + p, c)))}))
    assert found["f"].checked_type == FuncType((F3, scalar_type("bool")), F3)
    call = next(n for n in post_order(found["f"].body) if isinstance(n, Call) and isinstance(n.op, GlobalVar))
    assert call.op.checked_type == found["f"].checked_type and call.checked_type == F3


@pytest.mark.parametrize("order", [("even", "odd"), ("odd", "even")])
def test_functions_that_call_one_another(order: Any) -> None:
    """The type of ``odd`` follows from ``even`` only, whichever comes first."""
    even, odd, stop = GlobalVar("even"), GlobalVar("odd"), var("stop", "bool")
    p, q = var("p", F3), var("q")
    functions = {
        "even": Function((p, stop), If(stop, p, odd(p))),
        "odd": Function((q,), even(q + q, const(True))),
    }
    found = infer_module(IRModule({name: functions[name] for name in order}))
    assert found["odd"].checked_type == FuncType((F3,), F3)


def test_callees_that_are_defined_later() -> None:
    names = [f"f{i}" for i in range(50)]
    functions = {n: Function((), GlobalVar(m)()) for n, m in itertools.pairwise(names)}
    found = infer_module(IRModule({**functions, names[-1]: Function((), const(1))}))
    assert all(found[n].ret_type == I0 for n in names)


def test_polymorphic_recursion() -> None:
    """A recursive function that calls itself with another type than its own parameter's needs its result declared."""
    a, f = TypeVar("a"), GlobalVar("f")
    p, c = var("p", a), var("c", "bool")
    body = If(c, const(1), f(Tuple((p, p)), c))
    found = infer_module(IRModule({"f": Function((p, c), body, I0, (a,))}))
    call = found["f"].body.false_branch
    assert call.type_args == (TupleType((a, a)),)


def test_loops_of_sizes_that_grow() -> None:
    i, rows = var("i", shape=(), dtype="int32"), var("rows", shape=(AnySize(), 2))

    def grown(i: Expr, rows: Expr) -> list[Expr]:
        return [i + const(1), call_op("concatenate", Tuple((rows, rows)), axis=0)]

    loop = while_loop(lambda i, rows: call_op("less", i, const(3)), [i, rows], grown)
    found = infer_expr(loop(const(0), var("first", shape=(1, 2))))
    assert found.checked_type == TupleType((I0, TensorType((AnySize(), 2))))


# data types


def test_constructors() -> None:
    lists = Lists()
    found = infer_expr(Call(lists.cons, (x(), Call(lists.nil, ()))), lists.module)
    assert found.checked_type == lists.of(F3) and found.type_args == (F3,)
    assert found.args[1].checked_type == lists.of(F3) and found.args[1].type_args == (F3,)
    (a,) = lists.module[lists.name].type_vars
    assert structural_equal(found.op.checked_type, FuncType((a, lists.of(a)), lists.of(a), (a,)))


def test_map() -> None:
    lists = Lists()
    name = lists.add_map()
    found = infer_module(lists.module)
    t, u = found["map"].type_params
    wanted = FuncType((FuncType((t,), u), lists.of(t)), lists.of(u), (t, u))
    assert structural_equal(found["map"].checked_type, wanted)
    q = var("q")
    mapped = infer_expr(name(Function((q,), Tuple((q, q))), Call(lists.cons, (x(), Call(lists.nil, ())))), found)
    assert mapped.checked_type == lists.of(TupleType((F3, F3)))


def test_a_recursive_function_of_a_list_without_declarations() -> None:
    lists, total = Lists(), GlobalVar("total")
    xs, head, tail = var("xs"), var("head"), var("tail")
    body = lists.by_cases(xs, const([0.0, 0.0, 0.0]), head, tail, head + total(tail))
    lists.module["total"] = Function((xs,), body)
    lists.module["main"] = Function((y := x(),), total(Call(lists.cons, (y, Call(lists.nil, ())))))
    found = infer_module(lists.module)
    assert found["total"].checked_type == FuncType((lists.of(F3),), F3)
    assert found["total"].body.clauses[1].lhs.patterns[0].var.checked_type == F3


def test_nested_patterns() -> None:
    lists = Lists()
    xs, a, b = var("xs", lists.of(F3)), var("a"), var("b")
    two = PatternConstructor(
        lists.cons, (PatternVar(a), PatternConstructor(lists.cons, (PatternVar(b), PatternWildcard())))
    )
    match = Match(xs, (Clause(two, a + b),), complete=False)
    assert infer_expr(match, lists.module).checked_type == F3
    pair = Match(Tuple((xs, xs)), (Clause(PatternTuple((two, PatternWildcard())), b),), complete=False)
    assert infer_expr(pair, lists.module).checked_type == F3


def test_a_data_type_without_parameters_with_and_without_brackets() -> None:
    name = GlobalTypeVar("Color")
    red, blue = Constructor("Red", (), name), Constructor("Blue", (), name)
    module = IRModule()
    module[name] = TypeData(name, (), (red, blue))
    c = var("c", TypeCall(name, ()))
    assert infer_expr(Function((c,), c)(Call(red, ())), module).checked_type == TypeCall(name, ())
    d = var("d", name)
    flip = Match(d, tuple(Clause(PatternConstructor(p), Call(q, ())) for p, q in ((red, blue), (blue, red))))
    assert infer_expr(Function((d,), flip)(Call(red, ())), module).checked_type == TypeCall(name, ())


def test_types_of_data_types_may_stay_open() -> None:
    lists = Lists()
    found = infer_expr(Let(var("unused"), Call(lists.nil, ()), const(1)), lists.module)
    assert found.checked_type == I0 and isinstance(found.value.checked_type.args[0], IncompleteType)


def test_lists_of_different_sizes_join_in_branches() -> None:
    lists = Lists()
    short, long = var("s", lists.of(F3)), var("l", lists.of(TensorType((5,))))
    found = infer_expr(If(const(True), short, long), lists.module)
    assert found.checked_type == lists.of(TensorType((AnySize(),)))


def test_the_prelude_without_declared_results() -> None:
    """What its functions return follows from what they are made of."""
    declared, module = Prelude(IRModule()).mod, IRModule()
    module.update(declared)
    for name, function in declared.items():
        module[name] = Function(function.params, function.body, None, function.type_params)
    wanted, found = infer_module(declared), infer_module(module)
    assert len(found) > 20
    for name in declared:
        assert structural_equal(found[name].checked_type, wanted[name].checked_type)
