"""NumPy's side of the matrix products."""

from __future__ import annotations

import numpy as np

from benchmarks.kernels.case import MatMul
from benchmarks.workers.kernels_torch import wall_clock
from benchmarks.workers.protocol import Cases, Timed, chosen_cases, serve, versions_of


def load() -> dict[str, str]:
    return versions_of("numpy")


def prepare(suite: str, first: str, last: str) -> Cases:
    return chosen_cases(suite, first, last, timed)


def timed(case: MatMul) -> Timed:
    arrays = case.arrays()
    return Timed(wall_clock(lambda: case.numpy(*arrays)), case.numpy(*arrays).astype(np.float64))


if __name__ == "__main__":
    serve(load, prepare)
