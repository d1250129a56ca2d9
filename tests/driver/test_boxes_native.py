"""Boxes in native code: the memory that they take and give back, what stops a call, and what the verifier refuses."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import replace

import numpy as np
import pytest

import pullback
from pullback.driver.pipeline import lower_function, plan_function, prepare
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.node import Span, span_scope
from pullback.relax import BlockBuilder, Var
from pullback.relax.interpreter import evaluate
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.plan_memory import plan_memory
from pullback.relax.transform.verify_plan import PlanError, verify_plan
from pullback.runtime import get_num_threads, set_num_threads
from pullback.runtime.library import library, runtime_table
from pullback.runtime.ranks import Alone, using
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target
from pullback.tir import Box, HostCall, PrimFunc, Release, Seq, Unbox, seq
from pullback.tir import interpreter as tir_interpreter
from tests.helpers import round_trip
from tests.relax.test_control import flat
from tests.relax.transform.test_control_gradient import build, gradient, number, tensor
from tests.relax.transform.test_unbounded_gradient import PROGRAMS, in_fori, newton, program, twice
from tests.relax.transform.test_verify_control import Changed, each

H, F = R.Tensor((), "handle"), R.Tensor((3,), "float64")
functions = pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)


def large(x, w):
    """Each step keeps a matrix that is large enough for several threads."""
    body = lambda y: (R.tanh(R.matmul(y, w)) * number(0.1) + y * number(0.7),)  # noqa: E731
    return R.sum(R.while_loop(lambda y: R.sum(y * y) > number(1000.0), body, (x,))[0])


LARGE = [tensor("x", 64, 96), tensor("w", 96, 96)]


def large_data() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(size=(64, 96)), rng.normal(size=(96, 96)) * 0.05]


def arrays(result) -> list[np.ndarray]:
    return [np.array(v.numpy()) for v in flat(result)]


# -- memory


@functions
def test_memory_is_given_back(function):
    for module, name in ((gradient(program(function)), "main_adjoint"), (twice(program(function)), "slope_adjoint")):
        native = pullback.compile(module).function(name)
        native(np.array(1.3))
        before = library.pb_allocated_bytes()
        for a in (1.3, 2.7, 0.3):
            native(np.array(a))
            assert library.pb_allocated_bytes() == before


def test_it_grows_with_the_steps_and_is_counted():
    native = pullback.compile(gradient(build(LARGE, large))).function("main_adjoint")
    x, w = large_data()
    native(x, w)
    before = library.pb_allocated_bytes()
    with tracked(native) as seen:
        native(x, w)
    short = max(seen.allocated) - before
    with tracked(native) as seen:
        native(x * 30, w)
    assert len(seen.allocated) > 2
    assert max(seen.allocated) - before >= len(seen.allocated) * 64 * 96 * 8 > short
    assert library.pb_allocated_bytes() == before


class Table(ctypes.Structure):
    """The ``pb_runtime`` of rt.h."""

    _fields_ = (
        ("abi", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("parallel_for", "now_ns", "parallel_share", "grow", "shrink")),
        *((name, ctypes.c_void_p) for name in ("ranks", "start", "wait")),
    )


Grow = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class tracked:  # noqa: N801
    """While it is entered, calls of a compiled function get their memory here: ``allocated`` has the process's bytes
    after each request, of which no more than ``most`` are granted."""

    def __init__(self, function, most: int = 1 << 60) -> None:
        (self.native,) = function._native.values()
        self.most, self.allocated = most, []
        table = Table.from_address(runtime_table())
        real = Grow(table.grow)

        def grow(runtime, heap, count):
            if len(self.allocated) >= self.most:
                return None
            found = real(runtime, heap, count)
            self.allocated.append(library.pb_allocated_bytes())
            return found

        self.callback = Grow(grow)
        self.table = Table.from_buffer_copy(table)
        self.table.grow = ctypes.cast(self.callback, ctypes.c_void_p).value

    def __enter__(self):
        self.ranks = using(_With(ctypes.addressof(self.table)))
        self.ranks.__enter__()
        return self

    def __exit__(self, *error):
        self.ranks.__exit__(*error)


class _With(Alone):
    """One rank, with another table."""

    table = 0

    def __init__(self, table: int) -> None:
        self.table = table


def descent(steps: int) -> IRModule:
    """So many steps of gradient descent in one loop, as a whole training run."""
    builder, a = BlockBuilder(gradient(build(LARGE[:1], lambda x: large(x, R.const(large_data()[1]))))), LARGE[0]
    adjoint = builder.module.get_global_var("main_adjoint")

    def step(i, x):
        whole = builder.emit(adjoint(x))
        return (x - builder.emit(builder.emit(whole[1])[0]) * number(1e-3),)

    with builder.function("run", [a]):
        builder.emit_func_output(builder.emit(R.fori_loop(steps, step, (a,)))[0])
    return builder.get()


def test_a_loop_that_hands_on_no_boxes_takes_no_more_memory_with_more_steps():
    x, peaks = large_data()[0], []
    for steps in (2, 40):
        native = pullback.compile(descent(steps)).function("run")
        native(x)
        before = library.pb_allocated_bytes()
        with tracked(native) as seen:
            found = native(x)
        peaks.append(max(seen.allocated) - before)
        assert len(seen.allocated) >= 2 * steps
    assert peaks[0] == peaks[1]
    np.testing.assert_allclose(found.numpy(), evaluate(descent(40), "run", [x]), rtol=1e-9)


@pytest.mark.parametrize("most", [0, 1, 5])
def test_no_memory_is_an_error_and_leaves_nothing(most):
    def main(a):
        with span_scope(Span("model.py", 7, 4, 9, "    (y,) = while_loop(…)")):
            return newton(a)

    native = pullback.compile(gradient(build([tensor("a")], main))).function("main_adjoint")
    expected = arrays(native(np.array(50.0)))
    before = library.pb_allocated_bytes()
    with tracked(native, most), pytest.raises(MemoryError, match="main_adjoint: out of memory") as caught:
        native(np.array(50.0))
    assert "model.py:7:5" in str(caught.value)
    assert library.pb_allocated_bytes() == before
    for found, wanted in zip(arrays(native(np.array(50.0))), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_another_status_leaves_nothing():
    """A later loop needs too many steps, with boxes of the first one on the heap; and a check fails in a step."""

    def main(a, at):
        t = newton(a)
        (u,) = R.while_loop(lambda u: u < number(50.0), lambda u: (u * t * number(2.0),), (t,), max_steps=4)
        table = R.const(np.array([0.5, 0.7, 0.9]))
        body = lambda v, n: (v * R.sin(v) + R.take(table, at + n, axis=0), n + R.const(1, "int64"))  # noqa: E731
        found = R.while_loop(lambda v, n: n < R.const(2, "int64"), body, (u, R.const(0, "int64")))
        return found[0]

    module = gradient(build([tensor("a"), tensor("at", dtype="int64")], main))
    native = pullback.compile(module).function("main_adjoint")
    native(np.array(9.0), np.array(1))
    before = library.pb_allocated_bytes()
    for a, at, message in ((0.4, 1, "max_steps=4"), (9.0, 2, "take: an index is outside"), (9.0, 5, "take")):
        with pytest.raises(ArgumentError, match=message):
            native(np.array(a), np.array(at))
        assert library.pb_allocated_bytes() == before


def test_a_donated_input_keeps_its_value_where_there_is_no_memory():
    module = gradient(build([tensor("a", 3)], lambda a: R.sum(R.while_loop(
        lambda x: R.max(x) > number(0.2), lambda x: (R.sin(x) * a,), (a,))[0])))  # fmt: skip
    builder, a = BlockBuilder(module), tensor("a", 3)
    with builder.function("update", [a], {"donate": (0,)}):
        whole = builder.emit(builder.module.get_global_var("main_adjoint")(a))
        new = builder.emit(a - builder.emit(builder.emit(whole[1])[0]) * number(0.1))
        builder.emit_func_output(R.tuple(builder.emit(whole[0]), new))
    native = pullback.compile(builder.get()).function("update")
    given = np.array([0.9, 0.8, 0.7])
    call = native.bind([pullback.tensor(given, copy=True)])
    with tracked(native, 2), pytest.raises(MemoryError):
        call()
    np.testing.assert_array_equal(call.inputs[0].numpy(), given)
    loss, new = flat(evaluate(builder.get(), "update", [given]))
    np.testing.assert_allclose(call()[0].numpy(), loss, rtol=1e-12)
    np.testing.assert_allclose(call.inputs[0].numpy(), new, rtol=1e-12)


# -- the same, however it runs


def test_any_number_of_threads():
    module = gradient(build(LARGE, large))
    native, before, results = pullback.compile(module).function("main_adjoint"), get_num_threads(), []
    try:
        for count in (1, 2, 3):
            set_num_threads(count)
            results.append(arrays(native(*large_data())))
    finally:
        set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(results[0], flat(evaluate(module, "main_adjoint", large_data())), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@functions
def test_dead_memory_is_not_read(function, monkeypatch):
    module = twice(program(function))
    expected = arrays(pullback.compile(module).function("slope_adjoint")(np.array(1.3)))
    monkeypatch.setenv("PULLBACK_POISON", "1")
    found = arrays(pullback.compile(module).function("slope_adjoint")(np.array(1.3)))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_poison_fills_boxes_that_are_given_back(monkeypatch):
    monkeypatch.setenv("PULLBACK_POISON", "1")
    plan = plan_function(prepare(gradient(program(in_fori))), "main_adjoint", {}, Target("llvm"))
    assert plan.host.attrs["poison"]
    assert not any("poison" in f.attrs for f in plan.inner.values())  # it is a heap's, which the outermost one has
    monkeypatch.delenv("PULLBACK_POISON")
    plan = plan_function(prepare(gradient(program(in_fori))), "main_adjoint", {}, Target("llvm"))
    assert "poison" not in plan.host.attrs


def test_calls_at_the_same_time():
    """Each has a heap of its own."""
    native = pullback.compile(gradient(program(in_fori))).function("main_adjoint")
    values = np.linspace(0.2, 3.0, 12)
    expected = [arrays(native(np.array(a))) for a in values]
    found: list = [None] * len(values)

    def work(first: int) -> None:
        for _ in range(5):
            for k in range(first, len(values), 3):
                found[k] = arrays(native(np.array(values[k])))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    before = library.pb_allocated_bytes()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    arenas = (len(native._native[()].arenas) - 1) * max(64, native._native[()].layout.arena_bytes)
    assert library.pb_allocated_bytes() == before + arenas


@functions
def test_host_functions_are_interpreted(function):
    """The loop IR's interpreter runs the host function on boxes of its own, and plans are proven."""
    module = prepare(twice(program(function)))
    lowered, donate = lower_function(module, "slope_adjoint", {}, Target("llvm"))
    plan = plan_function(module, "slope_adjoint", {}, Target("llvm"))
    verify_plan(plan, lowered["slope_adjoint"], lowered, donate, deep=True)
    for host in (plan.host, *plan.inner.values()):
        round_trip(host)
    given = [np.array(1.3), *plan.constants]
    fresh = [np.full(b.shape, 77).astype(b.dtype) for b in plan.host.buffers[len(given) :]]
    assert tir_interpreter.run(plan.host, [*given, *fresh], plan.functions) == 0
    for a, b in zip(fresh, flat(evaluate(module, "slope_adjoint", [np.array(1.3)])), strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, rtol=1e-8, atol=1e-10)


