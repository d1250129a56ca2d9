"""NumPy's side of the matrix products."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.workers import gemm_case
from benchmarks.workers.protocol import Cases, serve, versions_of


def load() -> dict[str, str]:
    return versions_of("numpy")


def prepare() -> Cases:
    cases: Cases = {}
    for name, (_, _, _, transpose_a, transpose_b) in gemm_case.SHAPES.items():
        a, b = gemm_case.operands(name)
        a, b = (a.T if transpose_a else a), (b.T if transpose_b else b)
        gemm_case.check(name, a @ b)
        cases[name] = partial(product, a, b)
    return cases


def product(a: np.ndarray, b: np.ndarray) -> None:
    np.matmul(a, b)


if __name__ == "__main__":
    serve(load, prepare)
