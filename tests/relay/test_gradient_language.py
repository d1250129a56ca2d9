"""Reverse mode through the whole language: branches, recursion, closures, references, tuples, data types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import DifferentiationError
from pullback.ir.module import IRModule
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
from pullback.relay.expr import (
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    call_op,
    const,
    var,
)
from pullback.relay.infer import infer_expr, infer_module
from pullback.relay.prelude import import_from_std
from pullback.relay.transform import DeadCodeElimination, PartialEvaluate, gradient
from pullback.relay.ty import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, TypeCall, TypeVar
from pullback.relay.visitor import post_order
from tests.relay.differences import check_gradient, run

DTYPE = "float64"
SCALAR, VECTOR = TensorType((), DTYPE), TensorType((3,), DTYPE)
X = np.array([0.5, -1.25, 2.0])


def vector(name: str = "x") -> Var:
    return var(name, VECTOR)


def number(value: float) -> Constant:
    return const(value, DTYPE)


def higher(function: Function, *args: np.ndarray, mod: IRModule | None = None, **options: Any) -> None:
    check_gradient(function, args, mod, modes=("higher_order",), **options)


def total(x: Any) -> Any:
    return call_op("sum", x)


def test_the_type_of_a_gradient() -> None:
    x, y = vector(), var("y", SCALAR)
    found = infer_expr(gradient(Function((x, y), x * y)))
    assert found.checked_type == FuncType((VECTOR, SCALAR), TupleType((VECTOR, TupleType((VECTOR, SCALAR)))))
    assert [p.name_hint for p in found.params] == ["x", "y"]


def test_the_result_keeps_declared_types() -> None:
    x = vector()
    found = gradient(Function((x,), x * x, VECTOR))
    assert found.ret_type == TupleType((VECTOR, TupleType((VECTOR,))))


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_if_takes_one_branch(side: float) -> None:
    x = vector()
    condition = call_op("less", total(x), number(0.0))
    higher(Function((x,), If(condition, x * x * x, call_op("sin", x))), np.abs(X) * side)


def test_if_inside_of_if_shares_what_is_outside() -> None:
    x, y = vector(), vector("y")
    product = x * y
    inner = If(call_op("less", total(product), number(1.0)), product * x, product * product)
    body = If(call_op("less", total(x), number(5.0)), inner + product, product)
    for scale in (0.1, 1.0, 6.0):
        higher(Function((x, y), body), scale * X, np.array([1.0, 2.0, 0.5]))


def power_by_recursion() -> tuple[Var, Function]:
    """power(x, n) = x · power(x, n - 1), and 1 for n = 0."""
    power, x, n = Var("power"), vector(), var("n", "int32")
    again = Call(power, (x, n - const(1, "int32")))
    stop = call_op("equal", n, const(0, "int32"))
    return power, Function((x, n), If(stop, call_op("ones_like", x), x * again), VECTOR)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_recursion_with_a_branch_inside(n: int) -> None:
    power, function = power_by_recursion()
    y = vector("y")
    higher(Function((y,), Let(power, function, Call(power, (y, const(n, "int32"))))), X)


def test_the_count_of_a_recursion_may_be_a_parameter() -> None:
    power, function = power_by_recursion()
    y, n = vector("y"), var("n", "int32")
    whole = Function((y, n), Let(power, function, Call(power, (y, n))))
    value, (dy, dn) = run(gradient(whole), X, np.array(3, "int32"))
    np.testing.assert_allclose(value, X**3)
    np.testing.assert_allclose(dy, 3 * X**2)
    assert dn.dtype == np.int32 and dn == 0


@pytest.mark.parametrize("order", [1, 2, 3])
def test_derivatives_of_a_cubic(order: int) -> None:
    x = vector()
    function = Function((x,), x * x * x + number(2.0) * x)
    for _ in range(order):
        y = vector("y")
        function = Function((y,), TupleGetItem(TupleGetItem(Call(gradient(function), (y,)), 1), 0))
    expected = [3 * X**2 + 2, 6 * X, np.full(3, 6.0)][order - 1]
    np.testing.assert_allclose(run(function, X), expected, rtol=1e-12)


def test_the_second_derivative_through_recursion() -> None:
    power, function = power_by_recursion()
    y, z = vector("y"), vector("z")
    first = gradient(Function((y,), Let(power, function, Call(power, (y, const(4, "int32"))))))
    second = Function((z,), TupleGetItem(TupleGetItem(Call(first, (z,)), 1), 0))
    higher(second, X)
    np.testing.assert_allclose(run(second, X), 4 * X**3)


def test_a_closure_reads_what_is_around_it() -> None:
    x, y, z, f = vector(), vector("y"), vector("z"), Var("f")
    scaled = Function((z,), z * x)
    body = Let(f, scaled, Call(f, (y,)) * Call(f, (call_op("sin", x),)))
    higher(Function((x, y), body), X, X[::-1].copy())


def test_a_function_that_returns_a_function() -> None:
    x, y, z = vector(), vector("y"), vector("z")
    inner = Function((z,), z * y + y)
    made = Call(Function((y,), inner), (call_op("exp", x),))
    higher(Function((x,), Call(made, (x,))), X)


def test_a_function_as_an_argument() -> None:
    x, y, f = vector(), vector("y"), Var("f", FuncType((VECTOR,), VECTOR))
    twice = Function((f, y), Call(f, (Call(f, (y,)),)))
    square = Function((z := vector("z"),), z * z)
    higher(Function((x,), Call(twice, (square, x))), X)


def test_a_polymorphic_function_at_two_types() -> None:
    a = TypeVar("a")
    v = Var("v", a)
    identity, x, n = Var("identity"), vector(), var("n", SCALAR)
    body = Let(identity, Function((v,), v, a, (a,)), Call(identity, (x,)) * Call(identity, (n,)) + Call(identity, (x,)))
    higher(Function((x, n), body), X, np.array(1.5))


def test_a_reference_that_is_written_twice() -> None:
    x, r = vector(), Var("r")
    body = Let(
        r,
        RefCreate(x),
        Let(
            Var("_"),
            RefWrite(r, RefRead(r) * x),
            Let(Var("_"), RefWrite(r, RefRead(r) * call_op("sin", x)), RefRead(r)),
        ),
    )
    higher(Function((x,), body), X)


def test_a_reference_of_a_function_that_calls_itself() -> None:
    """Recursion by a reference: Landin's knot."""
    x, n = vector(), var("n", "int32")
    knot, y = Var("knot"), vector("y")
    start = Function((vector("u"), var("k", "int32")), const(np.zeros(3)))
    step = Function(
        (y, n),
        If(
            call_op("equal", n, const(0, "int32")),
            y,
            call_op("sin", Call(RefRead(knot), (y * y, n - const(1, "int32")))),
        ),
        VECTOR,
    )
    body = Let(knot, RefCreate(start), Let(Var("_"), RefWrite(knot, step), Call(RefRead(knot), (x, const(2, "int32")))))
    higher(Function((x,), body), X)