def test_profiles_and_memory():
    native = pullback.compile(gradient(program(in_fori)))
    report = native["main_adjoint"].profile(np.array(1.3))
    assert any("loop" in call.name for call in report.calls)
    assert native.memory("main_adjoint").arena_bytes > 0


# -- what is refused


@I.ir_module
class Boxed:
    @R.function
    def main(x: R.Tensor((3,), "float64"), n: R.Tensor((2, 0), "int8")):
        empty = R.null((2,))
        inner = R.box([n, x, empty])
        outer = R.box([inner, R.const(True)])
        h, flag = R.unbox(outer, (R.Tensor((), "handle"), R.Tensor((), "bool")))
        m, y, _ = R.unbox(h, (R.Tensor((2, 0), "int8"), R.Tensor((3,), "float64"), R.Tensor((2,), "handle")))
        none = R.null(())
        z, k, g = R.unbox(none, (R.Tensor((3,), "float64"), R.Tensor((), "int64"), R.Tensor((), "handle")))
        (w,) = R.unbox(g, (R.Tensor((3,), "float64"),))
        return (R.sum(x * y), flag, m, z + w, k)


def test_boxes_in_boxes():
    x, n = np.array([1.0, 2.0, 3.0]), np.zeros((2, 0), np.int8)
    round_trip(Boxed)
    for found in (evaluate(Boxed, "main", [x, n]), pullback.compile(Boxed)["main"](x, n)):
        total, flag, m, z, k = (np.asarray(v.numpy() if hasattr(v, "numpy") else v) for v in found)
        assert (total, flag, m.shape, k) == (14.0, True, (2, 0), 0)
        np.testing.assert_array_equal(z, np.zeros(3))


