"""Cells for tensors: the same results, and neither zeros nor ones where nobody needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relay.adt import Clause, Constructor, Match, PatternConstructor, PatternVar, TypeData
from pullback.relay.evaluate import Interpreter
from pullback.relay.evaluate.arrays import NumPyArrays
from pullback.relay.expr import (
    Call,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    Tuple,
    TupleGetItem,
    Var,
    call_op,
    const,
    var,
)
from pullback.relay.infer import infer_module
from pullback.relay.op import get
from pullback.relay.prelude import import_from_std
from pullback.relay.transform import LazyGradientInit, gradient
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, TypeVar
from tests.relay.differences import arrays

DTYPE = "float64"
VECTOR = TensorType((3,), DTYPE)
X = np.array([0.5, -1.25, 2.0])


def vector(name: str = "x") -> Var:
    return var(name, VECTOR)


class Counted(NumPyArrays):
    """NumPy's arrays, with the number of calls of each operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def operator(self, op: Any, *rest: Any) -> Callable[[Sequence[Any]], Any]:
        inner = super().operator(op, *rest)

        def call(values: Sequence[Any]) -> Any:
            self.calls[op.name] += 1
            return inner(values)

        return call


def counted(mod: IRModule, *args: Any) -> tuple[Any, Counter[str]]:
    kinds = Counted()
    return arrays(Interpreter(mod, kinds).function(GlobalVar("main"))(*args)), kinds.calls


def check(function: Function, *args: Any, mod: IRModule | None = None) -> tuple[Counter[str], Counter[str]]:
    """The same type and results; the operators that ran before and after."""
    before = IRModule() if mod is None else mod.copy()
    before["main"] = function
    before = infer_module(before)
    after = LazyGradientInit()(before)
    assert after["main"].checked_type == before["main"].checked_type
    one, calls = counted(before, *args)
    other, lazy_calls = counted(after, *args)
    _same(one, other)
    return calls, lazy_calls


def _same(one: Any, other: Any) -> None:
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            _same(a, b)
        return
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    np.testing.assert_array_equal(one, other)


def test_zeros_are_neither_made_nor_added() -> None:
    x = vector()
    before, after = check(Function((x,), call_op("zeros_like", x) + call_op("exp", x)), X)
    assert before == {"zeros_like": 1, "add": 1, "exp": 1}
    assert after == {"exp": 1}


def test_ones_are_no_factors_and_zeros_stay_zeros() -> None:
    x = vector()
    ones, zeros = call_op("ones", shape=(3,), dtype=DTYPE), call_op("zeros", shape=(3,), dtype=DTYPE)
    assert check(Function((x,), call_op("sin", x) * ones), X)[1] == {"sin": 1}
    assert check(Function((x,), call_op("sin", x) * zeros), X)[1] == {"sin": 1, "zeros": 1}
    assert check(Function((x,), ones * x), X)[1] == {}


def test_what_broadcasts_is_computed() -> None:
    """A sum with zeros of another shape is no copy."""
    x = vector()
    wide = call_op("zeros", shape=(2, 3), dtype=DTYPE)
    assert check(Function((x,), x + wide), X)[1] == {"zeros": 1, "add": 1}


def test_a_gradient_makes_no_zeros_that_it_adds_to() -> None:
    x = vector()
    before, after = check(gradient(Function((x,), call_op("sin", x * x))), X)
    assert before["zeros_like"] == 3 and before["add"] == 3
    assert after["zeros"] == 0 and after["zeros_like"] == 0 and after["add"] == 1


def test_if_let_tuples_and_closures() -> None:
    x, y, f, t = vector(), vector("y"), Var("f"), vector("t")
    inner = If(call_op("less", call_op("sum", y), const(0.0, DTYPE)), t * x, t + call_op("ones_like", t))
    body = Let(f, Function((t,), inner), Tuple((f(x), Tuple((f(y), call_op("argmax", x))))))
    for sign in (1, -1):
        check(Function((x, y), body), X, sign * X)


def test_operators_of_tuples() -> None:
    x = vector()
    parts = call_op("split", call_op("concatenate", Tuple((x, call_op("zeros_like", x)))), 2)
    check(Function((x,), parts[0] * parts[1] + parts[0]), X)


def test_recursion_and_references_inside() -> None:
    mod, x, n = IRModule(), vector(), var("n", "int32")
    again = Call(GlobalVar("power"), (x, n - const(1, "int32")))
    stop = call_op("equal", n, const(0, "int32"))
    mod["power"] = Function((x, n), If(stop, call_op("ones_like", x), x * again), VECTOR)
    y, r = vector("y"), Var("r")
    body = Let(r, RefCreate(Call(GlobalVar("power"), (y, const(3, "int32")))), RefRead(r) + y)
    before, after = check(Function((y,), body), X, mod=mod)
    assert before["multiply"] == 3 and after["multiply"] == 2
    derivative = gradient(Function((y,), body), mod)
    check(derivative, X, mod=mod)