def test_tuples_of_tuples() -> None:
    x, y, t = vector(), vector("y"), Var("t")
    made = Tuple((Tuple((x, x * y)), call_op("cos", y)))
    first = TupleGetItem(t, 0)
    body = Let(t, made, TupleGetItem(first, 0) * TupleGetItem(first, 1) + TupleGetItem(t, 1))
    higher(Function((x, y), body), X, X + 1)


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_a_tuple_as_a_parameter(mode: str) -> None:
    pair = Var("pair", TupleType((VECTOR, TupleType((VECTOR, TensorType((2,), "int32"))))))
    body = TupleGetItem(pair, 0) * TupleGetItem(TupleGetItem(pair, 1), 0)
    args = (X, (X + 1, np.array([1, 2], "int32")))
    value, ((first, (second, third)),) = run(gradient(Function((pair,), body), mode=mode), args)
    np.testing.assert_allclose(value, X * (X + 1))
    np.testing.assert_allclose(first, X + 1)
    np.testing.assert_allclose(second, X)
    np.testing.assert_array_equal(third, np.zeros(2, "int32"))


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_the_adjoint_of_a_tuple_is_that_of_its_first_field(mode: str) -> None:
    x = vector()
    body = Tuple((Tuple((x * x, call_op("exp", x))), call_op("sin", x)))
    value, (dx,) = run(gradient(Function((x,), body), mode=mode), X)
    np.testing.assert_allclose(value[0][1], np.exp(X))
    np.testing.assert_allclose(value[1], np.sin(X))
    np.testing.assert_allclose(dx, 2 * X)


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_parameters_without_floats_get_zeros(mode: str) -> None:
    x, k, unused = vector(), var("k", shape=(2,), dtype="int64"), var("b", "bool")
    body = x * call_op("cast", call_op("sum", k), dtype=DTYPE)
    _, adjoints = run(gradient(Function((x, k, unused), body), mode=mode), X, np.array([2, 3]), np.array(True))
    np.testing.assert_allclose(adjoints[0], np.full(3, 5.0))
    assert [(a.dtype.name, a.shape, bool(a.any())) for a in adjoints[1:]] == [
        ("int64", (2,), False),
        ("bool", (), False),
    ]


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_a_parameter_that_is_the_result(mode: str) -> None:
    x, y = vector(), vector("y")
    value, (dx, dy) = run(gradient(Function((x, y), x), mode=mode), X, X)
    np.testing.assert_array_equal(value, X)
    np.testing.assert_array_equal(dx, np.ones(3))
    np.testing.assert_array_equal(dy, np.zeros(3))


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_a_graph_of_many_paths(mode: str) -> None:
    """x · 2^200 by doubling: each node is used twice."""
    x = y = vector()
    for _ in range(200):
        y = y + y
    derivative = gradient(Function((x,), y), mode=mode)
    value, (dx,) = run(derivative, X)
    np.testing.assert_allclose(value, X * 2.0**200)
    np.testing.assert_allclose(dx, np.full(3, 2.0**200))


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_a_deep_program(mode: str) -> None:
    x = y = vector()
    for _ in range(1000):
        y = y * number(1.0001)
    _, (dx,) = run(gradient(Function((x,), y), mode=mode), X)
    np.testing.assert_allclose(dx, np.full(3, 1.0001**1000), rtol=1e-9)


