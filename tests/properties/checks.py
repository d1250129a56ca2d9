"""What holds for every compiled graph, whatever its ops are.

One graph becomes a training step with donated inputs, planned in three ways: with temporaries in place, without, and
with dead memory poisoned.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback
from pullback.driver.artifact import Artifact, Layout
from pullback.driver.native import NativeFunction, object_code
from pullback.driver.pipeline import lower_function, prepare
from pullback.ir import IRModule
from pullback.relax.transform import Gradient
from pullback.relax.transform.plan_memory import MemoryOptions, plan_memory
from pullback.relax.transform.verify_plan import verify_plan
from pullback.runtime import get_num_threads, set_num_threads
from pullback.target import Target
from tests.properties.random_graphs import Maker, training_step

OPTIONS = {
    "in_place": MemoryOptions(smallest=0),
    "apart": MemoryOptions(in_place=False),
    "poisoned": MemoryOptions(smallest=0, poison=True),
}


def planned_functions(module: IRModule, name: str) -> dict[str, NativeFunction]:
    """The function planned in each way of OPTIONS, every plan verified."""
    target = Target("llvm")
    lowered, donate = lower_function(prepare(module), name, {}, target)
    functions = {}
    for way, options in OPTIONS.items():
        plan = plan_memory(f"{name}_{way}", lowered[name], lowered, donate, options)
        verify_plan(plan, lowered[name], lowered, donate, deep=True)
        code = object_code(plan.host, plan.kernels, target)
        functions[way] = NativeFunction(name, Artifact(Layout.of(plan), tuple(plan.constants), code))
    return functions


def run(function: NativeFunction, arrays: list[np.ndarray], steps: int = 2) -> list[np.ndarray]:
    """The losses of some steps, and what the donated inputs then hold."""
    tensors = [pullback.tensor(a, copy=True) for a in arrays]
    call = function.call(tensors)
    losses = [call()[0].numpy().copy() for _ in range(steps)]
    return [*losses, *(t.numpy() for t in tensors)]


def same_bits(a: list[np.ndarray], b: list[np.ndarray], what: str) -> None:
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        assert x.tobytes() == y.tobytes(), f"{what}: value {k} differs"


def check_graph(seed: int, torch: Any = None) -> None:
    """In place or not, poisoned or not, with 1, 2 or 3 threads: the same bits, close to the interpreter's."""
    graph = Maker(seed, torch).make()
    module = training_step(Gradient("main")(graph.module))
    rng = np.random.default_rng(seed)
    arrays = [*graph.inputs, *(rng.standard_normal(a.shape) for a in graph.inputs)]
    functions = planned_functions(module, "step")
    threads, expected = get_num_threads(), None
    try:
        for count in (1, 2, 3):
            set_num_threads(count)
            for way, function in functions.items():
                result = run(function, arrays)
                if expected is None:
                    expected = result
                same_bits(result, expected, f"graph {seed}, {way}, {count} threads")
    finally:
        set_num_threads(threads)
    assert expected is not None
    interpreted = pullback.compile(module, "debug")["step"]
    tensors = [pullback.tensor(a, copy=True) for a in arrays]
    call = interpreted.bind(tensors)
    slow = [call()[0].numpy().copy() for _ in range(2)] + [t.numpy() for t in tensors]
    for k, (x, y) in enumerate(zip(expected, slow, strict=True)):
        if x.size:
            error = np.abs(x - y).max() / (1 + np.abs(y).max())
            assert error <= 1e-6, f"graph {seed}: value {k} is {error:.1e} from the interpreter's"
