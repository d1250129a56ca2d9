"""The stencils as kernels of the loop IR: the loop over time too, as the grid is swept in place."""

from __future__ import annotations

from benchmarks.numerics.stencils import adi_numbers
from pullback.ir.module import IRModule
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


def jacobi_2d(steps: int, n: int) -> IRModule:
    @I.ir_module
    class Jacobi:
        @T.prim_func
        def sweeps(x: T.Buffer((n, n), "float64"), a: T.Buffer((n, n), "float64")):
            b = T.alloc_buffer((n, n), "float64")
            for i in T.parallel(n):
                for j in T.vectorized(n):
                    a[i, j] = x[i, j]
                    b[i, j] = x[i, j]
            for _t in range(steps):
                for i in T.parallel(n - 2):
                    for j in T.vectorized(n - 2):
                        b[i + 1, j + 1] = 0.2 * (
                            a[i + 1, j + 1] + a[i + 1, j] + a[i + 1, j + 2] + a[i + 2, j + 1] + a[i, j + 1]
                        )
                for i in T.parallel(n - 2):
                    for j in T.vectorized(n - 2):
                        a[i + 1, j + 1] = 0.2 * (
                            b[i + 1, j + 1] + b[i + 1, j] + b[i + 1, j + 2] + b[i + 2, j + 1] + b[i, j + 1]
                        )

        @R.function
        def main(x: R.Tensor((n, n), "float64"), c: R.Tensor((n, n), "float64")):
            cls = Jacobi
            a = R.call_tir(cls.sweeps, (x,), out_sinfo=R.Tensor((n, n), "float64"))
            value = R.sum(R.multiply(a, c))
            return value

    return Jacobi


def seidel_2d(steps: int, n: int) -> IRModule:
    @I.ir_module
    class Seidel:
        @T.prim_func
        def sweeps(x: T.Buffer((n, n), "float64"), a: T.Buffer((n, n), "float64")):
            for i in range(n):
                for j in T.vectorized(n):
                    a[i, j] = x[i, j]
            for _t in range(steps):
                for i in range(n - 2):
                    for j in range(n - 2):
                        a[i + 1, j + 1] = (
                            (a[i, j] + a[i, j + 1] + a[i, j + 2])
                            + (a[i + 1, j + 1] + a[i + 1, j + 2])
                            + (a[i + 2, j] + a[i + 2, j + 1] + a[i + 2, j + 2])
                            + a[i + 1, j]
                        ) / 9.0

        @R.function
        def main(x: R.Tensor((n, n), "float64"), c: R.Tensor((n, n), "float64")):
            cls = Seidel
            a = R.call_tir(cls.sweeps, (x,), out_sinfo=R.Tensor((n, n), "float64"))
            value = R.sum(R.multiply(a, c))
            return value

    return Seidel


def adi(steps: int, n: int) -> IRModule:
    a, b, d, e = adi_numbers(steps, n)
    g, h = 1.0 + 2.0 * d, 1.0 + 2.0 * a

    @I.ir_module
    class Directions:
        @T.prim_func
        def sweeps(x: T.Buffer((n, n), "float64"), u: T.Buffer((n, n), "float64")):
            v = T.alloc_buffer((n, n), "float64")
            w = T.alloc_buffer((n, n), "float64")  # u, transposed
            q = T.alloc_buffer((n, n), "float64")
            t = T.alloc_buffer((n,), "float64")
            p = T.alloc_buffer((n,), "float64")
            r = T.alloc_buffer((n,), "float64")
            p[0] = 0.0
            r[0] = 0.0
            for j in range(n - 2):
                p[j + 1] = -a / (a * p[j] + b)
                r[j + 1] = -d / (d * r[j] + e)
            for i in range(n):
                for j in T.vectorized(n):
                    u[i, j] = x[i, j]
            for _t in range(steps):
                for i in T.vectorized(n - 2):
                    q[0, i + 1] = 1.0
                    v[0, i + 1] = 1.0
                    v[n - 1, i + 1] = 1.0
                for j in range(n - 2):
                    for i in T.vectorized(n - 2):
                        q[j + 1, i + 1] = (
                            g * u[j + 1, i + 1] - d * u[j + 1, i] - d * u[j + 1, i + 2] - a * q[j, i + 1]
                        ) / (a * p[j] + b)
                for j in range(n - 2):
                    for i in T.vectorized(n - 2):
                        v[n - 2 - j, i + 1] = p[n - 2 - j] * v[n - 1 - j, i + 1] + q[n - 2 - j, i + 1]
                for i in T.vectorized(n - 2):
                    q[0, i + 1] = 1.0
                    w[0, i + 1] = 1.0
                    w[n - 1, i + 1] = 1.0
                for j in range(n - 2):
                    for i in T.vectorized(n):
                        t[i] = v[i, j + 1]
                    for i in T.vectorized(n - 2):
                        q[j + 1, i + 1] = (h * t[i + 1] - a * t[i] - a * t[i + 2] - d * q[j, i + 1]) / (d * r[j] + e)
                for j in range(n - 2):
                    for i in T.vectorized(n - 2):
                        w[n - 2 - j, i + 1] = r[n - 2 - j] * w[n - 1 - j, i + 1] + q[n - 2 - j, i + 1]
                for i in range(n - 2):
                    for j in T.vectorized(n):
                        u[i + 1, j] = w[j, i + 1]

        @R.function
        def main(x: R.Tensor((n, n), "float64"), c: R.Tensor((n, n), "float64")):
            cls = Directions
            u = R.call_tir(cls.sweeps, (x,), out_sinfo=R.Tensor((n, n), "float64"))
            value = R.sum(R.multiply(u, c))
            return value

    return Directions


def heat_3d(steps: int, n: int) -> IRModule:
    @I.ir_module
    class Heat:
        @T.prim_func
        def sweeps(x: T.Buffer((n, n, n), "float64"), a: T.Buffer((n, n, n), "float64")):
            b = T.alloc_buffer((n, n, n), "float64")
            for i in T.parallel(n):
                for j in range(n):
                    for k in T.vectorized(n):
                        a[i, j, k] = x[i, j, k]
                        b[i, j, k] = x[i, j, k]
            for _t in range(steps):
                for i in T.parallel(n - 2):
                    for j in range(n - 2):
                        for k in T.vectorized(n - 2):
                            b[i + 1, j + 1, k + 1] = 0.25 * a[i + 1, j + 1, k + 1] + 0.125 * (
                                (a[i + 2, j + 1, k + 1] + a[i, j + 1, k + 1])
                                + (a[i + 1, j + 2, k + 1] + a[i + 1, j, k + 1])
                                + (a[i + 1, j + 1, k + 2] + a[i + 1, j + 1, k])
                            )
                for i in T.parallel(n - 2):
                    for j in range(n - 2):
                        for k in T.vectorized(n - 2):
                            a[i + 1, j + 1, k + 1] = 0.25 * b[i + 1, j + 1, k + 1] + 0.125 * (
                                (b[i + 2, j + 1, k + 1] + b[i, j + 1, k + 1])
                                + (b[i + 1, j + 2, k + 1] + b[i + 1, j, k + 1])
                                + (b[i + 1, j + 1, k + 2] + b[i + 1, j + 1, k])
                            )

        @R.function
        def main(x: R.Tensor((n, n, n), "float64"), c: R.Tensor((n, n, n), "float64")):
            cls = Heat
            a = R.call_tir(cls.sweeps, (x,), out_sinfo=R.Tensor((n, n, n), "float64"))
            value = R.sum(R.multiply(a, c))
            return value

    return Heat
