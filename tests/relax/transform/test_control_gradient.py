"""Gradients of branches and loops: against differences of the function itself, PyTorch, and calculus."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, DifferentiationError
from pullback.ir.module import IRModule
from pullback.relax import BlockBuilder, Call, Function, Tuple, Var
from pullback.relax.analysis import check_well_formed
from pullback.relax.control import LOOP, loop
from pullback.relax.interpreter import evaluate
from pullback.relax.regions import regions
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform import (
    BindSizes,
    CanonicalizeBindings,
    DeadCodeElimination,
    DecomposeOpsForTraining,
    EliminateCommonSubexpr,
    FoldConstant,
    FoldTranspose,
    Gradient,
    InlineFunctions,
    LegalizeOps,
    Simplify,
)
from pullback.relax.transform.rematerialize import Rematerialize
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T
from pullback.tir.expr import Var as SizeVar
from tests.relax.control_programs import program

STEP = 1e-6


def tensor(name: str, *shape: Any, dtype: str = "float64") -> Var:
    return Var(name, TensorStructInfo(shape, dtype))


def number(value: float) -> Any:
    return R.const(value, "float64")


def build(params: Sequence[Var], body: Any) -> IRModule:
    builder = BlockBuilder()
    with builder.function("main", list(params)):
        builder.emit_func_output(body(*params))
    return builder.get()


def gradient(module: IRModule, names: Sequence[str] | None = None, function: str = "main") -> IRModule:
    floats = [p.name for p in module[function].params if p.struct_info.dtype == "float64"]
    result = Gradient(function, names or floats)(module)
    check_well_formed(result)
    return result


def total(value: Any) -> Any:
    """One number of all tensors in nested tuples, in which each has a weight of its own."""
    found: list[Any] = []

    def collect(v: Any) -> None:
        if isinstance(v, (tuple, list)):
            for part in v:
                collect(part)
        elif isinstance(v.struct_info, TensorStructInfo):
            found.append(v)
        else:
            collect([v[k] for k in range(len(v.struct_info.fields))])

    collect(value.fields if isinstance(value, Tuple) else value)
    floats = [v for v in found if v.struct_info.dtype == "float64"]
    terms = [R.sum(R.sin(v * number(1.0 + k))) if v.struct_info.shape else v for k, v in enumerate(floats)]
    return sum(terms[1:], terms[0])


def check(module: IRModule, arguments: Sequence[Any], names: Sequence[str], function: str = "main") -> list[Any]:
    """The gradient is what differences of the function say, in two directions."""
    arguments = [np.asarray(a) for a in arguments]
    loss, grads = evaluate(gradient(module, names, function), f"{function}_adjoint", arguments)
    np.testing.assert_allclose(loss, evaluate(module, function, arguments), rtol=1e-12)
    places = [[p.name for p in module[function].params].index(name) for name in names]
    rng = np.random.default_rng(7)
    for _ in range(2):
        directions = {k: rng.normal(size=arguments[k].shape) for k in places}
        ends = [
            evaluate(
                module, function, [a + s * directions[k] if k in directions else a for k, a in enumerate(arguments)]
            )
            for s in (STEP, -STEP)
        ]
        found = sum((g * directions[k]).sum() for g, k in zip(grads, places, strict=True))
        np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * STEP), rtol=2e-6, atol=1e-7)
    return [np.asarray(g) for g in grads]


def loops(function: Function) -> list[Call]:
    """All loops of a function, those in regions too."""
    found = []
    for binding in function.bindings:
        for _, region in regions(binding.value):
            found += loops(region)
        if isinstance(binding.value, Call) and binding.value.op is LOOP:
            found.append(binding.value)
    return found


def ops(function: Function) -> list[str]:
    found = [b.value.op.short for b in function.bindings if isinstance(b.value, Call)]
    return [*found, *(name for b in function.bindings for _, r in regions(b.value) for name in ops(r))]


# -- functions of one number


def chosen(a):
    return R.cond(a > number(1.0), lambda: (R.sqrt(a), a), lambda: (a * a, number(7.0)))


def unused_by_one(a):
    b, c = R.exp(a), R.sin(a)
    return R.cond(a > number(1.0), lambda: b * b, lambda: c * c * c)


def chosen_twice(a):
    return R.cond(
        a > number(1.0), lambda: R.cond(a > number(3.0), lambda: R.exp(R.sin(a)), lambda: a * a), lambda: R.tanh(a)
    )


def newton(a, **options):
    start = (a + number(1.0),)
    body = lambda x: ((x + a / x) * number(0.5),)  # noqa: E731
    return R.while_loop(lambda x: R.abs(x * x - a) > number(1e-9), body, start, max_steps=30, **options)[0]


def adaptive(a, **options):
    """The decay dy/dt = -a·y until t = 1 by Heun's method: steps that err too much are halved."""

    def step(t, y, h):
        slow = y - h * a * y
        fast = y - h * number(0.5) * (a * y + a * slow)
        accepted = R.abs(fast - slow) < number(0.01)
        return R.cond(
            accepted,
            lambda: (t + h, fast, R.minimum(h * number(1.5), number(1.0) - t - h)),
            lambda: (t, y, h * number(0.5)),
        )

    begin = (number(0.0), R.exp(a * number(0.1)), number(0.5))
    return R.while_loop(lambda t, y, h: t < number(1.0 - 1e-9), step, begin, max_steps=60, **options)[1]


