"""Pullback's side of single kernels: a graph function each. Times are those of its kernels, from the trace.

Short ones run some times in a row, and the median counts: as the streams of ``peak.c`` do, each begins with what the
one before left in the caches, where Python's work between two profiles would take its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.kernels.case import Case
from benchmarks.kernels.gradient import gradient_module, variables
from benchmarks.workers.protocol import Cases, Timed, chosen_cases, serve

IN_A_ROW, MICROSECONDS = 10, 100.0  # runs at the most, and about how long they take together


def load() -> dict[str, str]:
    import pullback
    from pullback import relax  # noqa: F401

    return {"pullback": getattr(pullback, "__version__", "this tree")}


def prepare(suite: str, first: str, last: str) -> Cases:
    return chosen_cases(suite, first, last, timed)


def timed(case: Case) -> Timed:
    import pullback
    from pullback import relax

    module = module_of(case)
    machine = relax.VirtualMachine(pullback.compile(module, "llvm"), pullback.cpu(0))
    arrays = [pullback.nd.array(array) for array in case.arrays()]
    if case.wrt is not None:
        saved = machine["saved"](*arrays) if "saved" in module.functions else []
        arrays = [*arrays, pullback.nd.array(case.out_gradient()), *saved]
    bound = machine.bind("main", arrays)
    result = bound()[0].numpy().astype(np.float64)
    runs = int(min(IN_A_ROW, max(1.0, MICROSECONDS / bound.profile(runs=3).total)))
    return Timed(lambda: bound.profile(runs).total * 1e-6, result)


def module_of(case: Case) -> Any:
    """A module with the function `main`: the case's own, or the gradient of one of its arguments."""
    from pullback import relax

    if case.wrt is not None:
        return gradient_module(case)
    builder = relax.BlockBuilder()
    params = variables([f"x{k}" for k in range(len(case.shapes))], case.shapes)
    with builder.function("main", params):
        with builder.dataflow():
            values = case.relax(relax.op, *params)
            results = [builder.emit_output(v) for v in (values if isinstance(values, list) else [values])]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return builder.get()


if __name__ == "__main__":
    serve(load, prepare)
