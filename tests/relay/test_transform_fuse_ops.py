"""FuseOps and DefuseOps: which ops one function computes, and back."""

from __future__ import annotations

from typing import Any

import pytest

from pullback import tir
from pullback.relay.expr import Call, Expr, Function, If, Let, Tuple, Var, const, var
from pullback.relay.expr import call_op as op
from pullback.relay.transform import DefuseOps, FuseOps
from pullback.relay.visitor import post_order
from tests.relay.dataflow import becomes, free, ran, same_values, typed


def kernel(params: list[Var], body: Expr, **attrs: Any) -> Function:
    return Function(tuple(params), body).with_attr({"Primitive": 1, **attrs})


def kernels(function: Function) -> list[list[str]]:
    """The ops of each function marked Primitive, in the order of their calls."""
    found = [n.op for n in post_order(function) if isinstance(n, Call) and isinstance(n.op, Function)]
    return [[c.op.name for c in post_order(f) if isinstance(c, Call)] for f in found if f.attrs.get("Primitive")]


def checked(before: Any, **options: Any) -> list[list[str]]:
    """What is fused; values stay, and DefuseOps is the inverse."""
    after = ran(FuseOps(), before, **options)
    same_values(before, after)
    back = ran(DefuseOps(), after)
    assert kernels(back) == []
    same_values(before, back)
    return kernels(after)