def counted(a, **options):
    """The number of steps depends on the data, and is 0 for a < 0.5."""
    steps = R.astype(a * number(2.0), "int64")
    return R.fori_loop(steps, lambda i, p: (R.sin(p * a + R.astype(i, "float64")),), (a,), max_steps=12, **options)


def integers(a, **options):
    """A counter and a flag are carried, and a float that passes through an integer."""

    def step(i, n, flag, p):
        more = R.cond(flag, lambda: R.astype(n, "float64") * a, lambda: p * a)
        return (n + R.const(2, "int64"), R.logical_not(flag), R.sin(p + more) + R.floor(p * number(3.0)))

    begin = (R.astype(a, "int64"), a > number(1.0), a)
    return R.fori_loop(5, step, begin, **options)[2]


def swapped(a, **options):
    """A carry moves with a only because another one does, two steps later."""
    return R.fori_loop(
        4, lambda i, p, q, r: (q, r * number(0.5) + p, R.sin(p)), (a, number(1.0), number(2.0)), **options
    )


def scanned(a, **options):
    rows = R.const(np.sin(np.arange(7.0))) * a
    return R.scan(lambda h, x: ((R.tanh(h * a + x),), (h * x * a, R.exp(x))), (a,), (rows,), **options)


def backwards(a, **options):
    return scanned(a, reverse=True, **options)


def without_rows(a, **options):
    return R.scan(lambda p, q: ((q, R.sin(p * a)), (p * q,)), (a, a * a), (), length=6, **options)


def never(a, **options):
    p, q = R.while_loop(
        lambda p, q: p > number(100.0), lambda p, q: (p * a, q + a), (a, R.exp(a)), max_steps=4, **options
    )
    return p * q


def nested(a, **options):
    def grow(u):
        return (u + R.sqrt(a) * number(0.5) + R.sin(u * a) * number(0.1),)

    def body(i, t):
        inner = lambda: R.while_loop(lambda u: u < number(3.0), grow, (t,), max_steps=40, **options)[0]  # noqa: E731
        return (R.tanh(R.cond(t > number(0.5), lambda: t - a, inner) * a) + number(0.4),)

    return R.fori_loop(3, body, (R.tanh(a),), **options)[0]


def scans_of_scans(a, **options):
    rows = R.const(np.linspace(-1.0, 1.0, 12).reshape(3, 4)) * a

    def outer(h, x):
        inner = R.scan(lambda g, z: ((R.sin(g * a + z),), (g * z,)), (h,), (x,), reverse=True, **options)
        return ((inner[0][0],), (inner[1][0],))

    return R.scan(outer, (a,), (rows,), **options)


def untouched(a, **options):
    """A carry that stays as it is."""
    return R.fori_loop(4, lambda i, p, q: (R.sin(p * q), q), (a, R.exp(a)), **options)