def test_parameters_of_the_function_that_is_called() -> None:
    """The parameters of a function are those of another one that calls it."""
    x, y = vector(), vector("y")
    f = Function((x,), x * x * x)
    loss = Function((x, y), Call(f, (x,)) * y + Call(f, (call_op("sin", x),)) + x)
    higher(loss, X, X + 1)


# ---- modules


def module_of(**functions: Function) -> IRModule:
    return IRModule(functions)


def test_global_functions_are_differentiated_too() -> None:
    x, y = vector(), vector("y")
    mod = module_of(cube=Function((x,), x * x * x, VECTOR), main=Function((y,), y))
    z = vector("z")
    function = Function((z,), Call(GlobalVar("cube"), (call_op("sin", z),)) + Call(GlobalVar("cube"), (z,)))
    derivative = gradient(function, mod)
    assert set(mod) == {"cube", "main", "cube_grad"}
    _, (dz,) = run(derivative, X, mod=mod)
    np.testing.assert_allclose(dz, 3 * np.sin(X) ** 2 * np.cos(X) + 3 * X**2)
    assert infer_module(mod)["cube_grad"].checked_type.ret_type == TupleType((VECTOR, RefType(VECTOR)))


def test_the_same_global_function_again_takes_the_same_name() -> None:
    x, z = vector(), vector("z")
    mod = module_of(cube=Function((x,), x * x * x, VECTOR))
    for _ in range(2):
        gradient(Function((z,), Call(GlobalVar("cube"), (z,))), mod)
    assert set(mod) == {"cube", "cube_grad"}


def test_a_name_that_is_taken_stays() -> None:
    x, z = vector(), vector("z")
    mine = Function((vector("u"),), const(np.ones(3)))
    mod = module_of(cube=Function((x,), x * x * x, VECTOR), cube_grad=mine)
    derivative = gradient(Function((z,), Call(GlobalVar("cube"), (z,))), mod)
    assert mod["cube_grad"] is mine
    np.testing.assert_allclose(run(derivative, X, mod=mod)[1][0], 3 * X**2)


def test_functions_of_a_module_may_share_variables() -> None:
    x = vector()
    mod = module_of(cube=Function((x,), x * x * x, VECTOR))
    function = Function((x,), Call(GlobalVar("cube"), (call_op("sin", x),)) + call_op("exp", x))
    higher(function, X, mod=mod)


