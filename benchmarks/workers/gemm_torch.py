"""PyTorch's side of the matrix products."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from benchmarks.workers import gemm_case
from benchmarks.workers.protocol import Cases, serve, versions_of


def load() -> dict[str, str]:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_grad_enabled(False)
    return versions_of("torch")


def prepare() -> Cases:
    import torch

    cases: Cases = {}
    for name, (_, _, _, transpose_a, transpose_b) in gemm_case.SHAPES.items():
        a, b = (torch.from_numpy(array) for array in gemm_case.operands(name))
        a, b = (a.T if transpose_a else a), (b.T if transpose_b else b)
        gemm_case.check(name, (a @ b).numpy())
        cases[name] = partial(product, a, b)
    return cases


def product(a: Any, b: Any) -> None:
    a @ b


if __name__ == "__main__":
    serve(load, prepare)