BRANCHES = {"branch": chosen, "one reads": unused_by_one, "branch in branch": chosen_twice}
LOOPS = {
    "newton": newton, "adaptive": adaptive, "count": counted, "integers": integers, "swap": swapped, "scan": scanned,
    "reverse": backwards, "length": without_rows, "zero trips": never, "nested": nested, "scans": scans_of_scans,
    "unchanged": untouched,
}  # fmt: skip
POINTS = [0.32, 1.1, 1.7]


@pytest.mark.parametrize("a", POINTS)
@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name, a):
    check(build([tensor("a")], lambda a: total(BRANCHES[name](a))), [a], ["a"])


@pytest.mark.parametrize("every", [None, 1, 2, 5, 100, True])
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name, every):
    module = build([tensor("a")], lambda a: total(LOOPS[name](a, checkpoint_every=every)))
    plain = build([tensor("a")], lambda a: total(LOOPS[name](a)))
    for a in POINTS:
        (found,) = check(module, [a], ["a"])
        (wanted,) = evaluate(gradient(plain), "main_adjoint", [np.array(a)])[1]
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_newton_is_the_root():
    (found,) = evaluate(gradient(build([tensor("a")], newton)), "main_adjoint", [np.array(2.0)])[1]
    np.testing.assert_allclose(found, 0.5 / np.sqrt(2.0), rtol=1e-8)


# -- what is active


@pytest.mark.parametrize("required", [c for n in (1, 2, 3) for c in itertools.combinations("xhw", n)])
@pytest.mark.parametrize("read", ["carry", "stack", "both"])
@pytest.mark.parametrize("how", [{}, {"reverse": True}, {"checkpoint_every": 2}])
def test_what_is_active(required, read, how):
    """Rows, carries and invariants, and what of the result is read, in all combinations."""

    def body(x, h, w):
        def step(h, g, row):
            after = R.tanh(R.matmul(h, w) + row)
            return ((after, R.sin(g + R.sum(row * h))), (after * row, R.sum(h)))

        (h, g), (y, z) = R.scan(step, (h, R.sum(h)), (x,), **how)
        parts = {"carry": (h, g), "stack": (y, z), "both": (h, g, y, z)}
        return total(parts[read])

    rng = np.random.default_rng(3)
    arguments = [rng.normal(size=(5, 3)), rng.normal(size=3), rng.normal(size=(3, 3))]
    check(build([tensor("x", 5, 3), tensor("h", 3), tensor("w", 3, 3)], body), arguments, required)


def test_what_nobody_reads_costs_nothing():
    """No adjoint is carried, stacked or summed that is not wanted."""

    def body(x, h, w):
        _, (y, _) = R.scan(lambda h, g, r: ((R.tanh(h * w + r), g * r), (h, g)), (h, h), (x,))
        return R.sum(y)

    module = build([tensor("x", 5, 3), tensor("h", 3), tensor("w", 3)], body)
    _, adjoint = loops(gradient(module, ["h"])["main_adjoint"])
    carries, ys, _ = adjoint.struct_info.fields
    assert len(carries.fields) == 1  # that of h alone: no sum for w, and nothing for g
    assert len(ys.fields) == 0


def test_integer_rows_and_tables():
    """Rows of a table are chosen by integers: the adjoint of the table is a sum over the steps."""

    def body(table, ids):
        def step(h, k):
            return ((R.tanh(h + R.take(table, k, axis=0)),), ())

        return total(R.scan(step, (R.zeros((3,), "float64"),), (ids,))[0])

    module = build([tensor("table", 4, 3), tensor("ids", 6, dtype="int64")], body)
    table = np.random.default_rng(0).normal(size=(4, 3))
    (found,) = check(module, [table, np.array([0, 2, 2, 0, 3, 2])], ["table"])
    assert not found[1].any()