def test_the_gradient_of_a_global_var() -> None:
    x = vector()
    mod = module_of(cube=Function((x,), x * x * x))
    np.testing.assert_allclose(run(gradient(GlobalVar("cube"), mod), X, mod=mod)[1][0], 3 * X**2)


def even_and_odd() -> IRModule:
    """even(x, n) = x · odd(x, n - 1), odd(x, n) = sin(even(x, n - 1)), 1 at n = 0."""
    functions = {}
    for name, other in (("even", "odd"), ("odd", "even")):
        x, n = vector(), var("n", "int32")
        again = Call(GlobalVar(other), (x, n - const(1, "int32")))
        step = x * again if name == "even" else call_op("sin", again)
        functions[name] = Function((x, n), If(call_op("equal", n, const(0, "int32")), x, step), VECTOR)
    return IRModule(functions)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_functions_that_call_one_another(n: int) -> None:
    x = vector()
    higher(Function((x,), Call(GlobalVar("even"), (x, const(n, "int32")))), X, mod=even_and_odd())


def test_the_second_derivative_of_a_global_function() -> None:
    x, z, u = vector(), vector("z"), vector("u")
    mod = module_of(cube=Function((x,), x * x * x, VECTOR))
    first = gradient(Function((z,), Call(GlobalVar("cube"), (z,))), mod)
    slope = Function((u,), TupleGetItem(TupleGetItem(Call(first, (u,)), 1), 0))
    np.testing.assert_allclose(run(gradient(slope, mod), X, mod=mod)[1][0], 6 * X)


# ---- data types


def lists() -> tuple[IRModule, Constructor, Constructor, GlobalTypeVar]:
    a, name = TypeVar("a"), GlobalTypeVar("List")
    nil = Constructor("Nil", (), name)
    cons = Constructor("Cons", (a, TypeCall(name, (a,))), name)
    mod = IRModule()
    mod[name] = TypeData(name, (a,), (nil, cons))
    # fold(f, z, l) = z for Nil, f(x, fold(f, z, rest)) for Cons(x, rest)
    b = TypeVar("b")
    f, z, given = Var("f", FuncType((a, b), b)), Var("z", b), Var("l", TypeCall(name, (a,)))
    x, rest = Var("x", a), Var("rest", TypeCall(name, (a,)))
    folded = Call(GlobalVar("fold"), (f, z, rest))
    body = Match(
        given,
        (
            Clause(PatternConstructor(nil, ()), z),
            Clause(PatternConstructor(cons, (PatternVar(x), PatternVar(rest))), Call(f, (x, folded))),
        ),
    )
    mod["fold"] = Function((f, z, given), body, b, (a, b))
    return mod, nil, cons, name


def test_recursion_over_a_list() -> None:
    mod, nil, cons, _ = lists()
    x, p, q = vector(), vector("p"), vector("q")
    values = cons(x, cons(call_op("sin", x), cons(x * x, nil())))
    step = Function((p, q), p * q + p)
    higher(Function((x,), Call(GlobalVar("fold"), (step, x, values))), X, mod=mod)
    assert set(mod.type_definitions) == {GlobalTypeVar("List")}  # List holds pairs as well


def test_lists_of_the_prelude() -> None:
    """foldl over map over rev, of three vectors; partial evaluation leaves straight code of it."""
    mod = IRModule()
    import_from_std(mod, "prelude.rly")
    nil, cons = (next(c for c in mod[GlobalTypeVar("List")].constructors if c.name == n) for n in ("Nil", "Cons"))
    x, a, b, u = vector(), vector("a"), vector("b"), vector("u")
    values = cons(x, cons(call_op("sin", x), cons(x * x, nil())))
    mapped = Call(GlobalVar("map"), (Function((u,), call_op("exp", u)), Call(GlobalVar("rev"), (values,))))
    function = Function((x,), Call(GlobalVar("foldl"), (Function((a, b), a * b + a), x, mapped)))
    higher(function, X, mod=mod)
    derivative = gradient(function, mod)
    mod["main"] = derivative
    straight = DeadCodeElimination(inline_once=True, ignore_impurity=True)(PartialEvaluate()(mod))
    assert not {Match, RefRead, RefWrite, GlobalVar} & {type(node) for node in post_order(straight["main"].body)}
    np.testing.assert_allclose(run(straight["main"], X)[1][0], run(derivative, X, mod=mod)[1][0], rtol=1e-12)


