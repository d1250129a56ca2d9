"""MergeComposite and BatchingOps."""

from __future__ import annotations

from typing import Any

import pytest

from pullback.ir.errors import ArgumentError
from pullback.relay.dataflow_pattern import is_op, wildcard
from pullback.relay.expr import Call, Function, Tuple
from pullback.relay.expr import call_op as op
from pullback.relay.transform import BatchingOps, MergeComposite
from pullback.relay.visitor import post_order
from tests.relay.dataflow import free, ops_in, ran, same_values, stays

X, W, V = free("x", 3, 4), free("w", 4, 4), free("v", 4, 4)
DENSE_RELU = is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard()))


def composites(function: Function) -> list[tuple[str, list[str]]]:
    found = [n.op for n in post_order(function) if isinstance(n, Call) and isinstance(n.op, Function)]
    return [(f.attrs.Composite, ops_in(f)) for f in found]


def test_a_chain() -> None:
    before = Function((X, W, V), op("nn.relu", op("nn.dense", op("nn.relu", op("nn.dense", X, W)), V)))
    after = ran(MergeComposite([("mine.dense_relu", DENSE_RELU)]), before)
    assert composites(after) == [("mine.dense_relu", ["nn.dense", "nn.relu"])] * 2
    same_values(before, after)


def test_patterns_in_their_order() -> None:
    before = Function((X, W), op("nn.relu", op("nn.dense", X, W)))
    dense = is_op("nn.dense")(wildcard(), wildcard())
    both = [("both", DENSE_RELU), ("one", dense)]
    assert composites(ran(MergeComposite(both), before)) == [("both", ["nn.dense", "nn.relu"])]
    assert composites(ran(MergeComposite(both[::-1]), before)) == [("one", ["nn.dense"])]


def test_checks() -> None:
    before = Function((X, W), op("nn.relu", op("nn.dense", X, W)))
    seen: list[Any] = []

    def check(expr: Any) -> bool:
        seen.append(expr.op.name)
        return False

    stays(MergeComposite([("mine", DENSE_RELU, check)]), before)
    assert seen == ["nn.relu"]


@pytest.mark.parametrize(
    "table", [[("a",)], [(DENSE_RELU, "a")], [("a", DENSE_RELU, 3)], [("a", DENSE_RELU, len, len)]]
)
def test_refusals(table: Any) -> None:
    with pytest.raises(ArgumentError, match="pattern_table has names, patterns and checks"):
        MergeComposite(table)


def test_batching_ops() -> None:
    weights = [free(f"w{i}", 4, 4) for i in range(3)]
    before = Function((X, *weights), Tuple(tuple(op("nn.dense", X, w) for w in weights)))
    after = ran(BatchingOps(), before, opt_level=4)
    assert ops_in(after).count("nn.batch_matmul") == 1 and "nn.dense" not in ops_in(after)
    same_values(before, after)
    stays(BatchingOps(), before, opt_level=3)