def test_sizes_that_are_not_known():
    n = SizeVar("n", "int64")
    for every in (None, 2):

        def body(x, h):
            return total(R.scan(lambda h, x: ((R.tanh(h * x),), (h * x,)), (h,), (x,), checkpoint_every=every))  # noqa: B023

        module = build([tensor("x", n, 3), tensor("h", 3)], body)
        rng = np.random.default_rng(0)
        x, h = rng.normal(size=(5, 3)), rng.normal(size=3)
        found = check(module, [x, h], ["x", "h"])
        bound = evaluate(gradient(BindSizes({"n": 5})(module)), "main_adjoint", [x, h])[1]
        for a, b in zip(found, bound, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_closed_functions_have_the_same_gradient():
    for body in (nested, scans_of_scans):
        module = build([tensor("a")], lambda a: total(body(a)))  # noqa: B023
        found, wanted = (
            evaluate(gradient(m), "main_adjoint", [np.array(1.7)])[1][0] for m in (InlineFunctions()(module), module)
        )
        assert found == wanted


PASSES = (
    CanonicalizeBindings(), Rematerialize(), EliminateCommonSubexpr(), FoldConstant(), Simplify(), FoldTranspose(),
    DecomposeOpsForTraining(), DeadCodeElimination(), LegalizeOps(),
)  # fmt: skip


@pytest.mark.parametrize("seed", [13, 17, 101])
def test_passes_keep_the_meaning_of_adjoints(seed):
    """They reach into the regions; a legalised function has the gradient that it had."""
    module, arguments = program(seed)
    adjoint = gradient(module)
    wanted = flat(evaluate(adjoint, "main_adjoint", arguments))
    for each in PASSES:
        adjoint = each(adjoint)
        check_well_formed(adjoint)
        for found, value in zip(flat(evaluate(adjoint, "main_adjoint", arguments)), wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-13)
    again = flat(evaluate(gradient(adjoint), "main_adjoint", arguments))
    for found, value in zip(again, wanted, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-13)


def flat(value: Any) -> list[Any]:
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple) else [value]


# -- random programs


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed):
    """Of all parameters, and of some."""
    module, arguments = program(seed)
    check_well_formed(module)
    check(module, arguments, ["a", "v", "m"])
    check(module, arguments, [["a"], ["v"], ["m"], ["m", "a"]][seed % 4])


@pytest.mark.parametrize("seed", range(100, 106))
def test_random_programs_twice(seed):
    module, arguments = program(seed, depth=2)
    names = [["a", "v", "m"], ["v"], ["m", "a"]][seed % 3]
    check(of_gradient(module, names), arguments, names[::-1], "again")


# -- gradients of gradients


def of_gradient(module: IRModule, names: Sequence[str], function: str = "main", name: str = "again") -> IRModule:
    """A function more: one number of the gradient."""
    builder = BlockBuilder(gradient(module, names, function))
    params = [Var(p.name, p.struct_info) for p in module[function].params]
    with builder.function(name, params):
        result = builder.emit(Call(builder.module.get_global_var(f"{function}_adjoint"), tuple(params)))
        grads = [builder.emit(result[1][k]) for k in range(len(names))]
        value = grads[0] if len(grads) == 1 and grads[0].struct_info.ndim == 0 else total(grads)
        builder.emit_func_output(value)
    return builder.get()


@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("name", LOOPS)
def test_second_order(name, every):
    module = build([tensor("a")], lambda a: total(LOOPS[name](a, checkpoint_every=every)))
    for a in POINTS[1:]:
        check(of_gradient(module, ["a"]), [a], ["a"], "again")


def test_three_levels():
    """The derivatives of a⁵, whose steps are a branch in a loop."""

    def body(a):
        step = lambda i, p: (R.cond(i < R.const(2, "int64"), lambda: p * a, lambda: a * p),)  # noqa: E731
        return R.fori_loop(4, step, (a,))[0]

    module = build([tensor("a")], body)
    a, wanted = 1.3, [5 * 1.3**4, 20 * 1.3**3, 60 * 1.3**2]
    names = ["main", "second", "third"]
    for function, following, derivative in zip(names, [*names[1:], "end"], wanted, strict=True):
        module = of_gradient(module, ["a"], function, following)
        np.testing.assert_allclose(evaluate(module, following, [np.array(a)]), derivative, rtol=1e-13)


# -- a recurrent network


def recurrent(x, w, u, b, h, **options):
    return R.scan(lambda h, x: ((R.tanh(R.matmul(x, w) + R.matmul(h, u) + b),), ()), (h,), (x,), **options)[0][0]