def test_a_constructor_as_a_function() -> None:
    """fold(Cons, Nil, l) copies a list."""
    mod, nil, cons, _ = lists()
    x, p, q = vector(), vector("p"), vector("q")
    values = cons(x, cons(call_op("sin", x), nil()))
    copied = Call(GlobalVar("fold"), (cons, nil(), values))
    step = Function((p, q), p * q + p)
    higher(Function((x,), Call(GlobalVar("fold"), (step, x, copied))), X, mod=mod)


def shapes() -> tuple[IRModule, Constructor, Constructor]:
    """A data type that names tensors itself, and functions: ``Plain(v)``, ``Made(fn, inner)``."""
    name = GlobalTypeVar("Shape")
    plain = Constructor("Plain", (VECTOR,), name)
    made = Constructor("Made", (FuncType((VECTOR,), VECTOR), name), name)
    mod = IRModule()
    mod[name] = TypeData(name, (), (plain, made))
    return mod, plain, made


def test_a_data_type_of_tensors_and_functions_becomes_one_of_pairs() -> None:
    mod, plain, made = shapes()
    value, x, v, f, inner = Var("s", plain.belong_to), vector(), vector("v"), Var("f"), Var("inner")
    body = Match(
        value,
        (
            Clause(PatternConstructor(plain, (PatternVar(v),)), v * v),
            Clause(
                PatternConstructor(made, (PatternVar(f), PatternVar(inner))),
                Call(f, (Call(GlobalVar("area"), (inner,)),)),
            ),
        ),
    )
    mod["area"] = Function((value,), body, VECTOR)
    u = vector("u")
    nested = made(Function((u,), call_op("sin", u) * x), plain(x))
    higher(Function((x,), Call(GlobalVar("area"), (nested,))), X, mod=mod)
    assert {n.name for n in mod.type_definitions} == {"Shape", "Shape_grad"}
    infer_module(mod)


def test_match_on_a_tuple_with_a_wildcard() -> None:
    x, u, w = vector(), vector("u"), vector("w")
    pair = Tuple((x * x, Tuple((call_op("sin", x), x))))
    pattern = PatternTuple((PatternVar(u), PatternTuple((PatternVar(w), PatternWildcard()))))
    higher(Function((x,), Match(pair, (Clause(pattern, u * w),))), X)


def test_a_result_that_is_no_tensor_is_refused() -> None:
    mod, nil, cons, _ = lists()
    x = vector()
    with pytest.raises(DifferentiationError, match="a value of type TypeCall has no adjoint"):
        gradient(Function((x,), cons(x, nil())), mod)


# ---- checkpoints


def checkpoint(x: Any) -> Any:
    return call_op("annotation.checkpoint", x)


def operators(expr: Any) -> list[str]:
    return [n.op.name for n in post_order(expr) if isinstance(n, Call) and hasattr(n.op, "signature")]


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_checkpoints_do_not_change_the_gradient(mode: str) -> None:
    x, y = vector(), vector("y")
    body = checkpoint(call_op("sin", checkpoint(x * y) * x)) * call_op("exp", checkpoint(x))
    check_gradient(Function((x, y), body), (X, X + 1), modes=(mode,))


def test_a_checkpoint_of_what_others_use_too() -> None:
    x = vector()
    shared = call_op("sin", x)
    higher(Function((x,), checkpoint(shared) * x + shared * checkpoint(Tuple((shared, x)).fields[0])), X)


def test_what_a_checkpoint_holds_is_computed_again() -> None:
    x = vector()
    without = gradient(Function((x,), call_op("sin", call_op("exp", x))))
    with_one = gradient(Function((x,), call_op("sin", checkpoint(call_op("exp", x)))))
    assert operators(without).count("exp") == 1
    assert operators(with_one).count("exp") == 2


def test_a_checkpoint_of_several_results_and_of_a_closure() -> None:
    x, y, f, p = vector(), vector("y"), Var("f"), Var("p")
    pair = checkpoint(Tuple((x * y, call_op("sin", x))))
    called = checkpoint(Call(f, (x,)) * x)
    body = Let(
        f,
        Function((z := vector("z"),), z * y),
        Let(p, pair, TupleGetItem(p, 0) * TupleGetItem(p, 1) + called),
    )
    higher(Function((x, y), body), X, X + 1)
