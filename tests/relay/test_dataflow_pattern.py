"""The language of patterns: what matches, what rewriting and partitioning make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir import IRModule, UserError
from pullback.ir.errors import ArgumentError, NameNotFound
from pullback.ir.node import structural_equal
from pullback.relay.analysis import free_vars
from pullback.relay.dataflow_pattern import (
    AltPattern,
    CallPattern,
    DFPattern,
    DFPatternCallback,
    FunctionPattern,
    TuplePattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    partition,
    rewrite,
    wildcard,
)
from pullback.relay.dataflow_pattern.graph import DataflowGraph
from pullback.relay.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, call_op, const, var
from pullback.relay.infer import infer_expr
from pullback.relay.op.registry import OpPattern, get
from pullback.relay.ty import TensorType
from pullback.relay.visitor import bind, children, post_order

X, Y, Z = (var(n, shape=(3,)) for n in "xyz")
ANY = wildcard()


def tanh(x: Any) -> Expr:
    return call_op("tanh", x)


def exp(x: Any) -> Expr:
    return call_op("exp", x)


F = Function((X,), tanh(X))
X_PATTERN = is_var("x")
ELEMENTWISE = (wildcard().has_attr({"TOpPattern": OpPattern.ELEMWISE}))(None)

MATCHES: dict[str, tuple[DFPattern, Any, bool]] = {
    "wildcard": (ANY, X, True),
    "operator": (is_op("add"), get("add"), True),
    "other operator": (is_op("add"), get("subtract"), False),
    "either operator": (is_op("add") | is_op("subtract"), get("subtract"), True),
    "neither operator": (is_op("add") | is_op("subtract"), get("multiply"), False),
    "variable": (is_var(), X, True),
    "variable of the name": (is_var("x"), X, True),
    "variable of another name": (is_var("x"), Y, False),
    "no variable": (is_var(), const(1), False),
    "constant": (is_constant(), const(1), True),
    "no constant": (is_constant(), X, False),
    "expression": (is_expr(tanh(X)), tanh(X), True),
    "expression of another variable": (is_expr(tanh(X)), tanh(Y), False),
    "equal constant": (is_expr(const(1.0)), const(1.0), True),
    "other constant": (is_expr(const(1.0)), const(2.0), False),
    "call": (is_op("tanh")(ANY), tanh(X), True),
    "call of another operator": (is_op("exp")(ANY), tanh(X), False),
    "number of arguments": (is_op("tanh")(ANY, ANY), tanh(X), False),
    "any arguments": (is_op("add")(None), X + Y, True),
    "call of a function": (wildcard()(wildcard()), F(X), True),
    "call of such a function": (FunctionPattern((wildcard(),), is_op("tanh")(wildcard()))(wildcard()), F(X), True),
    "function": (FunctionPattern(None, is_op("tanh")(wildcard())), F, True),
    "function of other parameters": (FunctionPattern((), wildcard()), F, False),
    "function of another body": (FunctionPattern(None, is_op("exp")(wildcard())), F, False),
    "infix": ((wildcard() + wildcard()) * wildcard(), (X + Y) * Z, True),
    "infix that differs": ((wildcard() - wildcard()) / wildcard(), (X + Y) / Z, False),
    "commutative": (is_var("y") + is_var("x"), X + Y, True),
    "not commutative": (is_var("y") - is_var("x"), X - Y, False),
    "product of a quotient": (is_var("x") * is_var("y") / is_var("z"), X * (Y / Z), True),
    "quotient of a product": (is_var("x") * (is_var("y") / is_var("z")), (X * Y) / Z, True),
    "another product of a quotient": (is_var("x") * is_var("y") / is_var("z"), X * (Z / Y), False),
    "one variable twice": ((w := wildcard()) + w, X + X, True),
    "two variables for one": ((w2 := wildcard()) + w2, X + Y, False),
    "two patterns for one variable": (wildcard() + wildcard(), X + X, True),
    "tuple": (is_tuple([is_var("x"), wildcard()]), Tuple((X, Y)), True),
    "tuple of another length": (is_tuple([wildcard()]), Tuple((X, Y)), False),
    "any tuple": (is_tuple(None), Tuple((X, Y)), True),
    "no tuple": (is_tuple(None), X, False),
    "field": (is_tuple_get_item(wildcard(), 1), TupleGetItem(X, 1), True),
    "other field": (is_tuple_get_item(wildcard(), 1), TupleGetItem(X, 0), False),
    "any field": (is_tuple_get_item(is_tuple(None)), TupleGetItem(Tuple((X,)), 0), True),
    "if": (is_if(is_var(), is_var("x"), is_var("y")), If(Z, X, Y), True),
    "if of other branches": (is_if(is_var(), is_var("y"), is_var("x")), If(Z, X, Y), False),
    "let": (is_let(is_var(), is_var("x"), is_op("tanh")(wildcard())), Let(Y, X, tanh(Y)), True),
    "let of another value": (is_let(is_var(), is_constant(), wildcard()), Let(Y, X, Y), False),
    "optional part that is there": (is_op("tanh")(wildcard()).optional(is_op("exp")), exp(tanh(X)), True),
    "optional part that is not": (is_op("tanh")(wildcard()).optional(is_op("exp")), tanh(X), True),
    "optional part alone": (is_op("tanh")(wildcard()).optional(is_op("exp")), exp(X), False),
    "type": (has_type(TensorType((3,))), tanh(X), True),
    "other type": (is_op("tanh")(wildcard()).has_type(TensorType((4,))), tanh(X), False),
    "dtype": (has_dtype("float32", is_op("tanh")(wildcard())), tanh(X), True),
    "other dtype": (wildcard().has_dtype("int32"), tanh(X), False),
    "shape": (has_shape([3]), tanh(X), True),
    "other shape": (wildcard().has_shape((3, 1)), tanh(X), False),
    "shape of a tuple": (has_shape([3]), Tuple((X,)), False),
    "type that is not known": (has_type(TensorType((3,))), tanh(var("unknown")), False),
    "type of an operator": (has_type(TensorType((3,))), get("tanh"), False),
    "attribute": (is_op("sum")(wildcard()).has_attr({"axis": (0,)}), call_op("sum", X, axis=[0]), True),
    "other attribute": (has_attr({"axis": (1,)}), call_op("sum", Tuple((X,)), axis=[0]), False),
    "attribute that is not there": (has_attr({"axes": 0}), call_op("sum", X), False),
    "attribute of a function": (has_attr({"Composite": "dense"}), F.with_attr("Composite", "dense"), True),
    "other attribute of a function": (has_attr({"Composite": "conv"}), F.with_attr("Composite", "dense"), False),
    "attribute of what has none": (has_attr({"a": 1}), X, False),
    "kind of an operator": (ELEMENTWISE, tanh(X), True),
    "other kind of an operator": (ELEMENTWISE, X + Y, False),
}


@pytest.mark.parametrize("name", MATCHES)
def test_match(name: str) -> None:
    pattern, expr, matches = MATCHES[name]
    assert pattern.match(expr) is matches is match(pattern, expr)


def test_a_failed_attempt_leaves_nothing() -> None:
    """The first order of the arguments fails after it has bound ``w`` to y; the other one binds it to x."""
    w = wildcard()
    pattern = (w + is_op("tanh")(w)) * w
    assert pattern.match((tanh(X) + X) * X)
    assert not pattern.match((tanh(X) + X) * Y)


def diamond(outside: bool = False) -> Expr:
    top = call_op("nn.relu", X)
    bottom = tanh(top) + exp(top)
    return Tuple((bottom, top)) if outside else bottom


def test_dominator() -> None:
    relu, add = is_op("nn.relu")(wildcard()), is_op("add")(wildcard(), wildcard())
    path = (is_op("tanh") | is_op("exp"))(wildcard())
    pattern = dominates(relu, path, add)
    assert pattern.match(diamond()) and add.dominates(relu, path).match(diamond())
    assert not pattern.match(diamond(outside=True))
    assert not dominates(relu, is_op("tanh")(wildcard()), add).match(diamond())
    assert is_tuple([pattern, wildcard()]).match(Tuple((diamond(), X)))
    assert not is_tuple([pattern, wildcard()]).match(diamond(outside=True))
    assert add.dominates(relu).match(diamond())


def test_dominator_needs_one_parent() -> None:
    relu, add = is_op("nn.relu")(wildcard()), is_op("add")(wildcard(), wildcard())
    pattern = add.dominates(relu, is_op("tanh")(wildcard()))
    assert not pattern.match(tanh(call_op("nn.relu", X)) + tanh(call_op("nn.relu", Y)))
    assert not pattern.match(tanh(X) + tanh(X))


def test_dominator_of_a_graph_of_many_paths() -> None:
    top: Expr = call_op("nn.relu", X)
    expr = top
    for _ in range(300):
        expr = expr + expr
    add = is_op("add")(wildcard(), wildcard())
    assert dominates(is_op("nn.relu")(wildcard()), add, is_op("add")(wildcard(), wildcard())).match(expr)


def test_domination_agrees_with_its_definition() -> None:
    """Against an oracle: a node dominates another when without it that cannot reach the result."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        nodes: list[Expr] = [X, Y]
        for _ in range(8):
            a, b = (nodes[i] for i in rng.integers(len(nodes), size=2))
            nodes.append(Tuple((a, b)))
        graph = DataflowGraph(nodes[-1])
        for node in graph.nodes:
            without = _reached(graph.root, node)
            for other in graph.nodes:
                assert graph.dominates(node, other) == (other is node or other not in without)