RECURRENT = [tensor("x", 6, 2, 3), tensor("w", 3, 4), tensor("u", 4, 4), tensor("b", 4), tensor("h", 2, 4)]


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"checkpoint_every": 2}, {"checkpoint_every": 4}])
def test_recurrent_network_against_torch(options):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=p.struct_info.shape) for p in RECURRENT]
    module = build(RECURRENT, lambda *p: R.sum(R.sin(recurrent(*p, **options))))
    loss, grads = evaluate(gradient(module), "main_adjoint", arguments)
    x, w, u, b, h = leaves = [torch.tensor(a, requires_grad=True) for a in arguments]
    for row in reversed(x) if "reverse" in options else x:
        h = torch.tanh(row @ w + h @ u + b)
    torch.sin(h).sum().backward()
    np.testing.assert_allclose(loss, torch.sin(h).sum().detach(), rtol=1e-12)
    for found, leaf in zip(grads, leaves, strict=True):
        np.testing.assert_allclose(found, leaf.grad, rtol=1e-11, atol=1e-13)


def saved(function: Function) -> list[tuple[int, ...]]:
    """The shapes of what the first loop stacks."""
    return [field.shape for field in loops(function)[0].struct_info.fields[1].fields]


def test_a_recurrent_network_saves_its_state_alone():
    module = build(RECURRENT, lambda *p: R.sum(recurrent(*p)))
    assert saved(gradient(module)["main_adjoint"]) == [(6, 2, 4)]


def test_a_stacked_output_is_saved_already():
    def body(*p):
        x, w, u, b, h = p
        step = lambda h, x: ((R.tanh(R.matmul(x, w) + R.matmul(h, u) + b),) * 2,)  # noqa: E731
        found = R.scan(lambda h, x: (step(h, x)[0][:1], (h, R.sin(h))), (h,), (x,))
        return R.sum(found[1][0]) + R.sum(found[1][1])

    assert saved(gradient(build(RECURRENT, body))["main_adjoint"]) == [(6, 2, 4), (6, 2, 4)]


def test_what_is_saved_is_small():
    """Of many elementwise steps the state is saved; of a sum, the number."""

    def body(x, h):
        def step(h, x):
            for _ in range(4):
                h = R.tanh(R.sin(h) * R.exp(x))
            return ((h / (number(1.0) + R.sum(h * h)),), ())

        return R.sum(R.scan(step, (h,), (x,))[0][0])

    module = build([tensor("x", 9, 50), tensor("h", 50)], body)
    assert saved(gradient(module)["main_adjoint"]) == [(9, 50), (9,)]


def test_a_linear_loop_saves_nothing_and_needs_no_length():
    """What is multiplied by an invariant moves with it as with itself: the adjoint reads the invariant alone."""
    body = lambda a, t: R.while_loop(lambda t: t > number(1.0), lambda t: (t * number(0.5) + a,), (t,))[0]  # noqa: E731
    module = build([tensor("a"), tensor("t")], body)
    check(module, [0.1, 37.0], ["a", "t"])


def test_segments_save_their_beginnings():
    """100 steps in segments of 10 save 10 states; the steps of a segment save 10, while it is differentiated."""
    p = [tensor("x", 100, 2, 3), *RECURRENT[1:]]
    for every in (10, True):
        module = build(p, lambda *p: R.sum(recurrent(*p, checkpoint_every=every)))  # noqa: B023
        outer = [
            b.value
            for b in gradient(module)["main_adjoint"].bindings
            if isinstance(b.value, Call) and b.value.op is LOOP
        ]
        forward, backward = outer
        assert [f.shape for f in forward.struct_info.fields[1].fields] == [(10, 2, 4)]
        (again, adjoint) = loops(backward.attrs["body"])
        assert [f.shape for f in again.struct_info.fields[1].fields] == [(10, 2, 4)]
        assert adjoint.attrs["reverse"]
        (plain,) = loops(forward.attrs["body"])
        assert len(plain.struct_info.fields[1].fields) == 0  # nobody reads what its steps would save


