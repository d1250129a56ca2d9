"""What samples do not show of moving and indexing: text, several updates of one element, formulas by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import runtime
from pullback.ir.module import IRModule
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Tuple, Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.transform.gradient import Gradient
from pullback.script import ir as I
from pullback.script import relax as R
from tests.helpers import round_trip


def module_of(params: list[Var], result: Expr) -> IRModule:
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(result))
    return builder.get()


def both(params: list[Var], result: Expr, values: list[np.ndarray]) -> np.ndarray:
    """The interpreter's result, which machine code gives bit for bit."""
    module = module_of(params, result)
    expected = evaluate(module, "main", values)
    np.testing.assert_array_equal(pullback.compile(module).function("main")(*values).numpy(), expected)
    return expected


def test_text() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((3, 4), "float32"), v: R.Tensor((2,), "float32"), i: R.Tensor((2,), "int64")):
            with R.dataflow():
                a = R.index_tensor(x, [i, i], mode="clip")
                b = R.index_put(x, [i, i], v + a, accumulate=True)
                c = R.dynamic_strided_slice(
                    b, R.const([0, 3], "int64"), R.const([3, 0], "int64"), R.const([1, -2], "int64")
                )
                d = R.image.resize1d(R.expand_dims(c, 0), 5)
                R.output(d)
            return d

    round_trip(Module)
    assert Module["main"].ret_struct_info.shape == (1, 3, 5)


def test_indices_may_be_a_tuple_of_the_graph() -> None:
    x, i = Var("x", value_info(np.zeros((3, 4)))), Var("i", value_info(np.zeros(2, np.int64)))
    call = ops.index_tensor(x, Tuple((i, i)))
    assert len(call.args) == 3 and call.struct_info.shape == (2,)


def test_of_several_updates_the_last_stays() -> None:
    data, values = np.zeros((2, 3)), np.arange(1.0, 6)
    rows, columns = np.array([0, 1, 0, 1, 0]), np.array([2, 0, 2, 0, 2])
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate((data, values, rows, columns))]
    x, v, i, j = params
    got = both(params, ops.index_put(x, [i, j], v), [data, values, rows, columns])
    np.testing.assert_array_equal(got, [[0, 0, 5], [4, 0, 0]])
    weighted = ops.sum(ops.index_put(x, [i, j], v) * np.array([[1.0, 2, 3], [4, 5, 6]]))
    adjoint = Gradient("main", [x, v])(module_of(params, weighted))
    dx, dv = evaluate(adjoint, "main_adjoint", [data, values, rows, columns])[1]
    np.testing.assert_array_equal(dx, [[1, 2, 0], [0, 5, 6]])
    np.testing.assert_array_equal(dv, [0, 0, 0, 4, 3])


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_sums_do_not_depend_on_threads(threads: int) -> None:
    rng = np.random.default_rng(5)
    data, updates = rng.standard_normal((50, 300)).astype("f"), rng.standard_normal((4000, 300)).astype("f")
    rows = rng.integers(0, 50, (4000, 1))
    params = [Var(f"x{k}", value_info(v)) for k, v in enumerate((data, rows, updates))]
    expected = data.copy()
    for row, update in zip(rows[:, 0], updates, strict=True):
        expected[row] += update
    module = module_of(params, ops.scatter_nd(*params, "add"))
    before = runtime.get_num_threads()
    runtime.set_num_threads(threads)
    try:
        got = pullback.compile(module).function("main")(data, rows, updates).numpy()
    finally:
        runtime.set_num_threads(before)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("mode", "expected"), [("clip", [0, 3, 1, 0]), ("wrap", [2, 1, 1, 3])])
def test_indices_beyond_the_axis(mode: str, expected: list[int]) -> None:
    data, indices = np.arange(4.0), np.array([-6, 5, 1, -1])
    params = [Var("x", value_info(data)), Var("i", value_info(indices))]
    for call in (ops.gather_elements(*params, 0, mode), ops.index_tensor(params[0], [params[1]], mode)):
        np.testing.assert_array_equal(both(params, call, [data, indices]), expected)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_by_its_formula(mode: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 12, 2, 3))
    expected = np.empty((2, 3, 4, 6))
    for c, i, j in np.ndindex(3, 2, 2):
        channel = (i * 2 + j) * 3 + c if mode == "DCR" else (c * 2 + i) * 2 + j
        expected[:, c, i::2, j::2] = x[:, channel]
    param = Var("x", value_info(x))
    np.testing.assert_array_equal(both([param], ops.nn.depth_to_space(param, 2, mode=mode), [x]), expected)
    if mode == "DCR":
        back = Var("y", value_info(expected))
        np.testing.assert_array_equal(both([back], ops.nn.space_to_depth(back, 2), [expected]), x)


def adjoint_of(call: Any, x: Var, value: np.ndarray) -> np.ndarray:
    return evaluate(Gradient("main")(module_of([x], ops.sum(call))), "main_adjoint", [value])[1][0]


def test_reflected_elements_count_twice() -> None:
    value = np.zeros((1, 4))
    x = Var("x", value_info(value))
    np.testing.assert_array_equal(adjoint_of(ops.nn.pad(x, (0, 0, 2, 1), "reflect"), x, value), [[1, 2, 3, 1]])
    np.testing.assert_array_equal(adjoint_of(ops.nn.pad(x, (0, 0, 2, 1), "replicate"), x, value), [[3, 1, 1, 2]])
    np.testing.assert_array_equal(adjoint_of(ops.nn.pad(x, (0, 0, 2, 1), "circular"), x, value), [[2, 1, 2, 2]])


def test_what_lies_beside_the_image_is_not_read() -> None:
    """An infinity at the edge stays out of a sample of which the edge has no part."""
    image, grid = np.array([[[[np.inf, 1.0, 2.0]]]]), np.array([-2.5, 0.5, 1.5]).reshape(1, 1, 1, 3)
    grid = np.concatenate([grid, np.zeros_like(grid)], 1)
    params = [Var("x", value_info(image)), Var("g", value_info(grid))]
    got = both(params, ops.image.grid_sample(*params), [image, grid])
    np.testing.assert_array_equal(got, [[[[0, 1.5, 1.0]]]])
