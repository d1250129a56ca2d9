"""Many random programs with branches and loops (`control_programs.py`): every backend and derivative against another.

    python -m tests.relax.check_programs --count 2000 --first 0

Of each program: the interpreter's result as written, closed, and native; the native gradient against numeric
differences, that of the gradient against differences of the gradient; one, two and three threads, bit for bit; and
dead memory poisoned. The suite runs a few (`test_check_programs.py`).
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import pullback
from pullback.ir.module import IRModule
from pullback.relax import BlockBuilder, Var
from pullback.relax.interpreter import evaluate
from pullback.relax.transform import Gradient, InlineFunctions
from pullback.runtime import get_num_threads, set_num_threads
from pullback.runtime.library import library
from pullback.script import relax as R
from tests.relax.control_programs import program

ACTIVE = ["a", "v", "m"]
STEP = 1e-6


def check(seed: int, depth: int = 3, second: bool = True) -> None:
    """Raise an AssertionError where two of them differ."""
    module, arguments = program(seed, depth)
    wanted = evaluate(module, "main", arguments)
    np.testing.assert_allclose(evaluate(InlineFunctions()(module), "main", arguments), wanted, rtol=1e-12)
    adjoint = Gradient("main", require_grads=ACTIVE)(module)
    native = pullback.compile(adjoint).function("main_adjoint")
    value, gradients = results(native, arguments)
    np.testing.assert_allclose(value, wanted, rtol=1e-10, atol=1e-12)
    other = evaluate(adjoint, "main_adjoint", arguments)
    for mine, theirs in zip(gradients, other[1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-11)
    numeric(lambda given: float(results(native, given)[0]), arguments, gradients, "gradient")
    used, before = library.pb_allocated_bytes(), get_num_threads()
    for threads in (1, 2, 3):
        set_num_threads(threads)
        again = results(native, arguments)
        set_num_threads(before)
        assert np.array_equal(again[0], value), f"{threads} threads"
        assert all(map(np.array_equal, again[1], gradients)), f"{threads} threads"
        assert library.pb_allocated_bytes() == used, "what was boxed has not been given back"
    with environment(PULLBACK_POISON="1"):
        poisoned = results(pullback.compile(adjoint).function("main_adjoint"), arguments)
    assert np.array_equal(poisoned[0], value), "poison"
    assert all(map(np.array_equal, poisoned[1], gradients)), "poison"
    if second:
        check_second(adjoint, arguments)


def check_second(adjoint: IRModule, arguments: list[np.ndarray]) -> None:
    """The gradient of a sum of what the gradient is."""
    params = [Var(p.name, p.struct_info) for p in adjoint["main_adjoint"].params]
    builder = BlockBuilder(adjoint)
    with builder.function("slope", params):
        _, gradients = builder.emit(builder.module.get_global_var("main_adjoint")(*params))
        parts = [R.sum(R.sin(builder.emit(gradients[k]))) for k in range(len(ACTIVE))]
        builder.emit_func_output(builder.emit(parts[0] + parts[1] + parts[2]))
    twice = Gradient("slope", require_grads=ACTIVE)(builder.get())
    native = pullback.compile(twice).function("slope_adjoint")
    _, gradients = results(native, arguments)
    numeric(lambda given: float(results(native, given)[0]), arguments, gradients, "second order")


def results(native: Any, arguments: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    value, gradients = native(*arguments)
    return np.array(value.numpy()), [np.array(g.numpy()) for g in gradients]


def numeric(function: Any, arguments: list[np.ndarray], gradients: list[np.ndarray], what: str) -> None:
    """Compare along a random direction. Where the two one-sided differences differ, a branch lies between: no word."""
    rng = np.random.default_rng(0)
    directions = [rng.normal(size=g.shape) for g in gradients]
    middle = function(arguments)

    def moved(sign: int) -> float:
        near = (x + sign * STEP * d for x, d in zip(arguments, directions, strict=False))
        return function([*near, *arguments[len(directions) :]])

    ahead, behind = moved(1), moved(-1)
    forward, backward = (ahead - middle) / STEP, (middle - behind) / STEP
    scale = 1 + abs(forward) + abs(backward)
    if abs(forward - backward) > 1e-3 * scale:
        return
    found = sum(float(np.sum(g * d)) for g, d in zip(gradients, directions, strict=True))
    assert abs(found - (forward + backward) / 2) <= 1e-4 * scale, f"{what}: {found} and {(forward + backward) / 2}"


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Environment variables inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--depth", type=int, default=2)
    options = parser.parse_args()
    failed = []
    for seed in range(options.first, options.first + options.count):
        try:
            check(seed, options.depth)
        except Exception:
            failed.append(seed)
            print(f"seed {seed}:\n{traceback.format_exc()}", flush=True)
    print(f"{options.count} programs, {len(failed)} failed: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
