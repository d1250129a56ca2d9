"""MoveViews: what it rewrites, what it leaves, and what fusion makes of the result."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.driver.pipeline import lower_function, prepare
from pullback.ir import IRModule, assert_structural_equal
from pullback.relax.transform import Gradient, MoveViews
from pullback.relax.transform.move_views import joined_axis
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target


def test_views_of_parts_are_parts_of_a_view() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((5, 24), "float32")):
            with R.dataflow():
                parts = R.split(x, 3, axis=-1)
                a = parts[0]
                a_1 = R.reshape(a, (5, 2, 4))
                c = parts[2]
                c_1 = R.reshape(c, (5, 2, 4))
                y = R.multiply(a_1, c_1)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((5, 24), "float32")):
            with R.dataflow():
                v = R.reshape(x, (5, 6, 4))
                a_1 = R.strided_slice(v, [1], [0], [2])
                w = R.reshape(x, (5, 6, 4))
                c_1 = R.strided_slice(w, [1], [4], [6])
                y = R.multiply(a_1, c_1)
                R.output(y)
            return y

    assert_structural_equal(MoveViews()(Before), Expected)
    assert_structural_equal(MoveViews()(Expected), Expected)


def test_an_axis_of_parts_may_go_away() -> None:
    """Of (tokens, 3, heads, size) each part has one value of the second axis, which its view leaves out."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((5, 3, 2, 4), "float32")):
            with R.dataflow():
                q = R.strided_slice(x, [1], [1], [2])
                q_1 = R.squeeze(q, axis=[1])
                y = R.exp(q_1)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((5, 3, 2, 4), "float32")):
            with R.dataflow():
                v = R.reshape(x, (5, 6, 4))
                q_1 = R.strided_slice(v, [1], [2], [4])
                y = R.exp(q_1)
                R.output(y)
            return y

    assert_structural_equal(MoveViews()(Before), Expected)


def left_alone(module: IRModule) -> None:
    assert_structural_equal(MoveViews()(module), module)


def test_parts_that_begin_within_a_row_of_the_view_stay() -> None:
    @I.ir_module
    class Odd:
        @R.function
        def main(x: R.Tensor((5, 24), "float32")):
            with R.dataflow():
                a = R.strided_slice(x, [1], [2], [10])
                a_1 = R.reshape(a, (5, 2, 4))
                y = R.exp(a_1)
                R.output(y)
            return y

    @I.ir_module
    class Longer:  # the whole is no multiple of a row
        @R.function
        def main(x: R.Tensor((5, 22), "float32")):
            with R.dataflow():
                a = R.strided_slice(x, [1], [4], [12])
                a_1 = R.reshape(a, (5, 2, 4))
                y = R.exp(a_1)
                R.output(y)
            return y

    @I.ir_module
    class Strided:
        @R.function
        def main(x: R.Tensor((5, 24), "float32")):
            with R.dataflow():
                a = R.strided_slice(x, [1], [0], [16], [2])
                a_1 = R.reshape(a, (5, 2, 4))
                y = R.exp(a_1)
                R.output(y)
            return y

    for module in (Odd, Longer, Strided):
        left_alone(module)


def test_a_part_fuses_with_what_computes_its_source_for_it_alone() -> None:
    @I.ir_module
    class Alone:
        @R.function
        def main(x: R.Tensor((5, 24), "float32")):
            with R.dataflow():
                e = R.exp(x)
                a = R.strided_slice(e, [1], [4], [12])
                a_1 = R.reshape(a, (5, 2, 4))
                y = R.exp(a_1)
                R.output(y)
            return y

    left_alone(Alone)


def test_a_concatenation_of_views_is_a_view_of_one() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((5, 2, 4), "float32"), y: R.Tensor((5, 3, 4), "float32")):
            with R.dataflow():
                a = R.reshape(x, (5, 8))
                b = R.reshape(y, (5, 12))
                c = R.concat([a, b], axis=-1)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((5, 2, 4), "float32"), y: R.Tensor((5, 3, 4), "float32")):
            with R.dataflow():
                whole = R.concat([x, y], axis=1)
                c = R.reshape(whole, (5, 20))
                R.output(c)
            return c

    assert_structural_equal(MoveViews()(Before), Expected)


@pytest.mark.parametrize(
    "sources, views, axis, expected",
    [
        ([(5, 2, 4), (5, 3, 4)], [(5, 8), (5, 12)], 1, 1),
        ([(2, 4), (3, 4)], [(8,), (12,)], 0, 0),
        ([(5, 2, 4), (5, 2, 6)], [(5, 8), (5, 12)], 1, None),  # rows of different length
        ([(2, 5, 4), (3, 5, 4)], [(10, 4), (15, 4)], 1, None),  # along another axis
        ([(5, 2, 4), (5, 12)], [(5, 8), (5, 12)], 1, None),  # of different rank
    ],
)
def test_joined_axis(sources, views, axis, expected) -> None:
    assert joined_axis(sources, views, axis) == expected


def projected(heads: int, keys: int) -> IRModule:
    """Attention of queries, keys and values that one product computes, and the gradients."""
    size = 4
    width = (heads + 2 * keys) * size

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((2, 9, 8), "float32"), w: R.Tensor((8, width), "float32")):
            with R.dataflow():
                qkv = R.matmul(x, w)
                parts = R.split(qkv, (heads * size, (heads + keys) * size), axis=-1)
                q = R.reshape(parts[0], (2, 9, heads, size))
                k = R.reshape(parts[1], (2, 9, keys, size))
                v = R.reshape(parts[2], (2, 9, keys, size))
                y = R.nn.attention(q, k, v, causal_mask="TopLeft")
                z = R.square(y)
                loss = R.sum(z)
                R.output(loss)
            return loss

    return Gradient("main")(Model)


@pytest.mark.parametrize("heads, keys", [(2, 2), (4, 2)])
def test_attention_reads_and_writes_where_the_products_do(heads: int, keys: int) -> None:
    """No kernel copies queries, keys and values, or puts their adjoints together; every backend computes the same."""
    module = projected(heads, keys)
    work, _ = lower_function(prepare(module), "main_adjoint", {}, Target("llvm"))
    calls = [b.value.args[0].name for b in work["main_adjoint"].bindings if op_of(b.value) == "relax.call_tir"]
    kinds = {name.removeprefix("fused_").split("_")[0] for name in calls}
    assert "attention" in kinds and "fused_attention_concat" in calls
    assert not kinds & {"split", "strided", "concat"}, calls
    rng = np.random.default_rng(0)
    infos = [p.struct_info for p in module["main"].params]
    feeds = [pullback.nd.array(rng.normal(0, 0.3, i.shape).astype(i.dtype)) for i in infos]
    results = []
    for target in ("debug", "llvm"):
        machine = relax.VirtualMachine(pullback.compile(module, target), pullback.cpu(0))
        loss, adjoints = machine["main_adjoint"](*feeds)
        results.append([tensor.numpy() for tensor in (loss, *adjoints)])
    for expected, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def op_of(value: object) -> str:
    return getattr(getattr(value, "op", None), "name", "")