def _reached(root: Any, barred: Any) -> set[Any]:
    found: set[Any] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if node not in found and node is not barred:
            found.add(node)
            pending.extend(children(node))
    return found


# rewriting


class Replace(DFPatternCallback):
    """A callback of a pattern and a function of the expressions that its wildcards match."""

    def __init__(self, pattern: DFPattern, parts: list[DFPattern], make: Any, **options: bool) -> None:
        super().__init__(**options)
        self.pattern, self.parts, self.make = pattern, parts, make
        self.calls = 0

    def callback(self, pre: Expr, post: Expr, node_map: Any) -> Any:
        self.calls += 1
        return self.make(*(node_map[p][0] for p in self.parts))


def test_rewrite() -> None:
    a, b = wildcard(), wildcard()
    replace = Replace(is_op("add")(a, b), [a, b], lambda x, y: x - y)
    expr = replace.rewrite(tanh(X + Y))
    assert structural_equal(expr, tanh(X - Y)) and free_vars(expr) == [X, Y] and replace.calls == 1


def test_rewrite_of_what_is_inside_of_a_place() -> None:
    a, b = wildcard(), wildcard()
    expr = rewrite(Replace(is_op("add")(a, b), [a, b], lambda x, y: x - y), (X + Y) + Z)
    assert structural_equal(expr, (X - Y) - Z)