def test_too_many_steps_of_segments():
    """The message has the number that the user wrote."""
    body = lambda a: R.while_loop(lambda t: t < a, lambda t: (t + number(1.0),), (number(0.0) * a,), 7, 3)[0]  # noqa: E731
    adjoint = gradient(build([tensor("a")], body))
    evaluate(adjoint, "main_adjoint", [np.array(7.0)])
    for a in (8.0, 9.5, 100.0):
        with pytest.raises(ArgumentError, match="did not end within max_steps=7"):
            evaluate(adjoint, "main_adjoint", [np.array(a)])

    def counted(a):
        return R.fori_loop(R.astype(a, "int64"), lambda i, t: (t * a,), (a,), 7, 3)[0]

    adjoint = gradient(build([tensor("a")], counted))
    evaluate(adjoint, "main_adjoint", [np.array(7.0)])
    for a in (8.0, 9.5, 100.0):
        with pytest.raises(ArgumentError, match="did not end within max_steps=7"):
            evaluate(adjoint, "main_adjoint", [np.array(a)])


def test_too_many_steps_of_segments_have_their_place():
    text = """
from pullback.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def going_on(t: R.Tensor((), "float64")) -> R.Tensor((), "bool"):
        return R.less(t, R.const(1000.0, "float64"))

    @R.function
    def step(t: R.Tensor((), "float64")) -> R.Tuple(R.Tensor((), "float64")):
        return (R.exp(t),)

    @R.function
    def main(a: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
        cls = Module
        found = R.while_loop(cls.going_on, cls.step, (a,), max_steps=4, checkpoint_every=2)
        return found[0]
"""
    adjoint = gradient(from_source(text))
    assert np.isfinite(evaluate(adjoint, "main_adjoint", [np.array(0.1)])[1][0])
    with pytest.raises(ArgumentError, match=r"(?s)max_steps=4.*:17:"):
        evaluate(adjoint, "main_adjoint", [np.array(-3.0)])


# -- zeros of what was not taken


def test_what_is_not_taken_moves_nothing():
    """At x = 0 the derivatives of log and sqrt are infinite, and nothing that is read moves with them."""
    x = tensor("x", 4)
    taken = R.const(np.array([True, False, True, False]))

    def masked_in_a_loop(x):
        return R.fori_loop(3, lambda i, t: (R.where(taken, R.sqrt(t), t * number(0.5)),), (x,))[0]

    def masked_after_a_loop(x):
        return R.where(taken, R.fori_loop(3, lambda i, t: (R.sqrt(t),), (x,))[0], number(0.0))

    def a_loop_that_does_not_run(x):
        log = R.log(x[1])
        return R.while_loop(lambda t: t > number(9.0), lambda t: (t * log,), (x[0],), max_steps=3)[0]

    def a_branch_that_is_not_taken(x):
        log = R.log(x[1])
        return R.cond(x[0] > number(9.0), lambda: log * x[0], lambda: x[0] * x[0])

    def a_branch_in_a_loop(x):
        def step(i, t):
            root = R.sqrt(t * x[1])
            return (R.cond(t > number(9.0), lambda: root, lambda: t * x[0]),)

        return R.fori_loop(3, step, (x[2],))[0]

    at, ordinary = np.array([0.7, 0.0, 1.3, 0.0]), np.array([0.7, 1e-300, 1.3, 1e-300])
    bodies = [
        masked_in_a_loop, masked_after_a_loop, a_loop_that_does_not_run, a_branch_that_is_not_taken, a_branch_in_a_loop,
    ]  # fmt: skip
    for body in bodies:
        module = gradient(build([x], lambda x: R.sum(body(x))))  # noqa: B023
        (found,) = evaluate(module, "main_adjoint", [at])[1]
        (wanted,) = evaluate(module, "main_adjoint", [ordinary])[1]
        assert np.isfinite(found).all(), (body.__name__, found)
        np.testing.assert_allclose(found[[0, 2]], wanted[[0, 2]], rtol=1e-12, err_msg=body.__name__)


def test_rows_after_the_last_step_move_nothing():
    """A loop in the closed form may stop before the last row."""
    row, step, t, n = tensor("row"), tensor("k", dtype="int64"), tensor("t"), tensor("n", dtype="int64")
    builder = BlockBuilder()
    builder.begin()
    body = Function((step, t, row), builder.finish(Tuple((Tuple((t + row,)), Tuple(())))))

    def main(x, n):
        return loop(n, (number(0.0),), (R.log(x),), (), body, length=4)[0][0]

    module = gradient(build([tensor("x", 4), n], main), ["x"])
    (found,) = evaluate(module, "main_adjoint", [np.array([2.0, 4.0, 0.0, 0.0]), np.array(2)])[1]
    np.testing.assert_array_equal(found, [0.5, 0.25, 0.0, 0.0])


