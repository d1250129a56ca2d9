"""Factorizations and recurrences of linear algebra, as loops over elements, in NumPy. The value is a weighted sum."""

from __future__ import annotations

import numpy as np

from benchmarks.numerics.kernel import Arrays, Kernel

Array = np.ndarray


def draw_definite(rng: np.random.Generator, n: int) -> Arrays:
    """A symmetric matrix, far from singular."""
    m = rng.standard_normal((n, n)) / np.sqrt(n)
    return {"x": m @ m.T + 2.0 * np.eye(n), "c": rng.standard_normal((n, n))}


def draw_dominant(rng: np.random.Generator, n: int) -> Arrays:
    """A matrix that needs no pivots."""
    return {"x": rng.standard_normal((n, n)) + 2.0 * n * np.eye(n), "c": rng.standard_normal((n, n))}


def draw_toeplitz(rng: np.random.Generator, n: int) -> Arrays:
    return {"r": rng.uniform(-0.4, 0.4, n) / (1.0 + np.arange(n)) ** 1.5, "c": rng.standard_normal(n)}


def draw_triangular(rng: np.random.Generator, n: int) -> Arrays:
    lower = np.tril(rng.uniform(-1.0, 1.0, (n, n)), -1) / n + np.diag(rng.uniform(1.0, 2.0, n))
    return {"x": lower, "b": rng.standard_normal(n), "c": rng.standard_normal(n)}


def cholesky(x: Array, c: Array, n: int) -> float:
    """L with L Lᵀ = x, of the lower triangle of x alone."""
    a = np.tril(x)
    for i in range(n):
        for j in range(i):
            a[i, j] = (a[i, j] - a[i, :j] @ a[j, :j]) / a[j, j]
        a[i, i] = np.sqrt(a[i, i] - a[i, :i] @ a[i, :i])
    return (a * c).sum()


def lu(x: Array, c: Array, n: int) -> float:
    """Both factors in one matrix; L has ones on its diagonal."""
    a = x.copy()
    for i in range(n):
        for j in range(i):
            a[i, j] = (a[i, j] - a[i, :j] @ a[:j, j]) / a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return (a * c).sum()


def durbin(r: Array, c: Array, n: int) -> float:
    """The Yule-Walker equations of a Toeplitz matrix."""
    y = np.zeros(n)
    alpha, beta = -r[0], 1.0
    y[0] = alpha
    for k in range(1, n):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + r[:k][::-1] @ y[:k]) / beta
        y[:k] = y[:k] + alpha * y[:k][::-1]
        y[k] = alpha
    return y @ c


def trisolv(x: Array, b: Array, c: Array, n: int) -> float:
    """The solution of a lower triangular system."""
    y = np.zeros(n)
    for i in range(n):
        y[i] = (b[i] - x[i, :i] @ y[:i]) / x[i, i]
    return y @ c


KERNELS = (
    Kernel(
        "cholesky", "Cholesky factorization", draw_definite, cholesky, ("x",),
        {"tiny": {"n": 6}, "S": {"n": 100}, "M": {"n": 300}},
    ),
    Kernel(
        "lu", "LU factorization, in place", draw_dominant, lu, ("x",),
        {"tiny": {"n": 6}, "S": {"n": 60}, "M": {"n": 220}},
    ),
    Kernel(
        "durbin", "Durbin's recursion", draw_toeplitz, durbin, ("r",),
        {"tiny": {"n": 7}, "S": {"n": 1000}, "M": {"n": 2000}},
    ),
    Kernel(
        "trisolv", "triangular solution", draw_triangular, trisolv, ("x", "b"),
        {"tiny": {"n": 7}, "S": {"n": 2000}, "M": {"n": 3000}},
    ),
)  # fmt: skip
