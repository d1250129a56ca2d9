"""Every memory plan, checked by running the host function in the loop-IR interpreter on a poisoned arena.

The arena begins as NaN (or all ones, for other types), and whatever the plan says is dead is overwritten before each
kernel: a kernel that reads memory which nobody keeps for it gives a wrong result.
"""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.driver.pipeline import plan_function, prepare
from pullback.relax.training.optimizer import SGD, Adam
from pullback.relax.transform import Gradient
from pullback.relax.transform.plan_memory import Plan
from pullback.runtime.dtype import numpy_dtype
from pullback.target import Target
from pullback.tir import Buffer, Check, KernelCall
from pullback.tir import interpreter as tir_interpreter
from pullback.tir.expr import BufferLoad, nbytes
from pullback.tir.stmt import BufferStore, Seq
from pullback.tir.visitor import walk
from tests.driver.models import mlp_trainer_module, step_arguments
from tests.properties.random_graphs import Maker


def run_poisoned(plan: Plan, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The results of a plan's host function; donated inputs are changed as the plan says."""
    fresh = [np.full(plan.outputs[k].shape, 77).astype(plan.outputs[k].dtype) for k in plan.fresh]
    memory = dict(zip(plan.host.buffers, [*inputs, *plan.constants, *fresh], strict=True))
    arena = np.full(plan.arena_bytes, 0xFF, np.uint8)  # NaN in every float type
    statements = plan.host.body.stmts if isinstance(plan.host.body, Seq) else (plan.host.body,)
    for k, statement in enumerate(statements):
        if isinstance(statement, Check):
            assert view(arena, memory, statement.buffer)[()]
            continue
        kernel = plan.kernels[statement.name]
        live = needed_later(plan, statements[k + 1 :]) | accesses(plan, statement, BufferLoad)
        keep = np.zeros(plan.arena_bytes, bool)
        for first, last in live:
            keep[first:last] = True
        arena[~keep] = 0xFF
        tir_interpreter.run(
            kernel,
            [view(arena, memory, b).reshape(p.shape) for b, p in zip(statement.buffers, kernel.buffers, strict=True)],
        )
    results = dict(zip(plan.fresh, fresh, strict=True)) | {k: inputs[i] for k, i in plan.donated.items()}
    return [results[k] for k in range(len(plan.outputs))]


def view(arena: np.ndarray, memory: dict[Buffer, np.ndarray], buffer: Buffer) -> np.ndarray:
    if buffer.scope != "arena":
        return memory[buffer]
    dtype = numpy_dtype(buffer.dtype)
    size = int(np.prod(buffer.shape, dtype=np.int64)) * dtype.itemsize
    assert buffer.offset % 64 == 0 and buffer.offset + size <= len(arena)
    return arena[buffer.offset : buffer.offset + size].view(dtype).reshape(buffer.shape)


def accesses(plan: Plan, call: KernelCall, kind: type) -> set[tuple[int, int]]:
    """The ranges of the arena that a kernel call loads from (or stores to)."""
    kernel = plan.kernels[call.name]
    touched = {n.buffer for n in walk(kernel.body) if isinstance(n, kind)}
    ranges = set()
    for buffer, param in zip(call.buffers, kernel.buffers, strict=True):
        if buffer.scope == "arena" and param in touched:
            size = int(np.prod(buffer.shape, dtype=np.int64)) * nbytes(buffer.dtype)
            ranges.add((buffer.offset, buffer.offset + size))
    return ranges


def needed_later(plan: Plan, statements: tuple) -> set[tuple[int, int]]:
    """Ranges read later before they are written again."""
    needed: set[tuple[int, int]] = set()
    for statement in reversed(statements):
        if isinstance(statement, Check):
            needed |= (
                {(statement.buffer.offset, statement.buffer.offset + 1)} if statement.buffer.scope == "arena" else set()
            )
            continue
        needed -= accesses(plan, statement, BufferStore) - accesses(plan, statement, BufferLoad)
        needed |= accesses(plan, statement, BufferLoad)
    return needed


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs(seed):
    graph = Maker(5000 + seed).make()
    module = Gradient("main")(graph.module)
    plan = plan_function(prepare(module), "main_adjoint", {}, Target("llvm"))
    loss, gradients = pullback.compile(module, "debug")["main_adjoint"](*graph.inputs)
    results = run_poisoned(plan, [a.copy() for a in graph.inputs])
    for result, expected in zip(results, [loss, *gradients], strict=True):
        np.testing.assert_allclose(result, expected.numpy(), rtol=1e-9, atol=1e-9)


def test_joined_step():
    module = prepare(mlp_trainer_module())
    plan = plan_function(module, "__step", {}, Target("llvm"))
    tensors = step_arguments(module)
    arrays = [t.numpy() for t in tensors]
    results = run_poisoned(plan, arrays)
    expected = pullback.compile(module, "debug")["__step"](*tensors)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value.numpy(), rtol=1e-4, atol=1e-6)
    # all parameters are written in place, none through the arena and a copy
    assert not any(name.startswith("copy") for name in plan.kernels)