def test_rewrite_until_nothing_changes() -> None:
    a = wildcard()
    replace = Replace(is_op("tanh")(is_op("tanh")(a)), [a], tanh)
    expr: Expr = X
    for _ in range(8):
        expr = tanh(expr)
    assert structural_equal(replace.rewrite(expr), tanh(X))


def test_rewrite_once() -> None:
    a = wildcard()
    grow = Replace(is_op("tanh")(a), [a], lambda x: tanh(exp(x)), rewrite_once=True)
    assert structural_equal(grow.rewrite(tanh(X)), tanh(exp(X)))
    with pytest.raises(UserError, match="the expression still changes after 100 rounds of Replace"):
        Replace(is_op("tanh")(a), [a], lambda x: tanh(exp(x))).rewrite(tanh(X))


def test_a_replacement_that_is_equal_ends_it() -> None:
    a = wildcard()
    assert structural_equal(Replace(is_op("tanh")(a), [a], tanh).rewrite(tanh(X)), tanh(X))


def test_swapped_arguments_are_a_change() -> None:
    a, b = wildcard(), wildcard()
    swap = Replace(is_op("subtract")(a, b), [a, b], lambda x, y: y - x, rewrite_once=True)
    assert free_vars(swap.rewrite(X - Y)) == [Y, X]


