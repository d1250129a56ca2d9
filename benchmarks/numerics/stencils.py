"""Stencils that are swept over a grid many times, in NumPy. The value is a weighted sum of the last grid."""

from __future__ import annotations

import numpy as np

from benchmarks.numerics.kernel import Arrays, Kernel

Array = np.ndarray


def draw_square(rng: np.random.Generator, steps: int, n: int) -> Arrays:
    return {"x": rng.random((n, n)), "c": rng.standard_normal((n, n))}


def draw_cube(rng: np.random.Generator, steps: int, n: int) -> Arrays:
    return {"x": rng.random((n, n, n)), "c": rng.standard_normal((n, n, n))}


def jacobi_2d(x: Array, c: Array, steps: int, n: int) -> float:
    a, b = x.copy(), x.copy()
    for _ in range(steps):
        for old, new in ((a, b), (b, a)):
            new[1:-1, 1:-1] = 0.2 * (old[1:-1, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:] + old[2:, 1:-1] + old[:-2, 1:-1])
    return (a * c).sum()


def seidel_2d(x: Array, c: Array, steps: int, n: int) -> float:
    """Each element becomes the mean of the nine around it, of which four have been replaced already."""
    a = x.copy()
    for _ in range(steps):
        for i in range(1, n - 1):
            others = a[i - 1, :-2] + a[i - 1, 1:-1] + a[i - 1, 2:] + a[i, 1:-1] + a[i, 2:]
            others += a[i + 1, :-2] + a[i + 1, 1:-1] + a[i + 1, 2:]
            for j in range(1, n - 1):
                a[i, j] = (others[j - 1] + a[i, j - 1]) / 9.0
    return (a * c).sum()


def adi_numbers(steps: int, n: int) -> tuple[float, float, float, float]:
    """The off-diagonal and the diagonal elements of the two implicit half steps' matrices: (a, b) and (d, e)."""
    first, second = 2.0 * n * n / steps, 1.0 * n * n / steps
    return -first / 2.0, 1.0 + first, -second / 2.0, 1.0 + second


def adi(x: Array, c: Array, steps: int, n: int) -> float:
    """The heat equation by alternating directions: a half step implicit along columns, then one along rows. The
    tridiagonal systems are solved by Thomas' algorithm, whose factors ``p`` are the same in all lines and steps."""
    a, b, d, e = adi_numbers(steps, n)
    u, v, q = x.copy(), np.zeros((n, n)), np.zeros((n, n))
    p, r = np.zeros(n), np.zeros(n)
    for j in range(1, n - 1):
        p[j] = -a / (a * p[j - 1] + b)
        r[j] = -d / (d * r[j - 1] + e)
    inside = slice(1, n - 1)
    for _ in range(steps):
        v[0, inside], q[0, inside] = 1.0, 1.0
        for j in range(1, n - 1):
            known = -d * u[j, :-2] + (1.0 + 2.0 * d) * u[j, inside] - d * u[j, 2:]
            q[j, inside] = (known - a * q[j - 1, inside]) / (a * p[j - 1] + b)
        v[n - 1, inside] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, inside] = p[j] * v[j + 1, inside] + q[j, inside]
        u[inside, 0], q[inside, 0] = 1.0, 1.0
        for j in range(1, n - 1):
            known = -a * v[:-2, j] + (1.0 + 2.0 * a) * v[inside, j] - a * v[2:, j]
            q[inside, j] = (known - d * q[inside, j - 1]) / (d * r[j - 1] + e)
        u[inside, n - 1] = 1.0
        for j in range(n - 2, 0, -1):
            u[inside, j] = r[j] * u[inside, j + 1] + q[inside, j]
    return (u * c).sum()


def heat_3d(x: Array, c: Array, steps: int, n: int) -> float:
    a, b = x.copy(), x.copy()
    for _ in range(steps):
        for old, new in ((a, b), (b, a)):
            middle = old[1:-1, 1:-1, 1:-1]
            new[1:-1, 1:-1, 1:-1] = middle + 0.125 * (
                (old[2:, 1:-1, 1:-1] - 2.0 * middle + old[:-2, 1:-1, 1:-1])
                + (old[1:-1, 2:, 1:-1] - 2.0 * middle + old[1:-1, :-2, 1:-1])
                + (old[1:-1, 1:-1, 2:] - 2.0 * middle + old[1:-1, 1:-1, :-2])
            )
    return (a * c).sum()


KERNELS = (
    Kernel(
        "jacobi_2d", "Jacobi, 2-D", draw_square, jacobi_2d, ("x",),
        {"tiny": {"steps": 3, "n": 7}, "S": {"steps": 50, "n": 150}, "M": {"steps": 80, "n": 350}},
    ),
    Kernel(
        "seidel_2d", "Gauss-Seidel, 2-D, in place", draw_square, seidel_2d, ("x",),
        {"tiny": {"steps": 3, "n": 7}, "S": {"steps": 8, "n": 50}, "M": {"steps": 15, "n": 100}},
    ),
    Kernel(
        "adi", "alternating directions, implicit", draw_square, adi, ("x",),
        {"tiny": {"steps": 3, "n": 7}, "S": {"steps": 5, "n": 100}, "M": {"steps": 20, "n": 200}},
    ),
    Kernel(
        "heat_3d", "heat equation, 3-D", draw_cube, heat_3d, ("x",),
        {"tiny": {"steps": 2, "n": 5}, "S": {"steps": 25, "n": 25}, "M": {"steps": 50, "n": 40}},
    ),
)  # fmt: skip
