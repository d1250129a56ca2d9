"""Pullback's side of the numeric kernels: a call gives the value and the gradients."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.numerics import KERNELS
from benchmarks.numerics.kernel import Arrays, Kernel
from benchmarks.workers.protocol import Cases, Timed, serve, told

first_calls: dict[str, float] = {}


def load() -> dict[str, str]:
    import pullback

    return {"pullback": getattr(pullback, "__version__", "this tree")}


def prepare(names: str, preset: str) -> Cases:
    return told([Named(KERNELS[name], preset) for name in names.split(",")], lambda case: timed(case, gradients_of))


class Named:
    """A kernel at some sizes."""

    def __init__(self, kernel: Kernel, preset: str) -> None:
        self.kernel, self.preset, self.label = kernel, preset, kernel.name


def timed(case: Named, compiled: Callable[[Kernel, str, Arrays], Callable[[], list[Any]]]) -> Timed:
    """The case of a worker: ``compiled`` gives a function of no arguments that returns the value and the gradients of
    some inputs, computed."""
    inputs = case.kernel.inputs(case.preset)
    started = time.perf_counter()
    call = compiled(case.kernel, case.preset, inputs)
    results = call()
    first_calls[case.label] = time.perf_counter() - started

    def seconds() -> float:
        before = time.perf_counter()
        call()
        return time.perf_counter() - before

    return Timed(seconds, np.concatenate([np.asarray(r, np.float64).ravel() for r in results]))


def gradients_of(kernel: Kernel, preset: str, inputs: Arrays) -> Callable[[], list[Any]]:
    import pullback
    from pullback.relax.transform import Gradient

    module = Gradient("main", list(kernel.wrt))(kernel.form("pullback", preset))
    function = pullback.compile(module)["main_adjoint"]
    arrays = [pullback.nd.array(array) for array in inputs.values()]

    def call() -> list[Any]:
        value, gradients = function(*arrays)
        return [value.numpy(), *(g.numpy() for g in gradients)]

    return call


if __name__ == "__main__":
    serve(load, prepare, about=lambda: {"first calls": first_calls})
