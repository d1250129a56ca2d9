"""PyTorch's side of single kernels: eager; gradients by autograd, whose graph is made once. Times include dispatch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import numpy as np

from benchmarks.kernels.case import Case
from benchmarks.workers.protocol import Cases, Timed, chosen_cases, serve, versions_of


def load() -> dict[str, str]:
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    return versions_of("torch")


def prepare(suite: str, first: str, last: str) -> Cases:
    return chosen_cases(suite, first, last, timed)


def timed(case: Case) -> Timed:
    import torch

    arguments = [torch.from_numpy(array) for array in case.arrays()]
    if case.wrt is None:
        with torch.no_grad():
            result = case.torch(*arguments)

        def run() -> None:
            with torch.no_grad():
                case.torch(*arguments)
    else:
        wanted, dy = arguments[case.wrt].requires_grad_(), torch.from_numpy(case.out_gradient())
        out = case.torch(*arguments)
        (result,) = torch.autograd.grad(out, wanted, dy, retain_graph=True)

        def run() -> None:
            torch.autograd.grad(out, wanted, dy, retain_graph=True)

    first = result[0] if isinstance(result, (list, tuple)) else result
    return Timed(wall_clock(run), first.detach().numpy().astype(np.float64))


def wall_clock(run: Callable[[], object]) -> Callable[[], float]:
    def seconds() -> float:
        before = time.perf_counter()
        run()
        return time.perf_counter() - before

    return seconds


if __name__ == "__main__":
    serve(load, prepare)
