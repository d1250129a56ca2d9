"""EliminateCommonSubexpr: which calls become one."""

from __future__ import annotations

from pullback.relay.expr import Function, If, Tuple, const, var
from pullback.relay.expr import call_op as op
from pullback.relay.op import get
from pullback.relay.transform import EliminateCommonSubexpr
from tests.relay.dataflow import becomes, free, ops_in, ran, same_values, stays


def test_equal_calls() -> None:
    x = free("x", 2, 3)
    first, second = (op("add", op("nn.relu", x), const(1.0)) for _ in range(2))
    before = Function((x,), op("add", first, second))
    one = op("add", op("nn.relu", x), const(1.0))
    same_values(before, becomes(EliminateCommonSubexpr(), before, Function((x,), op("add", one, one))))


def test_calls_to_skip() -> None:
    x = free("x", 2, 3)
    same = op("nn.relu", x)
    before = Function((x,), op("subtract", op("add", op("nn.relu", x), const(1.0)), op("add", same, const(1.0))))
    step = EliminateCommonSubexpr(lambda e: e.op.name == "add")
    expected = op("subtract", op("add", same, const(1.0)), op("add", same, const(1.0)))
    becomes(step, before, Function((x,), expected))


def test_what_differs_stays() -> None:
    x, y = free("x", 4, 4), free("y", 4, 4)
    sums = [op("sum", x, axis=a, keepdims=k) for a, k in ((0, True), (1, True), (1, False), (None, False))]
    stays(EliminateCommonSubexpr(), Function((x,), Tuple(tuple(sums))))
    stays(EliminateCommonSubexpr(), Function((x,), Tuple((op("cast", x, "int32"), op("cast", x, "int64")))))
    one, other = op("clip", x, 0.0, 1.0), op("clip", x, 0, 1.0)
    stays(EliminateCommonSubexpr(), Function((x, y), Tuple((op("add", x, y), op("add", y, x), op("subtract", x, y)))))
    assert len(ops_in(ran(EliminateCommonSubexpr(), Tuple((one, other))))) == 1
    stays(EliminateCommonSubexpr(), Function((x,), Tuple((op("add", x, const(1.0)), op("add", x, const(2.0))))))


def test_tuples() -> None:
    x = free("x", 4, 4)
    halves = [op("split", x, indices_or_sections=2, axis=0) for _ in range(2)]
    before = Function((x,), Tuple((op("exp", halves[0][0]), op("exp", halves[1][0]), halves[1][1])))
    after = ran(EliminateCommonSubexpr(), before)
    assert ops_in(after) == ["split", "exp"] and after.body.fields[0] is after.body.fields[1]
    same_values(before, after)
    joined = [op("concatenate", [x, x], axis=0) for _ in range(2)]
    assert ops_in(ran(EliminateCommonSubexpr(), Tuple(tuple(joined)))) == ["concatenate"]


def test_ops_with_a_state_stay_apart() -> None:
    x = free("x", 4)
    draw = get("exp")
    draw.set_attr("TOpIsStateful", True)
    try:
        stays(EliminateCommonSubexpr(), Function((x,), op("add", op("exp", x), op("exp", x))))
    finally:
        draw.set_attr("TOpIsStateful", False)
    stays(EliminateCommonSubexpr(), Function((x,), op("add", op("nn.dropout", x), op("nn.dropout", x))))


def test_inside_branches() -> None:
    x, c = free("x", 4), var("c", shape=(), dtype="bool")
    before = Function((x, c), If(c, op("add", op("exp", x), op("exp", x)), op("exp", x)))
    after = ran(EliminateCommonSubexpr(), before)
    assert ops_in(after) == ["exp", "add"]