def test_a_data_type_as_a_parameter_and_as_a_result() -> None:
    """Lists of pairs, by the functions of the prelude."""
    mod = IRModule()
    import_from_std(mod, "prelude.rly")
    listed = mod.get_global_type_var("List")
    nil, cons = (next(c for c in mod[listed].constructors if c.name == name) for name in ("Nil", "Cons"))
    x = vector()
    pair = TupleType((VECTOR, VECTOR))
    given = Var("given", listed(pair))
    p = Var("p", pair)
    product = Function((p,), TupleGetItem(p, 0) * TupleGetItem(p, 1))
    mod["products"] = Function((given,), Call(GlobalVar("map"), (product, given)), listed(VECTOR))
    values = cons(Tuple((x, call_op("ones_like", x))), cons(Tuple((x, x)), nil()))
    a, b = vector("a"), vector("b")
    total = Call(
        GlobalVar("foldl"),
        (Function((a, b), a + b), call_op("zeros_like", x), Call(GlobalVar("products"), (values,))),
    )
    before, after = check(Function((x,), total), X, mod=mod)
    assert (before["multiply"], after["multiply"]) == (2, 1)
    lazy = LazyGradientInit()(infer_module(_with_main(mod, Function((vector("u"),), const(X)))))
    assert lazy["products"].checked_type == FuncType((listed(pair),), listed(VECTOR))
    evaluated = Interpreter(lazy)
    made = Function((), cons(Tuple((const(X), const(X))), nil()))
    found = evaluated.function(GlobalVar("products"))(evaluated.function(made)())
    np.testing.assert_array_equal(found.fields[0].numpy(), X * X)


def _with_main(mod: IRModule, function: Function) -> IRModule:
    result = mod.copy()
    result["main"] = function
    return result


def test_a_data_type_that_names_tensors() -> None:
    name = GlobalTypeVar("Box")
    box = Constructor("Box", (VECTOR, FuncType((VECTOR,), VECTOR)), name)
    mod = IRModule()
    mod[name] = TypeData(name, (), (box,))
    given, v, f = Var("given", name), Var("v"), Var("f")
    clause = Clause(PatternConstructor(box, (PatternVar(v), PatternVar(f))), Call(f, (v,)))
    mod["open"] = Function((given,), Match(given, (clause,)), VECTOR)
    x, u = vector(), vector("u")
    boxed = box(call_op("zeros_like", x) + x, Function((u,), u * x))
    check(Function((x,), Call(GlobalVar("open"), (boxed,))), X, mod=mod)


def test_a_function_as_a_parameter() -> None:
    x, f = vector(), Var("f", FuncType((VECTOR,), VECTOR))
    mod = LazyGradientInit()(infer_module(IRModule({"main": Function((f, x), f(f(x)) + call_op("zeros_like", x))})))
    u = vector("u")
    twice = Interpreter(mod).function(Function((), Function((u,), u * const(2.0, DTYPE))))()
    np.testing.assert_array_equal(Interpreter(mod).function(GlobalVar("main"))(twice, X).numpy(), 4 * X)


def test_sizes_that_are_not_known() -> None:
    x = var("x", TensorType((AnySize(),), DTYPE))
    before, after = check(Function((x,), call_op("zeros_like", x) + call_op("zeros_like", x)), X)
    assert before["zeros_like"] == 2 and after["zeros_like"] == 1


def test_functions_of_any_type_keep_their_bodies() -> None:
    mod, a, x = IRModule(), TypeVar("a"), vector()
    v, r = Var("v", a), Var("r", RefType(VECTOR))
    mod["same"] = Function((v,), v, a, (a,))
    mod["read"] = Function((r,), RefRead(r), VECTOR)
    body = Call(GlobalVar("same"), (Call(GlobalVar("read"), (RefCreate(x),)),)) + call_op("zeros_like", x)
    assert check(Function((x,), body), X, mod=mod)[1] == {}
    after = LazyGradientInit()(infer_module(_with_main(mod, Function((x,), x))))
    assert isinstance(after["read"].body, RefRead) and isinstance(after["same"].body, Var)


def test_twice_is_as_good_as_once() -> None:
    x = vector()
    mod = infer_module(IRModule({"main": Function((x,), x * x + call_op("zeros_like", x))}))
    twice = LazyGradientInit()(LazyGradientInit()(mod))
    np.testing.assert_array_equal(counted(twice, X)[0], X * X)


def test_an_operator_as_a_value_is_refused() -> None:
    x, f = vector(), Var("f", FuncType((VECTOR,), VECTOR))
    apply = Function((f, x), f(x))
    mod = IRModule({"main": Function((vector("y"),), Call(apply, (get("exp"), const(X))))})
    with pytest.raises(UserError):
        LazyGradientInit()(mod)
