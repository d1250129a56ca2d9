"""Kernels written by users take the loop-IR path: static, symbolic, with scalars, beside graph ops."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import ShapeError, UserError
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T

BACKENDS = pytest.mark.parametrize("target", ["debug", "llvm"])


@I.ir_module
class Module:
    @T.prim_func
    def scale(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
        n = T.int64()
        for i in T.parallel(n):
            for j in T.vectorized(4):
                B[i, j] = A[i, j] * T.float32(3.0)

    @R.function
    def main(x: R.Tensor(("m", 4), "float32")):
        m = T.int64()
        cls = Module
        with R.dataflow():
            y = R.exp(x)
            z = R.call_tir(cls.scale, (y,), out_sinfo=R.Tensor((m, 4), "float32"))
            s = R.add(z, x)
            R.output(s)
        return s

    @R.function
    def both(x: R.Tensor((2, 4), "float32"), y: R.Tensor((3, 4), "float32")):
        cls = Module
        with R.dataflow():
            a = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((2, 4), "float32"))
            b = R.call_tir(cls.scale, (y,), out_sinfo=R.Tensor((3, 4), "float32"))
            R.output(a, b)
        return (a, b)


@I.ir_module
class Wrong:
    @T.prim_func
    def scale(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
        n = T.int64()
        for i, j in T.grid(n, 4):
            B[i, j] = A[i, j] * T.float32(3.0)

    @R.function
    def main(x: R.Tensor((2, 5), "float32")):
        cls = Wrong
        with R.dataflow():
            a = R.call_tir(cls.scale, (x,), out_sinfo=R.Tensor((2, 5), "float32"))
            R.output(a)
        return a


@BACKENDS
def test_symbolic_kernels(target):
    executable = pullback.compile(Module, target)
    for n in (1, 3, 8):
        x = np.linspace(-1, 1, n * 4, dtype="float32").reshape(n, 4)
        np.testing.assert_allclose(executable["main"](x).numpy(), 3 * np.exp(x) + x, rtol=1e-5)


@BACKENDS
def test_one_kernel_for_two_sizes(target):
    x, y = np.ones((2, 4), "float32"), np.ones((3, 4), "float32")
    a, b = pullback.compile(Module, target)["both"](x, y)
    assert a.shape == (2, 4) and b.shape == (3, 4)
    assert (a.numpy() == 3).all() and (b.numpy() == 3).all()


def test_shapes_that_do_not_fit():
    message = r"main: scale takes A as Tensor\(\(2, 4\), float32\), got Tensor\(\(2, 5\), float32\)"
    with pytest.raises(ShapeError, match=message):
        pullback.compile(Wrong)


@I.ir_module
class Casts:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        m = T.int64()
        y = R.match_cast(x, R.Tensor((m, 4), "float32"))
        z = R.reshape(y, (m * 4,))
        return z

    @R.function
    def narrow(x: R.Tensor(("n",), "float32")):
        y = R.match_cast(x, R.Tensor((3,), "float32"))
        return y


@BACKENDS
def test_match_cast(target):
    executable = pullback.compile(Casts, target)
    assert executable["main"](np.ones((2, 4), "float32")).shape == (8,)
    assert executable["narrow"](np.ones(3, "float32")).shape == (3,)
    with pytest.raises(
        UserError, match=r"match_cast expected Tensor\(\(3,\), float32\), got Tensor\(\(4,\), float32\)"
    ):
        executable["narrow"](np.ones(4, "float32"))


def test_parameters_need_shapes():
    @R.function
    def main(x: R.Tensor(dtype="float32", ndim=2)) -> R.Tensor(dtype="float32", ndim=2):
        return x

    with pytest.raises(UserError, match="main: parameter x has no shape"):
        pullback.compile(main)


@I.ir_module
class Repeated:
    @T.prim_func
    def count(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for _k in range(3):
            for i in range(4):
                B[i] = A[i] + T.float32(1.0)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        R.func_attr({"donate": (0,)})
        cls = Repeated
        with R.dataflow():
            s = R.sum(x)
            y = R.call_tir(cls.count, (x,), out_sinfo=R.Tensor((4,), "float32"))
            R.output(s, y)
        return (s, y)


@BACKENDS
def test_a_users_kernel_never_works_in_place(target):
    x = pullback.tensor([0.0, 1.0, 2.0, 3.0])
    pullback.compile(Repeated, target)["main"].bind([x])()
    np.testing.assert_array_equal(x.numpy(), [1, 2, 3, 4])
