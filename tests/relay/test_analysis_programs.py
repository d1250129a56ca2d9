"""Questions about programs: kinds, matches, call graphs, features, normal forms, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.ir import IRModule, UserError
from pullback.ir.errors import ArgumentError, NameNotFound
from pullback.ir.node import structural_equal
from pullback.relay import analysis
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from pullback.relay.analysis import (
    CallGraph,
    Feature,
    check_basic_block_normal_form,
    check_constant,
    check_kind,
    detect_feature,
    unmatched_cases,
)
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
    call_op,
    const,
    var,
)
from pullback.relay.infer import infer_expr, infer_module
from pullback.relay.op.registry import get
from pullback.relay.testing import mobilenet
from pullback.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeRelation,
    TypeVar,
)
from tests.relay.lists import Lists

LISTS = Lists()
T = TensorType((3,))
SHAPE = TypeVar("s", TypeKind.ShapeVar)
RELATION = TypeRelation("same", (T, T), 1)

# kinds


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (T, TypeKind.Type),
        (TupleType(()), TypeKind.Type),
        (TupleType((T, RefType(T))), TypeKind.Type),
        (FuncType((T, TypeVar("a")), T), TypeKind.Type),
        (FuncType((T,), T, (), (RELATION,)), TypeKind.Type),
        (RELATION, TypeKind.Constraint),
        (SHAPE, TypeKind.ShapeVar),
        (IncompleteType(TypeKind.ShapeVar), TypeKind.ShapeVar),
        (LISTS.name, TypeKind.AdtHandle),
        (LISTS.of(T), TypeKind.Type),
        (LISTS.module[LISTS.name], TypeKind.TypeData),
    ],
)
def test_kind(type_: Type, kind: TypeKind) -> None:
    assert check_kind(type_) == kind == check_kind(type_, LISTS.module)


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (TupleType((T, SHAPE)), "field 1 of a tuple has to be a type, got one of kind ShapeVar"),
        (FuncType((SHAPE,), T), "argument 1 of a function has to be a type, got one of kind ShapeVar"),
        (FuncType((T,), RELATION), "the result of a function has to be a type, got one of kind Constraint"),
        (FuncType((T,), T, (), (T,)), "a function's type_constraints have to be TypeRelations"),  # type: ignore[arg-type]
        (RefType(LISTS.name), "what a reference holds has to be a type, got one of kind AdtHandle"),
        (TypeRelation("same", (T, SHAPE), 1), "argument 2 of a relation has to be a type, got one of kind ShapeVar"),
        (
            TypeData(GlobalTypeVar("Tree", TypeKind.Type), (), ()),
            "the name of a data type has to be of kind AdtHandle, got Type",
        ),
        (TypeCall(T, ()), "only data types are applied to types, got TensorType"),
        (TypeCall(TypeVar("a"), ()), "only data types are applied to types, got one of kind Type"),
        (TypeCall(LISTS.name, (SHAPE,)), "argument 1 of List has to be a type, got one of kind ShapeVar"),
        (TypeCall(LISTS.name, ()), "List is applied to 1 types, got 0"),
        (TypeCall(GlobalTypeVar("Tree"), ()), "there is no data type Tree\nhint: the module has List"),
        (
            TypeData(LISTS.name, (), (Constructor("C", (), GlobalTypeVar("Tree")),)),
            "C belongs to Tree, not List",
        ),
        (TypeData(LISTS.name, (SHAPE,), ()), "the parameter s of List has to be a type, got one of kind ShapeVar"),
    ],
)
def test_wrong_kind(type_: Type, message: str) -> None:
    with pytest.raises(UserError) as caught:
        check_kind(type_, LISTS.module)
    assert str(caught.value) == message


# matches

ANY = PatternWildcard()


def cons(head: Pattern = ANY, tail: Pattern = ANY) -> PatternConstructor:
    return PatternConstructor(LISTS.cons, (head, tail))


NIL = PatternConstructor(LISTS.nil)


@pytest.mark.parametrize(
    ("patterns", "missing"),
    [
        ([ANY], []),
        ([PatternVar(var("x"))], []),
        ([NIL, cons()], []),
        ([cons(), ANY], []),
        ([NIL], ["Cons(_, _)"]),
        ([cons()], ["Nil"]),
        ([cons(ANY, NIL)], ["Nil", "Cons(_, Cons(_, _))"]),
        ([NIL, cons(ANY, cons(ANY, ANY))], ["Cons(_, Nil)"]),
        ([PatternTuple((NIL, ANY)), PatternTuple((ANY, NIL))], ["(Cons(_, _), Cons(_, _))"]),
        ([PatternTuple((NIL, NIL))], ["(Nil, Cons(_, _))", "(Cons(_, _), Nil)", "(Cons(_, _), Cons(_, _))"]),
        ([cons(NIL), cons(cons()), NIL], []),
        ([], ["_"]),
    ],
)
def test_unmatched_cases(patterns: list[Pattern], missing: list[str]) -> None:
    match = Match(var("data"), tuple(Clause(p, const(1)) for p in patterns))
    assert [str(p) for p in unmatched_cases(match, LISTS.module)] == missing


def test_unmatched_cases_are_those_that_no_clause_takes() -> None:
    """Against an oracle: all lists of lists up to a depth, matched one by one."""
    rng = np.random.default_rng(5)

    def pattern(depth: int) -> Pattern:
        kind = rng.integers(3) if depth else 0
        return [ANY, NIL, cons(pattern(depth - 1), pattern(depth - 1)) if depth else ANY][kind]

    def values(depth: int) -> list[Any]:
        smaller = values(depth - 1) if depth else []
        return [(), *((a, b) for a in smaller for b in smaller)]

    def takes(pattern: Pattern, value: Any) -> bool:
        if isinstance(pattern, PatternWildcard):
            return True
        assert isinstance(pattern, PatternConstructor)
        if pattern.constructor == LISTS.nil:
            return value == ()
        return value != () and all(takes(p, v) for p, v in zip(pattern.patterns, value, strict=True))

    for _ in range(40):
        patterns = [pattern(2) for _ in range(rng.integers(1, 4))]
        missing = unmatched_cases(Match(var("d"), tuple(Clause(p, const(1)) for p in patterns)), LISTS.module)
        for value in values(3):
            covered = any(takes(p, value) for p in patterns)
            assert covered != any(takes(p, value) for p in missing)


def test_unmatched_cases_need_definitions() -> None:
    match = Match(var("d"), (Clause(NIL, const(1)),))
    for module in (None, IRModule()):
        with pytest.raises(NameNotFound, match="List, the type of Nil, is not defined"):
            unmatched_cases(match, module)


# call graphs


def calling(*names: str) -> Function:
    return Function((), Tuple(tuple(GlobalVar(n)() for n in names)))


def test_call_graph() -> None:
    module = IRModule({"main": calling("f", "f", "g"), "f": calling("g"), "g": calling(), "odd": calling("even")})
    module["even"] = calling("odd")
    module["self"] = calling("self")
    graph = CallGraph(module)
    assert graph.module is module
    assert [graph.ref_count(n) for n in module] == [0, 2, 2, 1, 1, 1]
    assert [graph.global_call_count(n) for n in module] == [3, 1, 0, 1, 1, 1]
    assert [graph.is_recursive(n) for n in module] == [False, False, False, True, True, True]
    assert graph.is_recursive(GlobalVar("odd")) and graph.are_recursive() and not graph.are_recursive("main", "f")
    order = graph.callees_first()
    assert order.index("g") < order.index("f") < order.index("main") and sorted(order) == sorted(module)
    assert graph.print_var("main") == (
        "call graph node: main, referred to 0 times\n  calls f, 2 times\n  calls g, 1 times"
    )
    assert str(graph).count("call graph node") == 6


def test_a_global_variable_that_is_called_twice_counts_once() -> None:
    f = GlobalVar("f")
    graph = CallGraph(IRModule({"main": Function((), Tuple((f(), f(), GlobalVar("f")()))), "f": calling()}))
    assert graph.ref_count("f") == graph.global_call_count("main") == 2


def test_call_graph_of_a_long_chain() -> None:
    names = [f"f{i}" for i in range(3_000)]
    module = IRModule({n: calling(*names[i + 1 : i + 2]) for i, n in enumerate(names)})
    assert CallGraph(module).callees_first() == names[::-1]


def test_call_graph_errors() -> None:
    with pytest.raises(ArgumentError, match="CallGraph takes an IRModule, got Function"):
        CallGraph(calling())  # type: ignore[arg-type]
    graph = CallGraph(IRModule({"main": calling()}))
    with pytest.raises(NameNotFound, match="the module has no function 'f'"):
        graph.ref_count("f")
    with pytest.raises(ArgumentError, match="a function is known by a name or a GlobalVar, got int"):
        graph.is_recursive(3)


# features

X, BOOL = var("x", shape=(3,)), var("c", "bool")
SHARED = call_op("tanh", X)
FEATURES: dict[str, tuple[Any, str]] = {
    "variable": (X, "Var"),
    "global variable": (GlobalVar("f"), "GlobalVar"),
    "constant": (const(1), "Constant"),
    "tuple": (Tuple((X, X)), "Tuple Var"),
    "field": (TupleGetItem(X, 0), "TupleGetItem Var"),
    "function": (Function((X,), X), "Function Var"),
    "call": (call_op("tanh", X), "Call Op Var"),
    "let": (Let(BOOL, X, X), "Let Var"),
    "if": (If(BOOL, X, X), "If Var"),
    "references": (RefWrite(RefCreate(X), RefRead(X)), "RefCreate RefRead RefWrite Var"),
    "constructor": (Call(LISTS.nil, ()), "Call Constructor"),
    "match": (Match(X, (Clause(ANY, X),)), "Match Var"),
    "graph": (Tuple((SHARED, SHARED)), "Call Graph Op Tuple Var"),
    "recursion": (Let(BOOL, Function((), BOOL), X), "Function Let LetRec Var"),
    "recursion deep inside": (Let(BOOL, Function((), Tuple((BOOL(),))), X), "Call Function Let LetRec Tuple Var"),
    "no recursion": (Let(BOOL, X, Function((), BOOL)), "Function Let Var"),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features(name: str) -> None:
    expr, features = FEATURES[name]
    assert detect_feature(expr) == {Feature[f"f{f}"] for f in features.split()}


def test_features_of_modules() -> None:
    module = IRModule({"f": Function((), const(1)), "g": Function((X,), X)})
    of_module = {Feature.fFunction, Feature.fConstant, Feature.fVar}
    assert detect_feature(module) == of_module
    both = of_module | {Feature.fRefCreate}
    assert detect_feature(RefCreate(X), module) == both == detect_feature(module, RefCreate(X))
    with pytest.raises(ArgumentError, match="takes an expression, a module, or one of each"):
        detect_feature(module, module)
    with pytest.raises(ArgumentError, match="takes an expression or a module, got int"):
        detect_feature(3)


def test_primitive_functions_are_operators() -> None:
    assert detect_feature(Function((X,), SHARED).with_attr("Primitive", 1)) == set()


def test_check_features() -> None:
    analysis.check_features(SHARED, [Feature.fCall, Feature.fOp, Feature.fVar], "the test")
    with pytest.raises(UserError, match="the test cannot take RefCreate, RefRead"):
        analysis.check_features(RefRead(RefCreate(X)), [Feature.fVar], "the test")


# equality

W = var("w", shape=(3,))
P, Q = TypeVar("p"), TypeVar("q")


@pytest.mark.parametrize(
    ("a", "b", "alpha", "graph"),
    [
        (X, X, True, True),
        (X, W, False, True),
        (Function((X,), SHARED), Function((W,), call_op("tanh", W)), True, True),
        (Function((X,), X + W), Function((X,), X + X), False, False),
        (X - W, W - X, False, True),
        (const(1), const(2), False, False),
        (Tuple((SHARED, SHARED)), Tuple((SHARED, call_op("tanh", X))), False, False),
        (T, TensorType((3,)), True, True),
        (P, Q, False, True),
        (FuncType((P,), P, (P,)), FuncType((Q,), Q, (Q,)), True, True),
        (FuncType((P,), P), FuncType((Q,), Q), False, True),
    ],
)
def test_equality(a: Any, b: Any, alpha: bool, graph: bool) -> None:
    assert (analysis.alpha_equal(a, b), analysis.graph_equal(a, b)) == (alpha, graph)
    for assertion, holds in ((analysis.assert_alpha_equal, alpha), (analysis.assert_graph_equal, graph)):
        if holds:
            assertion(a, b)
        else:
            with pytest.raises(ValueError, match="differ"):
                assertion(a, b)


# normal forms


def branches(make: Callable[[], tuple[Expr, Expr]]) -> Expr:
    one, other = make()
    return If(BOOL, one, other)


Y = var("y")
BLOCKS: dict[str, tuple[Expr, bool]] = {
    "no blocks": (Tuple((SHARED, SHARED)), True),
    "in one branch": (If(BOOL, Tuple((SHARED, SHARED)), X), True),
    "in both branches": (If(BOOL, SHARED, SHARED), False),
    "below both branches": (If(BOOL, Tuple((SHARED,)), RefCreate(SHARED)), False),
    "in a branch and outside": (Tuple((SHARED, If(BOOL, SHARED, X))), False),
    "in a function and outside": (Tuple((SHARED, Function((), SHARED))), False),
    "in a condition and a branch": (If(call_op("less", s := call_op("sum", X), const(1.0)), s, const(0.0)), False),
    "bound": (Let(Y, SHARED, If(BOOL, Y, Y)), True),
    "in a clause and outside": (Match(SHARED, (Clause(ANY, SHARED),)), False),
    "in two clauses": (Match(X, (Clause(NIL, SHARED), Clause(ANY, SHARED))), False),
    "atoms": (If(BOOL, X, Function((), X)), True),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_basic_block_normal_form(name: str) -> None:
    expr, holds = BLOCKS[name]
    assert check_basic_block_normal_form(expr) is holds


@pytest.mark.parametrize(
    ("expr", "holds"),
    [(const(1), True), (Tuple((const(1), Tuple((const(2),)))), True), (Tuple((const(1), X)), False), (SHARED, False)],
)
def test_check_constant(expr: Expr, holds: bool) -> None:
    assert check_constant(expr) is holds


# counts


def test_list_op_freqs() -> None:
    module = IRModule({"f": Function((X,), SHARED + SHARED), "g": Function((X,), call_op("tanh", SHARED))})
    assert analysis.list_op_freqs(module) == {"tanh": 2, "add": 1}


def test_count_layers() -> None:
    one = call_op("tanh", X)
    two = call_op("tanh", one + one)
    side = call_op("tanh", X)
    assert analysis.count_layers(Tuple((two, side)), ["tanh"]) == 2
    assert analysis.count_layers(Tuple((two, side)), ["tanh", "add"]) == 3
    assert analysis.count_layers(two, ["exp"]) == 0
    assert analysis.count_layers(IRModule.from_expr(two), ["tanh"]) == 2
    assert analysis.count_layers(Let(Y, one, call_op("tanh", Y)), ["tanh"]) == 2


def test_all_dtypes() -> None:
    i = var("i", shape=(2,), dtype="int64")
    expr = infer_expr(Function((i,), Tuple((RefCreate(const(True)), X))))
    assert analysis.all_dtypes(expr) == {"int64", "bool", "float32"}
    with pytest.raises(UserError, match="the type checker has not run"):
        analysis.all_dtypes(SHARED)


def test_extract_intermediate_expr() -> None:
    one = call_op("tanh", X)
    two = one * call_op("exp", var("w", shape=(3,)))
    module = IRModule.from_expr(call_op("sigmoid", two))
    names = [analysis.extract_intermediate_expr(module, i)["main"].body.op.name for i in range(4)]
    assert names == ["tanh", "exp", "multiply", "sigmoid"]
    assert structural_equal(analysis.extract_intermediate_expr(module, 0)["main"], Function((X,), one))
    with pytest.raises(ArgumentError, match="main has 4 numbered expressions, there is none of number 4"):
        analysis.extract_intermediate_expr(module, 4)


def test_extract_fused_functions() -> None:
    """Two products, each with what follows it; the two are of one structure, so they are one function."""
    x, w, v = var("x", shape=(4, 4)), var("w", shape=(4, 4)), var("v", shape=(4, 4))
    layer = call_op("nn.relu", call_op("nn.dense", x, w))
    module = IRModule.from_expr(call_op("nn.relu", call_op("nn.dense", layer, v)))
    functions = analysis.extract_fused_functions(module)
    (function,) = functions.values()
    assert analysis.list_op_freqs(IRModule({"f": function})) == {"nn.dense": 1, "nn.relu": 1}
    other = IRModule.from_expr(call_op("nn.dense", layer, v))
    assert len(analysis.extract_fused_functions(other)) == 2


def macs(expr: Expr) -> int:
    return analysis.get_total_mac_number(infer_expr(expr))


def test_numbers_of_intermediate_expressions_are_those_of_the_text() -> None:
    pair = Tuple((SHARED, call_op("exp", SHARED)))
    module = IRModule.from_expr(call_op("negative", TupleGetItem(pair, 1)))
    kinds = [type(analysis.extract_intermdeiate_expr(module, i)["main"].body).__name__ for i in range(5)]
    assert kinds == ["Call", "Call", "Tuple", "TupleGetItem", "Call"]
    lines = [line.strip().partition(" = ")[2] for line in str(module["main"]).splitlines() if " = " in line]
    assert lines[:2] == ["tanh(%x);", "exp(%0);"] and lines[2] == "(%0, %1);"


def test_multiplications() -> None:
    """Against the numbers of loops that compute the sums."""
    data, kernel = var("d", shape=(2, 4, 9, 8)), var("k", shape=(6, 2, 3, 5))
    conv = call_op("nn.conv2d", data, kernel, padding=(1, 1), groups=2, kernel_size=(3, 5), channels=6)
    n, c, h, w = infer_expr(conv).checked_type.concrete_shape
    assert macs(conv) == n * c * h * w * (4 // 2) * 3 * 5
    assert macs(call_op("nn.dense", var("a", shape=(7, 5)), var("b", shape=(3, 5)))) == 7 * 5 * 3
    batched = call_op("nn.batch_matmul", var("a", shape=(2, 7, 5)), var("b", shape=(2, 3, 5)))
    assert macs(Tuple((batched, SHARED))) == 2 * 7 * 5 * 3


def test_multiplications_of_a_model() -> None:
    """MobileNet's paper says 569 million."""
    module, _ = mobilenet.get_workload()
    assert analysis.get_total_mac_number(infer_module(module)["main"]) == 568_740_352


def test_search_fc_transpose() -> None:
    w, v = var("w", shape=(5, 3)), var("v", shape=(3, 5))
    first = call_op("nn.dense", var("a", shape=(7, 5)), call_op("transpose", w, axes=(1, 0)))
    plain = call_op("nn.dense", var("b", shape=(7, 5)), v)
    assert analysis.search_fc_transpose(Tuple((first, plain))) == ["w"]


def test_operators_are_no_values_of_features() -> None:
    assert detect_feature(get("tanh")) == {Feature.fOp}