@pytest.mark.parametrize(
    "infos", [(F, F), (R.Tensor((4,), "float64"),), (R.Tensor((3,), "int64"),), (R.Tensor((2,), "float64"), H)]
)
@pytest.mark.parametrize("is_of_handles", [False, True])
def test_what_was_not_boxed_is_not_unboxed(infos, is_of_handles):
    """A text may say anything: nothing beside the box is read."""

    def main(x):
        handle = R.box([R.null(())] if is_of_handles else [x])
        return R.unbox(handle, infos)[0]

    module, values = build([tensor("x", 3)], main), [np.ones(3)]
    for call in (lambda: evaluate(module, "main", values), lambda: pullback.compile(module)["main"](*values)):
        with pytest.raises(ArgumentError, match="what is unboxed is not what was boxed"):
            call()


def test_a_number_is_no_handle():
    def main(n):
        (h,) = R.unbox(R.box([n]), (H,))
        return R.unbox(h, (F,))[0]

    module = build([tensor("n", dtype="int64")], main)
    for call in (lambda: evaluate(module, "main", [np.array(4096)]), lambda: pullback.compile(module)["main"](4096)):
        with pytest.raises(ArgumentError, match="what is unboxed is not what was boxed"):
            call()


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_handles_stay_inside_of_a_call(target):
    h = Var("h", TensorStructInfo((), "handle"))
    for params, body in (([h], lambda h: R.unbox(h, (F,))[0]), ([tensor("x", 3)], lambda x: R.box([x]))):
        with pytest.raises(UserError, match=r"main cannot be called from outside: .* handle"):
            pullback.compile(build(params, body), target)["main"]