def test_a_dense_adjoint_is_not_guarded():
    found = ops(gradient(build(RECURRENT, lambda *p: R.sum(recurrent(*p))))["main_adjoint"])
    assert "multiply" in found
    assert "multiply_no_nan" not in found


# -- errors


@I.ir_module
class Kernels:
    @T.prim_func
    def twice(A: T.Buffer((4,), "float64"), B: T.Buffer((4,), "float64")):
        count = T.alloc_buffer((1,), "int64")
        count[0] = 4
        for i in range(count[0]):
            B[i] = A[i] + A[i]

    @T.prim_func
    def square(A: T.Buffer((4,), "float64"), B: T.Buffer((4,), "float64")):
        for i in range(4):
            B[i] = A[i] * A[i]


def with_kernel(name: str, body: Any) -> IRModule:
    """``body(kernel, x, c)``, of which ``kernel`` calls the kernel."""
    builder, params = BlockBuilder(Kernels), [tensor("x", 4), tensor("c", 4)]
    kernel = lambda x: R.call_tir(builder.module.get_global_var(name), (x,), R.Tensor((4,), "float64"))  # noqa: E731
    with builder.function("main", params):
        builder.emit_func_output(body(kernel, *params))
    return builder.get()


def in_a_branch_in_a_loop(kernel, x, c):
    def step(i, t, u):
        known = kernel(c)  # it moves with nothing
        more = R.cond(R.sum(t) > number(0.0), lambda: kernel(t) * number(0.1), lambda: R.sin(t) + kernel(u * t))
        return (more + known, R.floor(u))

    return R.sum(R.fori_loop(3, step, (x, c))[0])


def test_kernels_in_regions():
    rng = np.random.default_rng(2)
    for _ in range(3):
        check(with_kernel("square", in_a_branch_in_a_loop), rng.normal(size=(2, 4)) * 0.5, ["x"])


def test_kernels_of_dropped_attempts_are_dropped():
    """A body may be differentiated anew; the kernels that are left are called."""

    def body(kernel, x, c):
        step = lambda i, t: (R.where(c > number(0.0), kernel(t), number(0.0)),)  # noqa: E731
        return R.sum(R.fori_loop(3, step, (x,))[0])

    module = gradient(with_kernel("square", body), ["x"])
    assert len([name for name in module if "square" in name]) == 2


def test_ops_without_gradient_are_listed_with_those_in_regions():
    module = with_kernel("twice", lambda k, x, c: in_a_branch_in_a_loop(k, k(x), c) + R.sum(k(c)))
    with pytest.raises(DifferentiationError, match="these ops have no gradient") as caught:
        gradient(module, ["x"])
    lines = [line for line in str(caught.value).splitlines() if line.startswith("  call_tir")]
    assert len(lines) == 3  # before the loop, and in both branches; not where nothing moves
    assert all("depends on memory that twice writes" in line for line in lines)


def test_a_loop_that_runs_backwards_until_it_is_told_to_stop_is_refused():
    step, t = tensor("k", dtype="int64"), tensor("t")
    builder = BlockBuilder()
    builder.begin()
    body = Function((step, t), builder.finish(Tuple((Tuple((R.sin(t),)), Tuple(())))))
    asked = Function((step, t), builder.finish(t > number(0.1)))
    module = build([tensor("a")], lambda a: loop(None, (a,), (), (), body, asked, 5, reverse=True)[0][0])
    with pytest.raises(DifferentiationError, match="backwards until its condition is false"):
        gradient(module)


def test_a_known_number_of_steps_for_the_square_root():
    n = SizeVar("n", "int64")
    body = lambda x, h: R.sum(R.scan(lambda h, x: ((h * x,), ()), (h,), (x,), checkpoint_every=True)[0][0])  # noqa: E731
    with pytest.raises(DifferentiationError, match=r"(?s)square root of the number of steps.*BindSizes"):
        gradient(build([tensor("x", n, 3), tensor("h", 3)], body))