def conv(x: Expr, w: Expr, channels: int, size: int = 3) -> Expr:
    return op("nn.conv2d", x, w, channels=channels, kernel_size=(size, size), padding=(size // 2, size // 2))


def test_elementwise_in_words() -> None:
    x, p = free("x", 10, 20), free("p0", 10, 20)
    before = Function((x,), op("squeeze", op("exp", op("add", x, const(1.0)))))
    inside = kernel([p], op("squeeze", op("exp", op("add", p, const(1.0)))))
    after = becomes(FuseOps(), before, Function((x,), Call(inside, (x,))))
    same_values(before, after)
    becomes(DefuseOps(), after, before)


def test_large_constants_are_arguments() -> None:
    import numpy as np

    x, large = free("x", 3), const(np.arange(3, dtype="float32"))
    p0, p1 = free("p0", 3), free("p1", 3)
    before = Function((x,), op("exp", op("add", x, large)))
    inside = kernel([p0, p1], op("exp", op("add", p0, p1)))
    becomes(FuseOps(), before, Function((x,), Call(inside, (x, large))))
    linked = kernel([p0], op("exp", op("add", p0, large)))
    options = {"config": {"relay.FuseOps.link_params": True}}
    becomes(FuseOps(), before, Function((x,), Call(linked, (x,))), **options)


def test_level_zero_fuses_nothing() -> None:
    x = free("x", 10, 20)
    assert checked(op("exp", op("tanh", x)), opt_level=0) == [["tanh"], ["exp"]]
    assert kernels(ran(FuseOps(0), op("exp", op("tanh", x)))) == [["tanh"], ["exp"]]
    assert kernels(ran(FuseOps(2), op("exp", op("tanh", x)), opt_level=0)) == [["tanh", "exp"]]


def test_convolutions_take_what_follows() -> None:
    x, w1, w2, w3 = free("x", 1, 4, 6, 6), free("w1", 4, 4, 3, 3), free("w2", 4, 4, 1, 1), free("w3", 4, 4, 3, 3)
    before = op("add", x, const(1.0))
    y = conv(before, w1, 4)
    y1 = op("add", const(1.0), y)
    y = op("add", y, y1)
    z2, z3 = conv(y, w2, 4, 1), conv(y, w3, 4)
    found = checked(op("add", z2, z3))
    assert sorted(found) == sorted([["add"], ["nn.conv2d", "add", "add"], ["nn.conv2d"], ["nn.conv2d", "add"]])


def test_two_contractions_are_two_kernels() -> None:
    x, w = free("x", 4, 4), free("w", 4, 4)
    first = op("nn.relu", op("nn.dense", x, w))
    assert checked(op("nn.dense", first, w)) == [["nn.dense", "nn.relu"], ["nn.dense"]]


def test_softmax_takes_what_follows() -> None:
    x = free("x", 4, 5)
    assert checked(op("cast", op("nn.softmax", x), "float64")) == [["nn.softmax", "cast"]]


def test_reductions_take_what_comes_before() -> None:
    x = free("x", 4, 5)
    assert checked(op("sum", op("exp", op("add", x, const(1.0))), axis=1)) == [["add", "exp", "sum"]]
    assert checked(op("exp", op("sum", x, axis=1))) == [["sum"], ["exp"]]


def test_injective_after_a_contraction_is_apart() -> None:
    x, w = free("x", 4, 4), free("w", 4, 4)
    found = checked(op("transpose", op("nn.relu", op("nn.dense", x, w))))
    assert found == [["nn.dense", "nn.relu"], ["transpose"]]


def test_concatenation() -> None:
    x = free("x", 1, 4, 6, 6)
    pooled = op("nn.max_pool2d", x, pool_size=(2, 2), strides=(2, 2))
    up = op("repeat", op("repeat", pooled, repeats=2, axis=2), repeats=2, axis=3)
    assert checked(op("concatenate", [up, x], axis=1)) == [["nn.max_pool2d"], ["repeat", "repeat", "concatenate"]]


def test_a_tuple_that_is_the_result_is_not_fused() -> None:
    x = free("x", 4, 4)
    both = Tuple((op("exp", x), op("tanh", op("exp", x))))
    assert sorted(checked(both)) == [["exp"], ["exp", "tanh"]]


def test_items_of_tuples() -> None:
    x = free("x", 4, 4)
    parts = op("split", x, indices_or_sections=2, axis=1)
    assert checked(op("add", parts[0], parts[1])) == [["split", "add"]]
    assert checked(op("nn.dense", parts[0], parts[1])) == [["split"], ["nn.dense"]]


def test_opaque_ops_stand_alone() -> None:
    x = free("x", 4, 4)
    assert checked(op("exp", op("sort", op("tanh", x)))) == [["tanh"], ["sort"], ["exp"]]


def test_operators_of_values_stand_alone() -> None:
    x, shape = free("x", 4, 4), free("shape", 1, dtype="int64")
    after = ran(FuseOps(), Function((x, shape), op("exp", op("dyn.reshape", op("tanh", x), shape))))
    assert kernels(after) == [["tanh"], ["dyn.reshape"], ["exp"]]


def test_a_diamond_is_one_kernel() -> None:
    x = free("x", 4, 4)
    top = op("exp", x)
    assert checked(op("add", op("tanh", top), op("nn.relu", top))) == [["exp", "tanh", "nn.relu", "add"]]


def test_lets_and_branches_are_not_crossed() -> None:
    x, y, c = free("x", 4, 4), Var("y"), var("c", shape=(), dtype="bool")
    assert checked(Function((x,), Let(y, op("exp", x), op("tanh", y)))) == [["exp"], ["tanh"]]
    assert checked(Function((x, c), If(c, op("exp", op("tanh", x)), x))) == [["tanh", "exp"]]


def test_attributes_of_the_loop_ir_are_numbers() -> None:
    x, p = free("x", 4), free("p", 4)
    inside = Function((p,), op("exp", p)).with_attr("Primitive", tir.IntImm(1, "int32"))
    becomes(FuseOps(), op("exp", x), Function((x,), Call(inside, (x,))))


def test_functions_that_are_kernels_stay() -> None:
    x, p = free("x", 4, 4), free("p", 4, 4)
    inside = kernel([p], op("exp", op("tanh", p)))
    assert kernels(ran(FuseOps(), Function((x,), Call(inside, (x,))))) == [["tanh", "exp"]]


@pytest.mark.parametrize(("most", "count"), [(256, 1), (10, 9), (1, 90)])
def test_the_most_nodes_of_a_kernel(most: int, count: int) -> None:
    x: Expr = free("x", 4)
    for _ in range(90):
        x = op("exp", x)
    found = kernels(ran(FuseOps(), x, config={"relay.FuseOps.max_depth": most}))
    assert [len(k) for k in found] == [90 // count] * count


def test_only_reshapes_are_marked() -> None:
    x = free("x", 4, 4)
    after = ran(FuseOps(), op("reshape", op("expand_dims", x, axis=0), newshape=(2, 8)))
    assert dict(after.body.op.attrs) == {"Primitive": 1, "relay.reshape_only": 1}
    after = ran(FuseOps(), op("reshape", op("exp", x), newshape=(2, 8)))
    assert dict(after.body.op.attrs) == {"Primitive": 1}


def test_a_kernel_has_types_and_names() -> None:
    x = free("x", 4, 4)
    after = ran(FuseOps(), op("exp", op("exp", x)))
    assert after.body.op.ret_type == typed(op("exp", x)).body.checked_type
    assert after.body.op.params[0].name_hint == "p0"
