"""random.shard: the parts that ranks draw are what one process draws, by native code and by the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import tir
from pullback.ir import IRModule, UserError
from pullback.relax import BlockBuilder, TensorStructInfo, Var
from pullback.relax.op.namespace import ops
from pullback.script import relax as R

STATE, RANK = TensorStructInfo((2,), "uint64"), TensorStructInfo((), "int64")
VALUE = np.array([11, 5 << 40 | 7], np.uint64)
DRAWS = [
    ("random.bits", {"dtype": "uint64"}),
    ("random.uniform", {"low": -1.0, "high": 3.0}),
    ("random.normal", {"mean": 2.0, "dtype": "bfloat16"}),
    ("random.bernoulli", {"p": 0.2}),
    ("random.randint", {"low": -3, "high": 200}),
]


def module_of(build: Any, *infos: TensorStructInfo) -> IRModule:
    params = [Var(f"x{k}", info) for k, info in enumerate(infos)]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(build(*params)))
    return builder.get()


@pytest.mark.parametrize("target", ["llvm", "debug"])
@pytest.mark.parametrize(
    "shape, axis, ranks",
    [
        ((4, 64), 0, 3),  # whole groups
        ((1, 64, 2), 1, 2),  # the same
        ((3, 10), 0, 4),
        ((1,), 0, 5),
        ((5, 2, 64), 1, 2),  # runs apart from each other
        ((2, 3), -1, 3),
        ((300, 70), 0, 2),
    ],
)
@pytest.mark.parametrize("name, attrs", DRAWS)
def test_parts_of_what_one_process_draws(name, attrs, shape, axis, ranks, target):
    whole_shape = [n * ranks if k == axis % len(shape) else n for k, n in enumerate(shape)]
    draw = getattr(ops.random, name.removeprefix("random."))
    whole = pullback.compile(module_of(lambda s: draw(s, whole_shape, **attrs), STATE), target)["main"](VALUE).numpy()

    def part(s: Var, rank: Var) -> Any:
        return ops.random.shard(s, rank, name, shape, ranks, axis, tuple(attrs.items()))

    function = pullback.compile(module_of(part, STATE, RANK), target)["main"]
    parts = [function(VALUE, np.array(k)).numpy() for k in range(ranks)]
    assert all(p.shape == shape and p.dtype == whole.dtype for p in parts)
    np.testing.assert_array_equal(np.concatenate(parts, axis), whole)


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_any_number_of_rows(target):
    """Of which it is known when it runs whether they are whole groups."""
    n = tir.Var("n")

    def part(x: Var, s: Var, rank: Var) -> Any:
        return ops.random.shard(s, rank, "random.bits", (n, 16), 3, 0) + ops.astype(x, "uint32")

    infos = TensorStructInfo((n, 16), "float32"), STATE, RANK
    function = pullback.compile(module_of(part, *infos), target)["main"]
    for rows in (4, 5, 8):
        whole = ops.random.bits.numpy(VALUE, shape=(3 * rows, 16), dtype="uint32")
        parts = [function(np.zeros((rows, 16), np.float32), VALUE, np.array(k)).numpy() for k in range(3)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"draw": "random.bernouli"}, "draw must be one of random.bernoulli, .*; got 'random.bernouli'"),
        ({"attrs": (("q", 0.5),)}, r"random\.bernoulli has no attribute 'q'"),
        ({"draw": "random.randint", "attrs": (("low", 0),)}, r"random\.randint lacks the attribute 'high'"),
        ({"attrs": (("p", 1.5),)}, r"random\.bernoulli: p must be a number from 0 to 1, got 1\.5"),
        ({"num_workers": 0}, "num_workers must be an int of at least 1, got 0"),
        ({"axis": 2}, "axis"),
        ({"rank": Var("r", STATE)}, r"rank must be Tensor\(\(\), int64\), got Tensor\(\(2,\), uint64\)"),
        ({"state": Var("s", RANK)}, "the state must be"),
    ],
)
def test_errors(change, message):
    given = {"state": Var("s", STATE), "rank": Var("r", RANK), "draw": "random.bernoulli", "shape": (3, 4)}
    with pytest.raises(UserError, match=message):
        R.random.shard(**given | {"num_workers": 2} | change)