def test_several_callbacks() -> None:
    a, b = wildcard(), wildcard()
    callbacks = [
        Replace(is_op("add")(a, b), [a, b], lambda x, y: x * y),
        Replace(is_op("multiply")(a, b), [a, b], lambda x, y: x - y),
    ]
    assert structural_equal(rewrite(callbacks, X + Y), X - Y)


def test_callbacks_get_types() -> None:
    a = wildcard()
    found: list[Any] = []

    class Typed(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__(require_type=True)
            self.pattern = is_op("tanh")(a)

        def callback(self, pre: Expr, post: Expr, node_map: Any) -> Expr:
            found.append(pre.checked_type)
            assert post is pre and node_map[self.pattern] == [post]
            return exp(node_map[a][0])

    expr = Typed().rewrite(Function((X,), tanh(X)))
    assert found == [TensorType((3,))] and structural_equal(expr.body, exp(X))


def test_patterns_ask_for_types_of_calls_of_global_functions() -> None:
    module = IRModule({"f": F})
    replace = Replace(wildcard()(wildcard()).has_type(TensorType((3,))), [], lambda: X)
    assert rewrite(replace, exp(GlobalVar("f")(X)), module) is X
    call = GlobalVar("f")(X)
    assert rewrite(Replace(has_type(TensorType((3,)), wildcard()(X_PATTERN)), [], lambda: Y), call) is call
    assert rewrite(Replace(has_type(TensorType((3,)), wildcard()(X_PATTERN)), [], lambda: Y), call, module) is Y


def test_interior_values_that_others_use_stay() -> None:
    a = wildcard()
    pair = Replace(is_op("exp")(is_op("tanh")(a)), [a], lambda x: call_op("sigmoid", x))
    inner = tanh(X)
    assert structural_equal(pair.rewrite(Tuple((exp(inner), inner))), Tuple((exp(inner), inner)))
    assert structural_equal(pair.rewrite(Tuple((exp(inner), tanh(X)))), Tuple((call_op("sigmoid", X), tanh(X))))


def test_errors_of_callbacks() -> None:
    class Nothing(DFPatternCallback):
        def __init__(self, pattern: DFPattern | None) -> None:
            super().__init__()
            self.pattern = pattern

    with pytest.raises(ArgumentError, match="Nothing has no pattern"):
        Nothing(None).rewrite(X)
    with pytest.raises(NotImplementedError, match="Nothing does not override callback"):
        Nothing(wildcard()).rewrite(X)
    with pytest.raises(UserError, match=r"Replace\.callback returned nothing"):
        Replace(is_var(), [], lambda: None).rewrite(X)


# partitions


def test_partition() -> None:
    dense = is_op("nn.bias_add")(is_op("nn.dense")(wildcard(), wildcard()), wildcard())
    x, w, b = var("x", shape=(4, 3)), var("w", shape=(5, 3)), var("b", shape=(5,))
    expr = call_op("nn.relu", call_op("nn.bias_add", call_op("nn.dense", x, w), b))
    found = dense.partition(expr, {"Composite": "dense"})
    call = found.args[0]
    assert call.args == (x, w, b) and found.op is get("nn.relu")
    assert dict(call.op.attrs) == {"PartitionedFromPattern": "nn.dense_nn.bias_add_", "Composite": "dense"}
    assert [p.name_hint for p in call.op.params] == ["FunctionVar_0_0", "FunctionVar_0_1", "FunctionVar_0_2"]
    p, q, r = call.op.params
    assert structural_equal(call.op.body, call_op("nn.bias_add", call_op("nn.dense", p, q), r))
    assert infer_expr(found).checked_type == infer_expr(expr).checked_type


def test_partition_of_several_places() -> None:
    expr = tanh(exp(tanh(exp(X))))
    found = partition(is_op("tanh")(is_op("exp")(wildcard())), expr)
    outer = found
    inner = outer.args[0]
    assert inner.args == (X,) and structural_equal(outer.op, inner.op)
    assert not [n for n in post_order(found) if isinstance(n, Call) and n.args and n.args[0] is expr]


def test_partition_asks() -> None:
    expr = Tuple((tanh(X), tanh(Y)))
    found = partition(is_op("tanh")(wildcard()), expr, check=lambda place: place.args[0] is X)
    assert isinstance(found.fields[0].op, Function) and found.fields[1] is expr.fields[1]


def test_partition_does_not_look_into_its_functions() -> None:
    pattern = is_op("tanh")(wildcard())
    found = partition(pattern, tanh(X))
    assert partition(pattern, found) is found


def test_partition_keeps_constants_that_are_asked_for() -> None:
    kept = partition(is_op("add")(wildcard(), is_constant()), X + const(1.0))
    assert kept.args == (X,) and structural_equal(kept.op.body, kept.op.params[0] + const(1.0))
    moved = partition(is_op("add")(wildcard(), wildcard()), X + const(1.0))
    assert len(moved.args) == 2


def test_partition_of_an_optional_part() -> None:
    pattern = is_op("tanh")(wildcard()).optional(is_op("exp"))
    both, one = partition(pattern, exp(tanh(X))), partition(pattern, tanh(X))
    assert both.op.attrs["PartitionedFromPattern"] == "tanh_exp_" and both.args == (X,)
    assert one.op.attrs["PartitionedFromPattern"] == "tanh_"


def test_partition_of_a_dominator() -> None:
    relu = is_op("nn.relu")(wildcard())
    path = (is_op("tanh") | is_op("exp"))(wildcard())
    found = is_op("add")(wildcard(), wildcard()).dominates(relu, path).partition(diamond())
    assert found.args == (X,)
    assert structural_equal(bind(found.op.body, {found.op.params[0]: X}), diamond()) and free_vars(found.op) == []


def test_partition_of_calls_and_tuples_of_any_arguments() -> None:
    found = partition(is_op("concatenate")(is_tuple(None)), call_op("concatenate", Tuple((X, Y)), axis=0))
    assert found.args == (X, Y) and found.op.attrs["PartitionedFromPattern"] == "Tuple_concatenate_"
    assert partition(is_op("add")(None), X + Y).args == (X, Y)


def test_partition_names() -> None:
    pattern = is_tuple_get_item(is_tuple([wildcard(), wildcard()]))
    found = partition(pattern, TupleGetItem(Tuple((X, Y)), 1))
    assert found.op.attrs["PartitionedFromPattern"] == "Tuple_TupleGetItem1_"


def test_partition_leaves_overlapping_places() -> None:
    """Two results that share an interior value: neither can be made a function of its own."""
    shared = tanh(X)
    expr = Tuple((exp(shared), call_op("sigmoid", shared)))
    pattern = (is_op("exp") | is_op("sigmoid"))(is_op("tanh")(wildcard()))
    assert partition(pattern, expr) is expr


def test_an_argument_may_depend_on_an_interior_value() -> None:
    """As all its uses lead to the place: the function computes the value again."""
    inner = tanh(X)
    expr = exp(inner) * call_op("sigmoid", inner)
    found = partition(is_op("multiply")(is_op("exp")(is_op("tanh")(wildcard())), wildcard()), expr)
    assert isinstance(found.op, Function) and found.args[0] is X
    assert structural_equal(found.args[1], call_op("sigmoid", tanh(X)))


def test_a_function_is_not_partitioned() -> None:
    with pytest.raises(ArgumentError, match="a FunctionPattern cannot be partitioned"):
        partition(FunctionPattern(None, wildcard()), F)


def test_patterns_are_made_of_patterns() -> None:
    with pytest.raises(ArgumentError, match="arguments of a CallPattern are patterns, got Var"):
        is_op("tanh")(X)
    with pytest.raises(ArgumentError, match="fields of a TuplePattern are patterns, got int"):
        is_tuple([3])  # type: ignore[list-item]
    with pytest.raises(NameNotFound, match="there is no relay operator 'tahn'"):
        is_op("tahn")


def test_parts_of_patterns() -> None:
    a, b = wildcard(), is_var("b")
    pair = is_tuple([a, b])
    assert isinstance(pair, TuplePattern) and len(pair) == 2 and pair[1] is b and list(pair) == [a, b]
    assert isinstance(a | b, AltPattern) and (a | b).left is a
    call = a(b)
    assert isinstance(call, CallPattern) and call.op is a and call.args == (b,) and a(None).args is None
    assert b.name_hint == "b"
