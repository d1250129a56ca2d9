"""Gravity as one kernel of the loop IR, with its loop over time; clusters as a loop of the graph."""

from __future__ import annotations

from typing import Any

from benchmarks.numerics.graphs import graph, number
from benchmarks.numerics.particles import DT, SOFTENING
from pullback.ir.module import IRModule
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


def nbody(n: int, steps: int) -> IRModule:
    half, whole, softening = DT / 2, DT, SOFTENING**2

    @I.ir_module
    class Bodies:
        @T.prim_func
        def leapfrog(
            mass: T.Buffer((n,), "float64"),
            pos: T.Buffer((3, n), "float64"),
            vel: T.Buffer((3, n), "float64"),
            p: T.Buffer((3, n), "float64"),
            v: T.Buffer((3, n), "float64"),
        ):
            acc = T.alloc_buffer((3, n), "float64")
            for a in range(3):
                for i in T.vectorized(n):
                    p[a, i] = pos[a, i]
                    v[a, i] = vel[a, i]
            for t in range(steps + 1):
                for a in range(3):
                    for i in T.vectorized(n):
                        acc[a, i] = 0.0
                for j in range(n):
                    for i in T.vectorized(n):
                        x: T.float64 = p[0, j] - p[0, i]
                        y: T.float64 = p[1, j] - p[1, i]
                        z: T.float64 = p[2, j] - p[2, i]
                        square: T.float64 = x * x + y * y + z * z + softening
                        pull: T.float64 = mass[j] / (square * T.sqrt(square))
                        acc[0, i] = acc[0, i] + x * pull
                        acc[1, i] = acc[1, i] + y * pull
                        acc[2, i] = acc[2, i] + z * pull
                if t > 0:
                    for a in range(3):
                        for i in T.vectorized(n):
                            v[a, i] = v[a, i] + acc[a, i] * half
                if t < steps:
                    for a in range(3):
                        for i in T.vectorized(n):
                            v[a, i] = v[a, i] + acc[a, i] * half
                            p[a, i] = p[a, i] + v[a, i] * whole

        @R.function
        def main(
            mass: R.Tensor((n,), "float64"),
            pos: R.Tensor((3, n), "float64"),
            vel: R.Tensor((3, n), "float64"),
            c: R.Tensor((2, 3, n), "float64"),
        ):
            cls = Bodies
            both = R.call_tir(
                cls.leapfrog,
                (mass, pos, vel),
                out_sinfo=[R.Tensor((3, n), "float64"), R.Tensor((3, n), "float64")],
            )
            value = R.sum(R.multiply(R.stack([both[0], both[1]], axis=0), c))
            return value

    return Bodies


def kmeans(n: int, d: int, k: int, steps: int) -> IRModule:
    def main(x: Any, start: Any) -> Any:
        squares = R.sum(x * x, axis=1, keepdims=True)

        def distances(centres: Any) -> Any:
            products = R.matmul(x, R.permute_dims(centres))
            return squares - number(2.0) * products + R.sum(centres * centres, axis=1)

        def step(_: Any, centres: Any) -> Any:
            nearest = R.argmin(distances(centres), axis=1)
            member = R.astype(R.equal(R.expand_dims(nearest, 1), R.arange(0, k, 1, "int64")), "float64")
            count = R.maximum(R.sum(member, axis=0), number(1.0))
            return (R.matmul(R.permute_dims(member), x) / R.expand_dims(count, 1),)

        (centres,) = R.fori_loop(steps, step, (start,))
        return R.sum(R.min(distances(centres), axis=1))

    return graph(main, x=(n, d), start=(k, d))
