"""The solvers as kernels of the loop IR, whose inner loops run along rows in memory."""

from __future__ import annotations

from pullback.ir.module import IRModule
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


def cholesky(n: int) -> IRModule:
    @I.ir_module
    class Cholesky:
        @T.prim_func
        def factor(x: T.Buffer((n, n), "float64"), y: T.Buffer((n, n), "float64")):
            a = T.alloc_buffer((n, n), "float64")  # what is left to factor: its upper triangle
            u = T.alloc_buffer((n, n), "float64")  # the factor's rows: the result, transposed
            for i in range(n):
                for j in range(n - i):
                    a[i, i + j] = x[i + j, i]
            for k in range(n):
                u[k, k] = T.sqrt(a[k, k])
                for j in T.vectorized(n - 1 - k):
                    u[k, k + 1 + j] = a[k, k + 1 + j] / u[k, k]
                for i in range(n - 1 - k):
                    for j in T.vectorized(n - 1 - k - i):
                        a[k + 1 + i, k + 1 + i + j] = (
                            a[k + 1 + i, k + 1 + i + j] - u[k, k + 1 + i] * u[k, k + 1 + i + j]
                        )
            for i in range(n):
                for j in range(i + 1):
                    y[i, j] = u[j, i]
                for j in range(n - 1 - i):
                    y[i, i + 1 + j] = 0.0

        @R.function
        def main(x: R.Tensor((n, n), "float64"), c: R.Tensor((n, n), "float64")):
            cls = Cholesky
            y = R.call_tir(cls.factor, (x,), out_sinfo=R.Tensor((n, n), "float64"))
            value = R.sum(R.multiply(y, c))
            return value

    return Cholesky


def lu(n: int) -> IRModule:
    @I.ir_module
    class LU:
        @T.prim_func
        def factor(x: T.Buffer((n, n), "float64"), a: T.Buffer((n, n), "float64")):
            for i in range(n):
                for j in T.vectorized(n):
                    a[i, j] = x[i, j]
            for i in range(n):
                for k in range(i):
                    a[i, k] = a[i, k] / a[k, k]
                    for j in T.vectorized(n - 1 - k):
                        a[i, k + 1 + j] = a[i, k + 1 + j] - a[i, k] * a[k, k + 1 + j]

        @R.function
        def main(x: R.Tensor((n, n), "float64"), c: R.Tensor((n, n), "float64")):
            cls = LU
            y = R.call_tir(cls.factor, (x,), out_sinfo=R.Tensor((n, n), "float64"))
            value = R.sum(R.multiply(y, c))
            return value

    return LU


def durbin(n: int) -> IRModule:
    @I.ir_module
    class Durbin:
        @T.prim_func
        def recursion(r: T.Buffer((n,), "float64"), y: T.Buffer((n,), "float64")):
            z = T.alloc_buffer((n,), "float64")
            beta = T.alloc_buffer((1,), "float64")
            total = T.alloc_buffer((1,), "float64")
            beta[0] = 1.0
            y[0] = -r[0]
            for k in range(n - 1):
                beta[0] = beta[0] * (1.0 - y[k] * y[k])
                total[0] = r[k + 1]
                for i in range(k + 1):
                    total[0] = total[0] + r[k - i] * y[i]
                alpha: T.float64 = -total[0] / beta[0]
                for i in T.vectorized(k + 1):
                    z[i] = y[i] + alpha * y[k - i]
                for i in T.vectorized(k + 1):
                    y[i] = z[i]
                y[k + 1] = alpha

        @R.function
        def main(r: R.Tensor((n,), "float64"), c: R.Tensor((n,), "float64")):
            cls = Durbin
            y = R.call_tir(cls.recursion, (r,), out_sinfo=R.Tensor((n,), "float64"))
            value = R.sum(R.multiply(y, c))
            return value

    return Durbin


def trisolv(n: int) -> IRModule:
    @I.ir_module
    class Triangular:
        @T.prim_func
        def solve(x: T.Buffer((n, n), "float64"), b: T.Buffer((n,), "float64"), y: T.Buffer((n,), "float64")):
            total = T.alloc_buffer((1,), "float64")
            for i in range(n):
                total[0] = b[i]
                for j in range(i):
                    total[0] = total[0] - x[i, j] * y[j]
                y[i] = total[0] / x[i, i]

        @R.function
        def main(x: R.Tensor((n, n), "float64"), b: R.Tensor((n,), "float64"), c: R.Tensor((n,), "float64")):
            cls = Triangular
            y = R.call_tir(cls.solve, (x, b), out_sinfo=R.Tensor((n,), "float64"))
            value = R.sum(R.multiply(y, c))
            return value

    return Triangular