@pytest.mark.parametrize("sizes", [(784, 128, 10), (781, 127, 11), (130, 67, 3), (97, 300, 33, 2)], ids=str)
@pytest.mark.parametrize("batch", [64, 61])
def test_weights_of_any_size_are_updated_in_place(sizes, batch):
    """Whatever register tile their gradients take, and whatever is left over at its edges."""
    for optimizer in (SGD(0.1), Adam(0.01)):
        module = prepare(mlp_trainer_module(sizes, batch, optimizer))
        plan = plan_function(module, "__step", {}, Target("llvm"))
        assert not [name for name in plan.kernels if name.startswith("copy")]


def test_results_that_are_inputs_constants_or_twice_the_same():
    from pullback.script import from_source

    module = from_source("""
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return (y, y, x, R.const([1.0, 2.0], "float32"))
""")
    x = np.ones(3, "float32")
    y, again, same, constant = pullback.compile(module)["main"](x)
    assert len({y.data_ptr, again.data_ptr, same.data_ptr, x.ctypes.data}) == 4
    np.testing.assert_array_equal(y.numpy(), again.numpy())
    np.testing.assert_array_equal(constant.numpy(), [1, 2])


SWAP = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32")):
        R.func_attr({"donate": (0, 1)})
        with R.dataflow():
            s = R.sum(a)
            c = R.add(b, R.const(1.0, "float32"))
            R.output(s, c)
        return (s, c, a)
"""


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_donated_inputs_may_swap(target):
    from pullback.script import from_source

    function = pullback.compile(from_source(SWAP), target)["main"]
    a, b = pullback.tensor([1.0, 2.0, 3.0]), pullback.tensor([10.0, 20.0, 30.0])
    bound = function.bind([a, b])
    (total,) = bound()
    assert float(total) == 6
    np.testing.assert_array_equal(a.numpy(), [11, 21, 31])
    np.testing.assert_array_equal(b.numpy(), [1, 2, 3])


LATE_READ = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(g: R.Tensor((6, 5), "float32"), m: R.Tensor((5,), "float32"), p: R.Tensor((5,), "float32")):
        R.func_attr({"donate": (1, 2)})
        with R.dataflow():
            total = R.sum(g, axis=0)
            new_m = R.add(R.multiply(m, R.const(0.5, "float32")), total)
            new_p = R.subtract(p, R.add(R.multiply(new_m, new_m), m))
            loss = R.sum(total)
            R.output(loss, new_m, new_p)
        return (loss, new_m, new_p)
"""


@pytest.mark.parametrize("axis", [0, 1])
def test_an_old_value_is_read_before_it_is_overwritten(axis):
    """``new_p`` needs the old ``m`` after ``new_m``, in the same kernel, has been computed."""
    from pullback.script import from_source

    text = LATE_READ if axis == 0 else LATE_READ.replace("(6, 5)", "(5, 6)").replace("axis=0", "axis=1")
    rng = np.random.default_rng(0)
    shapes = [(6, 5) if axis == 0 else (5, 6), (5,), (5,)]
    values = [rng.standard_normal(s).astype("float32") for s in shapes]
    results = []
    for target in ("debug", "llvm"):
        tensors = [pullback.tensor(v, copy=True) for v in values]
        pullback.compile(from_source(text), target)["main"].bind(tensors)()
        results.append([t.numpy() for t in tensors])
    for slow, fast in zip(*results, strict=True):
        np.testing.assert_allclose(fast, slow, rtol=1e-5, atol=1e-6)
