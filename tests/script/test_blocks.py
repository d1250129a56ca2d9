"""Kernels with blocks, as TVM prints them: read as plain loops, with the meaning that they have there."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import te
from pullback.ir import ScriptError, assert_structural_equal
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T
from pullback.te.naive import naive_kernel
from pullback.tir import interpreter

A2, B2 = np.arange(12, dtype="float32").reshape(3, 4), np.linspace(-1, 2, 20, dtype="float32").reshape(4, 5)


@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle):
    T.func_attr({"tir.noalias": T.bool(True), "global_symbol": "product"})
    A = T.match_buffer(a, (T.int64(3), T.int64(4)), "float32")
    B = T.match_buffer(b, (4, 5), "float32")
    C = T.match_buffer(c, (3, 5))
    for i, j, k in T.grid(T.int64(3), T.int64(5), 4):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            T.reads(A[vi, vk], B[vk, vj])
            T.writes(C[vi, vj])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def run(kernel, *arrays, out):
    result = np.full(out, np.nan, "float32")
    interpreter.run(kernel, [*arrays, result])
    return result


def test_a_product():
    np.testing.assert_allclose(run(product, A2, B2, out=(3, 5)), A2 @ B2, rtol=1e-6)
    assert product.attrs == {"global_symbol": "product"}
    assert [b.name for b in product.buffers] == ["A", "B", "C"]


def test_it_is_what_a_tensor_expression_becomes():
    a, b = te.placeholder((3, 4), name="A"), te.placeholder((4, 5), name="B")
    k = te.reduce_axis(4, "k")
    c = te.compute((3, 5), lambda i, j: te.sum(a[i, k.var] * b[k.var, j], k))
    assert_structural_equal(product, naive_kernel("product", [a, b], [c]))


def test_it_is_printed_without_blocks_and_read_back():
    assert "block" not in product.script() and "if" not in product.script()
    assert_structural_equal(from_source(product.script()), product)


@T.prim_func
def pieces(A: T.Buffer((10,), "float32"), out: T.Buffer((2,), "float32")):
    for h, o in T.grid(2, 2):
        for i in T.serial(4):
            with T.block("sum"):
                vh = T.axis.spatial(2, h)
                vk = T.axis.reduce((0, 6), o * 4 + i)
                T.where(o * 4 + i < 5)
                T.block_attr({"note": 1})
                with T.init():
                    out[vh] = T.float32(0)
                out[vh] += A[vh * 5 + vk]


def test_a_sum_in_pieces_with_a_condition():
    x = np.arange(10, dtype="float32")
    np.testing.assert_allclose(run(pieces, x, out=(2,)), x.reshape(2, 5).sum(1))


@T.prim_func
def outside(A: T.Buffer((3, 4), "float32"), out: T.Buffer((4,), "float32")):
    for k, i in T.grid(3, 4):  # the loop over the sum is outside of the other
        with T.block("sum"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                out[vi] = T.float32(0)
            out[vi] = out[vi] + A[vk, vi]


def test_a_sum_whose_loop_is_outside():
    np.testing.assert_allclose(run(outside, A2, out=(4,)), A2.sum(0))
    assert "if" in outside.script()


@T.prim_func
def two_sums(A: T.Buffer((3, 4, 2), "float32"), out: T.Buffer((3,), "float32")):
    for i, j, k in T.grid(3, 4, 2):
        with T.block("max"):
            vi = T.axis.S(3, i)
            vj = T.axis.R(4, j)
            vk = T.axis.R(2, k)
            with T.init():
                out[vi] = T.float32(-1e30)
            out[vi] = T.max(out[vi], A[vi, vj, vk])


@T.prim_func
def row_softmax(a: T.handle, Y: T.Buffer((3, 4), "float32")):
    with T.block("root"):
        X = T.match_buffer(a, (3, 4), "float32")
        total = T.alloc_buffer((3,))
        E = T.alloc_buffer((3, 4))
        for i, j in T.grid(3, 4):
            with T.block("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                E[vi, vj] = T.if_then_else(X[vi, vj] > T.float32(-50), T.exp(X[vi, vj]), T.float32(0))
        for i, j in T.grid(3, 4):
            with T.block("sum"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    total[vi] = T.float32(0)
                total[vi] += E[vi, vj]
        for i in T.serial(3):
            for j in T.unroll(4):
                with T.block("divide"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = E[vi, vj] / total[vi]
                T.evaluate(0)


def test_two_axes_of_one_sum_and_several_blocks():
    x = np.random.default_rng(0).normal(size=(3, 4, 2)).astype("float32")
    np.testing.assert_allclose(run(two_sums, x, out=(3,)), x.max((1, 2)))
    assert "if" not in two_sums.script()
    e = np.exp(A2.astype("float64") / 6)
    np.testing.assert_allclose(run(row_softmax, A2 / 6, out=(3, 4)), e / e.sum(1, keepdims=True), rtol=1e-5)


@I.ir_module
class Module:
    @T.prim_func(private=True)
    def product(x: T.handle, w: T.handle, y: T.handle):
        T.func_attr({"tir.noalias": True})
        n = T.int64()
        A = T.match_buffer(x, (n, T.int64(4)), "float32")
        B = T.match_buffer(w, (T.int64(4), T.int64(5)), "float32")
        C = T.match_buffer(y, (n, T.int64(5)), "float32")
        for i, j, k in T.grid(n, T.int64(5), T.int64(4)):
            with T.block("T_matmul"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads(A[v_i, v_k], B[v_k, v_j])
                T.writes(C[v_i, v_j])
                with T.init():
                    C[v_i, v_j] = T.float32(0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 5), "float32")) -> R.Tensor((), "float32"):
        n = T.int64()
        cls = Module
        with R.dataflow():
            y = R.call_tir(cls.product, (x, w), out_sinfo=R.Tensor((n, 5), "float32"))
            z = R.sum(y)
            R.output(z)
        return z


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_a_module_with_blocks_has_gradients(target):
    module = pullback.relax.transform.Gradient("main")(Module)
    value, (dx, dw) = pullback.compile(module, target).function("main_adjoint")(A2, B2)
    np.testing.assert_allclose(value.numpy(), (A2 @ B2).sum(), rtol=1e-5)
    np.testing.assert_allclose(dx.numpy(), np.ones((3, 5)) @ B2.T, rtol=1e-5)
    np.testing.assert_allclose(dw.numpy(), A2.T @ np.ones((3, 5)), rtol=1e-5)


HEAD = 'def f(a: T.handle, B: T.Buffer((4,), "float32")):\n    A = T.match_buffer(a, (4,), "float32")\n'
LOOP = HEAD + "    for i in range(4):\n"
MISTAKES = {
    "unmatched": ('def f(a: T.handle):\n    T.evaluate(0)\n', "no T.match_buffer says what 'a' is"),
    "twice": (HEAD + '    C = T.match_buffer(a, (4,), "float32")\n', "'a' is matched twice"),
    "no handle": (HEAD + '    C = T.match_buffer(B, (4,))\n', "takes a parameter a: T.handle"),
    "strides": (HEAD.replace('"float32")\n', '"float32", strides=[2])\n'), "strides=.* cannot be had"),
    "axis": (LOOP + "        vi = T.axis.spatial(4, i)\n        B[vi] = A[vi]\n", "T.axis stands outside of a block"),
    "init": (LOOP + "        with T.init():\n            B[i] = 0.0\n", "stands outside of a block"),
    "reads": (LOOP + "        T.reads(A[i])\n        B[i] = A[i]\n", "T.reads.* stands outside of a block"),
    "letters": (LOOP + '        with T.block("B"):\n            v = T.axis.remap("SS", [i])\n', "takes a letter"),
    "names": (LOOP + '        with T.block("B"):\n            v, w = T.axis.remap("S", [i])\n', "1 names of axes"),
    "condition": (LOOP + '        with T.block("B"):\n            T.where(3)\n', "T.where takes a condition"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    text, message = MISTAKES[name]
    with pytest.raises(ScriptError, match=message) as error:
        from_source("@T.prim_func\n" + text)
    assert error.value.hint and error.value.span


def test_outside_of_scripts_blocks_say_where_they_belong():
    for function in (T.block, T.init, T.reads, T.writes, T.block_attr):
        with pytest.raises(pullback.ir.UserError, match="means something only inside") as error:
            function(*([{}] if function is T.block_attr else []))
        assert error.value.hint
    with pytest.raises(pullback.ir.UserError, match="means something only inside"):
        T.where(True)
