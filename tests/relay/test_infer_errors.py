"""What inference says of programs that have no types: all mistakes, each with its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from pullback.ir import IRModule, Span, UserError
from pullback.ir.errors import ArgumentError, DTypeError, NameNotFound, ShapeError
from pullback.relay.adt import Clause, Constructor, Match, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from pullback.relay.expr import (
    Call,
    Expr,
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
from pullback.relay.infer import TypeInferenceError, infer_expr, infer_module
from pullback.relay.op.registry import get
from pullback.relay.ty import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, TypeCall, TypeVar
from tests.relay.lists import Lists

LISTS = Lists()
X = var("x", shape=(2, 3))
V = var("v", shape=(3,))
C = var("c", "bool")
F = var("f", FuncType((TensorType((3,)),), TensorType((3,))))
G = GlobalVar("g")
XS = var("xs", LISTS.of(TensorType((3,))))


def parameter(name: str, *shape: int) -> Var:
    return var(name, shape=shape)


def polymorphic() -> Function:
    a = TypeVar("a")
    p, q = var("p", a), var("q", a)
    return Function((p, q), p, a, (a,))


CASES: dict[str, tuple[type, str, Callable[[], Expr]]] = {
    "shapes of an operator": (
        ShapeError,
        "add: the shapes (2, 3) and (4,) do not broadcast, "
        "in add(%x, %w) of Tensor[(2, 3), float32], Tensor[(4), float32]\n"
        "hint: sizes are compared from the last axis on: they must be equal, or one of them 1",
        lambda: X + parameter("w", 4),
    ),
    "dtypes of an operator": (
        DTypeError,
        "add: the operands must have the same dtype, got float32 and int32, "
        "in add(%x, 1) of Tensor[(2, 3), float32], int32\n"
        "hint: nothing is promoted implicitly: relay.cast(x, dtype) converts one of them",
        lambda: X + const(1),
    ),
    "number of an operator's arguments": (
        TypeInferenceError,
        "add takes (lhs, rhs), got 1 in add(%x)",
        lambda: Call(get("add"), (X,)),
    ),
    "an operator as a value": (
        TypeInferenceError,
        "the operator tanh is used as a value\nhint: write a function that calls it: fn (%x) { tanh(%x) }",
        lambda: Tuple((get("tanh"),)),
    ),
    "shape of an argument": (
        ShapeError,
        "argument 1 of %f(%x) is Tensor[(2, 3), float32], expected Tensor[(3), float32]: 2 axes against 1 axis",
        lambda: F(X),
    ),
    "size of an argument": (
        ShapeError,
        "argument 1 of %f(%w) is Tensor[(4), float32], expected Tensor[(3), float32]: axis 0 is 4 against 3",
        lambda: F(parameter("w", 4)),
    ),
    "dtype of an argument": (
        DTypeError,
        "argument 1 of %f(%i) is Tensor[(3), int32], expected Tensor[(3), float32]: dtype int32 against float32",
        lambda: F(var("i", shape=(3,), dtype="int32")),
    ),
    "kind of an argument": (
        TypeInferenceError,
        "argument 1 of %f((%v,)) is (Tensor[(3), float32],), expected Tensor[(3), float32]: "
        "(Tensor[(3), float32],) against Tensor[(3), float32]",
        lambda: F(Tuple((V,))),
    ),
    "number of arguments": (
        TypeInferenceError,
        "%f takes 1 argument, got 2 in %f(%v, %v)\nhint: its type is fn (Tensor[(3), float32]) -> Tensor[(3), float32]",
        lambda: F(V, V),
    ),
    "number of type arguments": (
        TypeInferenceError,
        "%f has 0 type parameters, got 1 types in %f(%v)",
        lambda: Call(F, (V,), type_args=(TensorType((3,)),)),
    ),
    "two types for one parameter": (
        DTypeError,
        "argument 2 of fn (%p, %q) {…}(%v, 1) is int32, expected Tensor[(3), float32]: dtype int32 against float32",
        lambda: polymorphic()(V, const(1)),
    ),
    "call of no function": (
        TypeInferenceError,
        "%x is no function, but Tensor[(2, 3), float32], in %x(%v)",
        lambda: X(V),
    ),
    "condition": (
        DTypeError,
        "the condition of an If has to be a scalar bool, %x is Tensor[(2, 3), float32]: dtype float32 against bool",
        lambda: If(X, V, V),
    ),
    "condition with axes": (
        ShapeError,
        "the condition of an If has to be a scalar bool, %m is Tensor[(1), bool]: 1 axis against 0 axes",
        lambda: If(var("m", shape=(1,), dtype="bool"), V, V),
    ),
    "branches": (
        ShapeError,
        "the branches of if (%c) {…} else {…} give Tensor[(2, 3), float32] and Tensor[(3), float32]",
        lambda: If(C, X, V),
    ),
    "branches of dtypes": (
        DTypeError,
        "the branches of if (%c) {…} else {…} give Tensor[(3), float32] and int32",
        lambda: If(C, V, const(1)),
    ),
    "field that a tuple lacks": (
        TypeInferenceError,
        "a tuple of 2 fields has no field 2, in (%x, %v).2",
        lambda: TupleGetItem(Tuple((X, V)), 2),
    ),
    "field before the first": (
        TypeInferenceError,
        "a tuple of 1 field has no field -1, in (%x,).-1",
        lambda: TupleGetItem(Tuple((X,)), -1),
    ),
    "field of no tuple": (
        TypeInferenceError,
        "%x is no tuple, but Tensor[(2, 3), float32], in %x.0",
        lambda: TupleGetItem(X, 0),
    ),
    "read of no reference": (
        TypeInferenceError,
        "%x is no reference, but Tensor[(2, 3), float32], in ref_read(%x): Tensor[(2, 3), float32] against ref(_)",
        lambda: RefRead(X),
    ),
    "write of another type": (
        ShapeError,
        "the cell ref(%x) holds Tensor[(2, 3), float32], and is given Tensor[(3), float32] in ref_write(ref(%x), %v): "
        "1 axis against 2 axes",
        lambda: RefWrite(RefCreate(X), V),
    ),
    "declared type of a let": (
        DTypeError,
        "%y is declared as int32, its value is Tensor[(3), float32]: dtype float32 against int32",
        lambda: Let(y := var("y", "int32"), V, y),
    ),
    "declared result": (
        ShapeError,
        "a function that is declared to return Tensor[(3), float32] returns Tensor[(2, 3), float32]: "
        "2 axes against 1 axis",
        lambda: Function((), X, TensorType((3,))),
    ),
    "parameter that nothing determines": (
        TypeInferenceError,
        "the type of %p cannot be inferred\nhint: declare it: relay.var(name, type)",
        lambda: Function((p := var("p"),), call_op("tanh", p)),
    ),
    "result that nothing determines": (
        TypeInferenceError,
        "the type of %f() cannot be inferred\n"
        "hint: declare the types of its variables, or the ret_type of the function that it calls",
        lambda: Let(f := var("f"), Function((), f()), f()),
    ),
    "a type that is a part of itself": (
        TypeInferenceError,
        "argument 1 of %h(%h) is fn (_) -> _, expected _: a type cannot be a part of itself: fn (_) -> _",
        lambda: Function((h := var("h"),), h(h)),
    ),
    "unknown global function": (
        NameNotFound,
        "there is no global function @maps: did you mean @map?\nhint: the module has @map",
        lambda: GlobalVar("maps")(X),
    ),
    "constructor of another module": (
        NameNotFound,
        "the module does not define Tree, the type of Leaf\n"
        "hint: it defines List; module[type] = TypeData(type, …) adds one",
        lambda: Call(_leaf(), ()),
    ),
    "fields of a constructor": (
        TypeInferenceError,
        "Cons takes 2 arguments, got 1 in Cons(%v)\nhint: its type is fn [A](A, List[A]) -> List[A]",
        lambda: Call(LISTS.cons, (V,)),
    ),
    "elements of two types": (
        ShapeError,
        "argument 2 of Cons(%x, Cons(%v, …)) is List[Tensor[(3), float32]], expected List[Tensor[(2, 3), float32]]: "
        "1 axis against 2 axes",
        lambda: Call(LISTS.cons, (X, Call(LISTS.cons, (V, Call(LISTS.nil, ()))))),
    ),
    "fields of a pattern": (
        TypeInferenceError,
        "Cons has 2 fields, its pattern has 1",
        lambda: Match(XS, (Clause(PatternConstructor(LISTS.cons, (PatternWildcard(),)), V),), complete=False),
    ),
    "pattern of another type": (
        TypeInferenceError,
        "Cons makes values of List, it cannot match Tensor[(3), float32]: Tensor[(3), float32] against List[_]",
        lambda: Match(V, (Clause(LISTS.pattern(var("a"), var("b")), X),), complete=False),
    ),
    "pattern of another tuple": (
        TypeInferenceError,
        "a pattern for a tuple of 1 cannot match (Tensor[(3), float32], Tensor[(3), float32]): "
        "a tuple of 2 against one of 1",
        lambda: Match(Tuple((V, V)), (Clause(PatternTuple((PatternVar(var("a")),)), X),)),
    ),
    "right sides of clauses": (
        ShapeError,
        "the clauses of match (%xs) {…} give Tensor[(2, 3), float32] and Tensor[(3), float32]",
        lambda: LISTS.by_cases(XS, X, head := var("head"), var("tail"), head),
    ),
    "values that no clause covers": (
        TypeInferenceError,
        "match (%xs) {…} does not cover Nil\nhint: add clauses for them, or say Match(…, complete=False)",
        lambda: Match(XS, (Clause(LISTS.pattern(head := var("head"), var("tail")), head),)),
    ),
    "match without clauses": (
        TypeInferenceError,
        "match (%xs) {…} has no clauses, so it gives no value",
        lambda: Match(XS, ()),
    ),
    "declared type of a pattern's variable": (
        TypeInferenceError,
        "%a is declared as (), and stands for Tensor[(3), float32]: Tensor[(3), float32] against ()",
        lambda: Match(V, (Clause(PatternVar(a := var("a", TupleType(()))), a),)),
    ),
    "types for a data type": (
        UserError,
        "List is applied to 1 types, got 2",
        lambda: Function((var("l", TypeCall(LISTS.name, (TensorType(()), TensorType(())))),), X),
    ),
    "unknown data type": (
        NameNotFound,
        "there is no data type Lits\nhint: the module has List",
        lambda: Function((var("l", TypeCall(GlobalTypeVar("Lits"), ())),), X),
    ),
    "what an operator gives": (
        ShapeError,
        "add(%p, %x) gives Tensor[(2, 3), float32], and stands where Tensor[(3), float32] is expected: "
        "2 axes against 1 axis",
        lambda: Function((p := var("p"),), F(p + X))(X),
    ),
    "a field, where the tuple is found later": (
        ShapeError,
        "%p.0 is Tensor[(2, 3), float32], and stands where Tensor[(3), float32] is expected: 2 axes against 1 axis",
        lambda: Function((p := var("p"),), F(TupleGetItem(p, 0)))(Tuple((X,))),
    ),
    "what a cell holds": (
        DTypeError,
        "argument 1 of %r(%cell) is ref(Tensor[(3), float32]), expected ref(int32): dtype float32 against int32",
        lambda: var("r", FuncType((RefType(TensorType((), "int32")),), TensorType(())))(
            var("cell", RefType(TensorType((3,))))
        ),
    ),
}


def _leaf() -> Constructor:
    return Constructor("Leaf", (), GlobalTypeVar("Tree"))


LISTS.add_map()


def without_places(error: UserError) -> str:
    """The message and the hints, without the lines that show the program."""
    return re.sub(r"\n  --> .*\n .*\n +\^+", "", str(error))


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    kind, message, program = CASES[name]
    with pytest.raises(UserError) as caught:
        infer_expr(program(), LISTS.module)
    said = without_places(caught.value)
    assert said == message or ("hint:" not in message and said.startswith(f"{message}\nhint: "))
    assert isinstance(caught.value, kind)


@pytest.mark.parametrize("name", ["size of an argument", "field of no tuple", "dtypes of an operator"])
def test_place(name: str, tmp_path: Any) -> None:
    """The source line of the node that is to blame stands in the message."""
    path = tmp_path / "program.py"
    path.write_text("first\n  second line\n")
    expr = CASES[name][2]()
    span = Span(str(path), 2, 2, 8)
    copy = object.__new__(type(expr))
    vars(copy).update(vars(expr), span=span)
    with pytest.raises(UserError) as caught:
        infer_expr(copy, LISTS.module)
    assert caught.value.span == span and "second line\n    ^^^^^^\n" in f"{caught.value}\n"


def test_place_of_what_is_built_in_python() -> None:
    """The line that builds the expression, with a caret under it."""
    with pytest.raises(UserError) as caught:
        infer_expr(If(X, V, V))
    assert caught.value.span.file == __file__
    assert '    X = var("x", shape=(2, 3))\n        ^^^^^^^^^^^^^^^^^^^^^^\n' in str(caught.value)  # the condition


def test_all_mistakes_at_once() -> None:
    w = parameter("w", 4)
    with pytest.raises(TypeInferenceError) as caught:
        infer_expr(Tuple((X + w, F(w), If(C, X, V), TupleGetItem(X, 0))))
    kinds = [type(e) for e in caught.value.errors]
    assert kinds == [ShapeError, ShapeError, ShapeError, TypeInferenceError]
    text = str(caught.value)
    assert text.startswith("the program has 4 mistakes\n\n1. add: the shapes (2, 3) and (4,) do not broadcast")
    assert "\n\n4. %x is no tuple" in text


def test_mistakes_of_all_functions_of_a_module() -> None:
    a, b = parameter("a", 3), parameter("b", 3)
    module = IRModule({"f": Function((a,), TupleGetItem(a, 0)), "g": Function((b,), b(b))})
    with pytest.raises(TypeInferenceError) as caught:
        infer_module(module)
    assert [e.message for e in caught.value.errors] == [
        "%a is no tuple, but Tensor[(3), float32], in %a.0",
        "%b is no function, but Tensor[(3), float32], in %b(%b)",
    ]
    assert all(e.span.file == __file__ for e in caught.value.errors)


@pytest.mark.parametrize("follows", ["operator", "field", "call", "match", "if"])
def test_a_mistake_is_reported_once(follows: str) -> None:
    """What has no type because of a mistake is no other mistake."""
    wrong = X + parameter("w", 4)
    program = {
        "operator": lambda: call_op("tanh", wrong) + V,
        "field": lambda: TupleGetItem(wrong, 1) + V,
        "call": lambda: wrong(V),
        "match": lambda: Match(wrong, (Clause(PatternVar(a := var("a")), a + V),)),
        "if": lambda: If(C, wrong, call_op("tanh", wrong)),
    }[follows]()
    with pytest.raises(ShapeError, match="do not broadcast"):
        infer_expr(program)


def test_variables_that_nothing_binds() -> None:
    module = IRModule({"main": Function((V,), V + X)})
    with pytest.raises(UserError) as caught:
        infer_module(module)
    assert caught.value.message == "%x in @main is not bound"
    assert caught.value.hint == "make it a parameter of @main, or bind it by a Let"
    assert infer_expr(module["main"]).checked_type.ret_type == TensorType((2, 3))


def test_variables_outside_of_their_scopes() -> None:
    y = var("y")
    module = IRModule({"main": Function((V,), Tuple((Let(y, V, y), y)))})
    with pytest.raises(UserError, match="%y is used outside of its scope"):
        infer_module(module)


def test_type_variables_that_nothing_binds() -> None:
    p = var("p", TypeVar("a"))
    with pytest.raises(TypeInferenceError, match="the type variable a in @main is not bound"):
        infer_module(IRModule({"main": Function((p,), p)}))


def test_a_function_of_the_graph_ir() -> None:
    from pullback import relax

    builder = relax.BlockBuilder()
    p = relax.Var("p", relax.TensorStructInfo((3,), "float32"))
    with builder.function("g", [p]):
        with builder.dataflow():
            out = builder.emit_output(p)
        builder.emit_func_output(out)
    module = builder.get()
    module["main"] = Function((V,), G(V))
    with pytest.raises(TypeInferenceError, match="@g is a Function"):
        infer_module(module)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Let(const(1), X, X), "a Let binds a relay.Var, got Constant"),
        (lambda: PatternVar("x"), "a PatternVar binds a relay.Var, got str"),
        (lambda: Clause(X, X), "a clause begins with a pattern, got Var"),
        (lambda: RefCreate("x"), "str is no relay expression"),
        (lambda: Match(object(), ()), "object is no relay expression"),
    ],
)
def test_nodes_are_made_of_what_they_hold(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()