def _without(kind: type):
    return each(Seq, lambda n: seq(*(s for s in n.stmts if not isinstance(s, kind))) if _has(n, kind) else None)


def _has(node: Seq, kind: type) -> bool:
    return any(isinstance(s, kind) for s in node.stmts)


MISTAKES = {
    "another kind of box": ("host", each(Box, lambda n: replace(n, kind=n.kind + 1))),
    "another kind unboxed": ("host", each(Unbox, lambda n: replace(n, kind=n.kind + 1))),
    "fields in another order": ("host", each(Box, lambda n: replace(n, fields=n.fields[::-1]))),
    "a field fewer": ("host", each(Unbox, lambda n: replace(n, fields=n.fields[1:]))),
    "another place for a handle": ("host", each(Box, lambda n: replace(n, handle=n.fields[-1]))),
    "no heap": ("driver", each(HostCall, lambda n: replace(n, buffers=(*n.buffers[:-1], n.buffers[0])))),
    "boxes given back before they are read": ("driver", each(HostCall, lambda n: seq(n, Release(*n.buffers[-1:] * 2)))),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_of_plans_are_found(name):
    where, change = MISTAKES[name]
    module = prepare(gradient(program(newton)))
    lowered, donate = lower_function(module, "main_adjoint", {}, Target("llvm"))
    plan = plan_memory("main_adjoint", lowered["main_adjoint"], lowered, donate)
    verify_plan(plan, lowered["main_adjoint"], lowered, donate)
    mutator = Changed(change)
    if where == "driver":
        driver = next(f for f in plan.inner.values() if "outputs" in f.attrs and f.buffers[-1].name == "heap")
        plan.inner[driver.name] = PrimFunc(driver.name, driver.params, mutator.stmt(driver.body), driver.attrs)
    else:
        for control in plan.controls.values():
            region = control.plans["body"]
            region.host = replace(region.host, body=mutator.stmt(region.host.body))
    assert mutator.count
    with pytest.raises(PlanError):
        verify_plan(plan, lowered["main_adjoint"], lowered, donate)


def test_boxes_are_given_back_where_none_is_handed_on_and_nowhere_else():
    plan = plan_function(prepare(gradient(program(in_fori))), "main_adjoint", {}, Target("llvm"))
    texts = {name: f.script() for name, f in plan.inner.items()}
    assert not any("T.release" in t for t in texts.values())  # the outer loop keeps the handles of the inner ones
    plan = plan_function(prepare(descent(3)), "run", {}, Target("llvm"))
    releasing = [name for name, f in plan.inner.items() if "T.release" in f.script()]
    assert len(releasing) == 1
