"""What holds for every compiled training step, whatever its ops are.

A step has donated inputs, and is planned in three ways: with temporaries in place, without, and with dead memory
poisoned.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
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
from tests.properties.random_large import LargeMaker
from tests.properties.random_networks import NetworkMaker

Arrays = list[np.ndarray]
HOST = Target("llvm")
LESSER = ("haswell", "x86-64")  # vectors of 32 and 16 bytes
TARGETS = [HOST, *(Target(f"llvm -mtriple={HOST.triple} -mcpu={cpu}") for cpu in LESSER if HOST.vector_bytes == 64)]
OPTIONS = {
    "in_place": MemoryOptions(smallest=0),
    "apart": MemoryOptions(in_place=False),
    "poisoned": MemoryOptions(smallest=0, poison=True),
}


def planned_functions(
    module: IRModule, name: str, target: Target = HOST, ways: Mapping[str, MemoryOptions] = OPTIONS
) -> dict[str, NativeFunction]:
    """The function planned in each way, every plan verified."""
    lowered, donate = lower_function(prepare(module), name, {}, target)
    functions = {}
    for way, options in ways.items():
        plan = plan_memory(f"{name}_{way}", lowered[name], lowered, donate, options)
        verify_plan(plan, lowered[name], lowered, donate, deep=True)
        code = object_code(plan.host, plan.kernels, target, inner=plan.inner)
        functions[way] = NativeFunction(name, Artifact(Layout.of(plan), tuple(plan.constants), code))
    return functions


def run(function: NativeFunction, arrays: Arrays, steps: int = 2) -> Arrays:
    """The losses of some steps, and what the donated inputs then hold."""
    tensors = [pullback.tensor(a, copy=True) for a in arrays]
    call = function.call(tensors)
    losses = [call()[0].numpy().copy() for _ in range(steps)]
    return [*losses, *(t.numpy() for t in tensors)]


def same_bits(a: Arrays, b: Arrays, what: str) -> None:
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        assert x.tobytes() == y.tobytes(), f"{what}: value {k} differs"


def installed_torch() -> Any:
    """PyTorch, or None."""
    return importlib.import_module("torch") if importlib.util.find_spec("torch") else None


def checked_step(module: IRModule, name: str, arrays: Arrays, what: str, tolerance: float) -> Arrays:
    """What :func:`run` gives for the function, in place or not, poisoned or not, with 1, 2 or 3 threads: the same bits.

    Asserts that they are close to the interpreter's, step for step from the same numbers: a last bit of what the step
    before left may decide a comparison, ``x - y + y < x``."""
    functions = planned_functions(module, name)
    threads, expected = get_num_threads(), None
    try:
        for count in (1, 2, 3):
            set_num_threads(count)
            for way, function in functions.items():
                result = run(function, arrays)
                if expected is None:
                    expected = result
                same_bits(result, expected, f"{what}, {way}, {count} threads")
    finally:
        set_num_threads(threads)
    assert expected is not None
    slow, state, losses = pullback.compile(module, "debug")[name], arrays, []
    for step in range(2):
        fast = run(functions["in_place"], state, steps=1)
        tensors = [pullback.tensor(a, copy=True) for a in state]
        found = [slow.bind(tensors)()[0].numpy(), *(t.numpy() for t in tensors)]
        close(fast, found, f"{what}, step {step} by the interpreter", tolerance)
        losses.append(fast[0])
        state = [a.copy() for a in fast[1:]]
    same_bits([*losses, *state], expected, f"{what}, step for step")
    return expected


def close(values: Arrays, expected: Arrays, what: str, tolerance: float) -> None:
    """Each value within the tolerance, relative to the largest of its elements, and to 1."""
    for k, (x, y) in enumerate(zip(values, expected, strict=True)):
        assert x.shape == y.shape, f"{what}: value {k} has the shape {x.shape}, not {y.shape}"
        if x.size:
            error = np.abs(x - y).max() / (1 + np.abs(y).max())
            assert error <= tolerance, f"{what}: value {k} is {error:.1e} apart"


def check_graph(seed: int, torch: Any = None, drops: bool = False) -> None:
    graph = Maker(seed, torch, drops).make()
    module = training_step(Gradient("main")(graph.module))
    rng = np.random.default_rng(seed)
    arrays = [*graph.inputs, *(rng.standard_normal(a.shape) for a in graph.inputs)]
    checked_step(module, "step", arrays, f"graph {seed}", 1e-6)


def check_large_graph(seed: int, torch: Any = None) -> None:
    """Loss and gradients by native code, for vectors of several widths, against the interpreter, and against PyTorch,
    where it is given. The loss alone is another program, whose sums nothing else reads."""
    graph, target = LargeMaker(seed, torch).make(), TARGETS[seed % len(TARGETS)]
    module, tensors = Gradient("main")(graph.module), [pullback.tensor(a) for a in graph.inputs]
    machine = pullback.compile(module, "debug")
    found = {}
    for name in ("main", "main_adjoint"):
        function = planned_functions(module, name, target, {"apart": OPTIONS["apart"]})["apart"]
        found[name] = [value.numpy() for value in function.call(tensors)()]
        expected = [value.numpy() for value in flat(machine[name](*tensors))]
        close(found[name], expected, f"{name} of graph {seed}, by the interpreter", 1e-9)
    if torch is not None:
        given = [torch.from_numpy(a.copy()).requires_grad_() for a in graph.inputs]
        loss = graph.torch_loss(torch, given)
        if loss.requires_grad:
            loss.backward()
        gradients = [torch.zeros_like(t) if t.grad is None else t.grad for t in given]
        expected = [t.detach().numpy() for t in (loss, *gradients)]
        close(found["main_adjoint"], expected, f"graph {seed}, by PyTorch", 1e-9)


def flat(value: Any) -> list[Any]:
    """The tensors of nested tuples."""
    return [tensor for part in value for tensor in flat(part)] if isinstance(value, tuple) else [value]


def check_network(seed: int, torch: Any = None) -> None:
    """As a graph; and close to PyTorch, where it is given."""
    maker = NetworkMaker(seed, torch)
    network, tolerance = maker.make(), 1e-9 if maker.dtype == "float64" else 1e-3
    result = checked_step(network.module, "__step", network.arrays, f"network {seed}", tolerance)
    if torch is not None:
        losses, kept = network.train(torch, 2)
        expected = [*map(np.asarray, losses), *kept]
        close([*result[:2], *result[3 : 1 + len(expected)]], expected, f"network {seed}, by PyTorch", tolerance)
