"""Branches, loops and functions as values: types, meaning, and the closed form that passes work on."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.ir.module import IRModule
from pullback.ir.node import structural_equal
from pullback.relax import BlockBuilder, Call, Function, If, Tuple, Var, copy_with_new_vars
from pullback.relax.analysis import check_well_formed, free_vars, used_vars
from pullback.relax.interpreter import evaluate
from pullback.relax.regions import is_closed, regions, require_straight
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform import (
    AddRandomState,
    BindSizes,
    DeadCodeElimination,
    InlineFunctions,
    LegalizeOps,
    MixedPrecision,
    Normalize,
)
from pullback.relax.transform.add_random_state import refuse_draws_without_state
from pullback.relax.transform.inline_functions import inline_calls
from pullback.script import relax as R
from pullback.tir.expr import Var as SizeVar


def scalar(name: str, dtype: str = "float64") -> Var:
    return Var(name, TensorStructInfo((), dtype))


def build(params: list[Var], body) -> IRModule:
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(body(*params))
    return builder.get()


def half(value: float = 0.5):
    return R.const(value, "float64")


def newton(a):
    (x,) = R.while_loop(lambda x: R.abs(x * x - a) > half(1e-9), lambda x: ((x + a / x) * half(),), (a,))
    return x


def sums(a):
    rows = R.const(np.arange(5.0))
    (total,), (seen,) = R.scan(lambda t, r: ((t + r * a,), (t,)), (a,), (rows,), reverse=True)
    return (total, seen)


def powers(a):
    return R.fori_loop(4, lambda i, p, q: (p * a, q + R.astype(i, "float64")), (a, a))


def chosen(a):
    return R.cond(a > half(1.0), lambda: (R.sqrt(a), a), lambda: (a * a, half(7.0)))


def nested(a):
    def body(i, t):
        more = R.cond(t > half(3.0), lambda: t - a, lambda: R.while_loop(lambda u: u < half(3.0), grow, (t,))[0])
        return (more * a,)

    def grow(u):
        return (u + a,)

    return R.fori_loop(3, body, (a,))[0]


def plain_newton(a):
    x = a
    while abs(x * x - a) > 1e-9:
        x = (x + a / x) * 0.5
    return x


def plain_nested(a):
    t = a
    for _ in range(3):
        if t > 3.0:
            t = (t - a) * a
        else:
            u = t
            while u < 3.0:
                u = u + a
            t = u * a
    return t


def plain_sums(a):
    total, seen = a, np.zeros(5)
    for k in reversed(range(5)):
        seen[k] = total
        total = total + k * a
    return total, seen


CASES = {
    "newton": (newton, plain_newton),
    "scan": (sums, plain_sums),
    "fori": (powers, lambda a: (a**5, a + 6.0)),
    "if": (chosen, lambda a: (np.sqrt(a), a) if a > 1.0 else (a * a, 7.0)),
    "nested": (nested, plain_nested),
}


def flat(value):
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("a", [0.3, 1.7, 4.0])
def test_meaning_and_closed_form(name, a):
    """What the interpreter computes is what Python does, as written and in the closed form."""
    build_it, plain = CASES[name]
    module = build([scalar("a")], build_it)
    check_well_formed(module)
    closed = InlineFunctions()(module)
    check_well_formed(closed)
    assert not is_closed(module["main"])
    assert is_closed(closed["main"])
    wanted = flat(plain(a))
    for m in (module, closed):
        for found, value in zip(flat(evaluate(m, "main", [np.array(a)])), wanted, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_copies_are_equal(name):
    module = build([scalar("a")], CASES[name][0])
    for m in (module, InlineFunctions()(module)):
        assert structural_equal(copy_with_new_vars(m["main"]), m["main"])
        assert structural_equal(Normalize()(m)["main"], m["main"])


def test_regions_read_their_parameters_alone():
    closed = InlineFunctions()(build([scalar("a")], nested))["main"]

    def look(function: Function) -> int:
        assert free_vars(function) == []
        return 1 + sum(look(r) for b in function.bindings for _, r in regions(b.value))

    assert look(closed) == 6  # main, the body of fori, two branches, and a while's two functions


def test_passes_reach_regions():
    """A pass for straight code closes a function and works on its regions, too."""

    def body(a):
        def step(i, t):
            unused = (R.exp(t), t * a)
            return (unused[1],)

        return R.fori_loop(2, step, (a,))[0]

    module = build([scalar("a")], body)
    found = DeadCodeElimination()(InlineFunctions()(module))["main"]
    (region,) = (r for b in found.bindings for _, r in regions(b.value))
    assert [b.value.op.short for b in region.bindings if isinstance(b.value, Call)] == ["multiply"]
    assert evaluate(IRModule({"main": found}), "main", [np.array(2.0)]) == 8.0


def test_sizes_are_bound_inside():
    n = SizeVar("n", "int64")
    x = Var("x", TensorStructInfo((n, 3), "float64"))

    def body(x):
        zeros = R.zeros((3,), "float64")
        (total,), (rows,) = R.scan(lambda t, r: ((t + r,), (t + R.ones((n, 3), "float64").sum(),)), (zeros,), (x,))
        return (total, rows)

    module = build([x], body)
    data = np.arange(6.0).reshape(2, 3)
    for m in (
        module,
        InlineFunctions()(module),
        BindSizes({"n": 2})(module),
        BindSizes({"n": 2})(InlineFunctions()(module)),
    ):
        total, rows = evaluate(m, "main", [data])
        np.testing.assert_array_equal(total, data.sum(0))
        np.testing.assert_array_equal(rows, np.stack([np.zeros(3), data[0]]) + 6.0)


def test_functions_are_values():
    """Functions are called, and passed to functions; those of the module may take functions."""
    a = scalar("a")
    f = Var("f", R.Callable([a.struct_info], a.struct_info))
    x = scalar("x")
    builder = BlockBuilder()
    with builder.function("twice", [f, x]):
        builder.emit_func_output(f(f(x)))
    with builder.function("main", [a]):
        y = scalar("y")
        with builder.inner():
            inner = Function((y,), builder.finish(y * a))
        times = builder.emit(inner, "times")
        builder.emit_func_output(builder.module.get_global_var("twice")(times, a))
    module = builder.get()
    check_well_formed(module)
    assert evaluate(module, "main", [np.array(3.0)]) == 27.0
    closed = inline_calls(module["main"], module)
    assert is_closed(closed)
    assert evaluate(IRModule({"main": closed}), "main", [np.array(3.0)]) == 27.0


def test_free_variables_of_an_if():
    a, b = scalar("a"), scalar("b")
    value = R.cond(a > half(), lambda: b * b, lambda: a)
    assert set(used_vars(value)) >= {b}


REFUSED = {
    "branches of two types": (
        lambda a: R.cond(a > half(), lambda: a, lambda: R.astype(a, "float32")),
        ShapeError,
        "differ in type",
    ),
    "condition of a branch": (lambda a: R.cond(a, lambda: a, lambda: a), UserError, "must be a bool scalar"),
    "condition of a loop": (lambda a: R.while_loop(lambda t: t, lambda t: (t,), (a,)), UserError, "be a bool scalar"),
    "a carry that changes": (
        lambda a: R.fori_loop(3, lambda i, t, u: (R.astype(t, "float32"), R.reshape(u, (1,))), (a, a)),
        ShapeError,
        "carry 0 begins as .* carry 1 begins as",
    ),
    "carries lost": (lambda a: R.fori_loop(3, lambda i, t, u: (t,), (a, a)), ShapeError, "gives 1 carries and gets 2"),
    "no tuple": (lambda a: R.fori_loop(3, lambda i, t: t, (a,)), UserError, "must be a tuple"),
    "lengths": (
        lambda a: R.scan(lambda t, x, y: ((t,), ()), (a,), (R.zeros((3,), "float64"), R.zeros((4,), "float64"))),
        ShapeError,
        "differ in length",
    ),
    "no length": (lambda a: R.scan(lambda t: ((t,), ()), (a,), ()), UserError, "how many steps"),
    "rows of a scalar": (lambda a: R.scan(lambda t, x: ((t,), ()), (a,), (a,)), ShapeError, "has no rows"),
    "negative count": (lambda a: R.fori_loop(-1, lambda i, t: (t,), (a,)), ArgumentError, "number of steps"),
    "float count": (lambda a: R.fori_loop(a, lambda i, t: (t,), (a,)), UserError, "number of steps"),
    "max_steps": (
        lambda a: R.while_loop(lambda t: t > a, lambda t: (t,), (a,), max_steps=0),
        ArgumentError,
        "at least 1",
    ),
    "no function": (lambda a: R.fori_loop(3, a, (a,)), UserError, "must be a function"),
    "one value": (lambda a: R.fori_loop(3, lambda i, t: (t,), a), ArgumentError, "tuples of graph values"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    body, kind, message = REFUSED[name]
    with pytest.raises(kind, match=f"(?s){message}"):
        build([scalar("a")], body)


def test_too_many_steps():
    module = build(
        [scalar("a")], lambda a: R.while_loop(lambda t: t < a, lambda t: (t + half(1.0),), (half(0.0),), max_steps=4)
    )
    assert evaluate(module, "main", [np.array(4.0)]) == (4.0,)
    for m in (module, InlineFunctions()(module)):
        with pytest.raises(ArgumentError, match="did not end within max_steps=4"):
            evaluate(m, "main", [np.array(5.0)])


def test_escaping_functions_are_refused():
    builder = BlockBuilder()
    a, y = scalar("a"), scalar("y")
    with builder.function("main", [a]):
        with builder.inner():
            inner = Function((y,), builder.finish(y * a))
        f = builder.emit(inner, "f")
        builder.emit_func_output(Tuple((f, a)))
    with pytest.raises(UserError, match="used as a value"):
        InlineFunctions()(builder.get())


def test_passes_for_straight_code_say_so():
    module = build([scalar("a")], chosen)
    with pytest.raises(UserError, match=r"(?s)MyPass handles straight code only.*an if"):
        require_straight("MyPass", module["main"])


def test_well_formed_looks_inside():
    a, other = scalar("a"), scalar("other")
    builder = BlockBuilder()
    with builder.function("main", [a]):
        with builder.inner():
            then = builder.finish(other * a)
        with builder.inner():
            otherwise = builder.finish(a)
        builder.emit_func_output(If(a > half(), then, otherwise))
    with pytest.raises(UserError, match="other is used where it is not defined"):
        check_well_formed(builder.get())


def single(name: str, *shape: int) -> Var:
    return Var(name, TensorStructInfo(shape, "float32"))


def recurrent(x, h, w, u):
    """A recurrent cell over the rows of x, whose steps drop elements."""

    def cell(h, row):
        new = R.tanh(R.matmul(row, w) + R.matmul(h, u))
        return (R.dropout(new, p=0.5),), (new,)

    (last,), (all_,) = R.scan(cell, (h,), (x,))
    return (R.cond(R.sum(last) > 0.0, lambda: R.dropout(last, p=0.5), lambda: last), all_)


def recurrent_module() -> IRModule:
    return build([single("x", 5, 2, 3), single("h", 2, 4), single("w", 3, 4), single("u", 4, 4)], recurrent)


def recurrent_arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in ((5, 2, 3), (2, 4), (3, 4), (4, 4))]


def test_random_numbers_differ_from_step_to_step():
    """Each step draws anew; the same state gives the same numbers; inner loops have seeds of their own."""
    x = single("x", 64)

    def body(x):
        (_,), (rows,) = R.scan(lambda t: ((t,), (R.dropout(t, p=0.5),)), (x,), (), length=6)

        def outer(i, t):
            (_,), (inner,) = R.scan(lambda t: ((t,), (R.dropout(x, p=0.5),)), (x,), (), length=2)
            return (R.concat([t[2:], inner], axis=0),)

        (kept,) = R.fori_loop(2, outer, (R.zeros((4, 64), "float32"),))
        chosen = R.cond(R.sum(x) > 0.0, lambda: R.dropout(x, p=0.5), lambda: R.dropout(x, p=0.5) * 3.0)
        return (rows, kept, chosen)

    module = AddRandomState()(build([x], body))
    check_well_formed(module)
    ones, state = np.ones(64, np.float32), np.array([5, 2], np.uint64)
    rows, kept, chosen = evaluate(module, "main", [ones, state])
    again = evaluate(module, "main", [ones, state])
    for a, b in zip((rows, kept, chosen), again, strict=True):
        np.testing.assert_array_equal(a, b)
    masks = {tuple(m != 0) for m in (*rows, *kept, chosen, evaluate(module, "main", [-ones, state])[2])}
    assert len(masks) == 6 + 4 + 2
    later = evaluate(module, "main", [ones, np.array([5, 3], np.uint64)])[0]
    assert not np.array_equal(later, rows)


def test_draws_without_state_are_refused_inside():
    with pytest.raises(UserError, match="has no state"):
        refuse_draws_without_state(InlineFunctions()(recurrent_module())["main"])


def test_mixed_precision_reaches_regions():
    """Products in a loop's body are computed from half precision; what regions take and give stays float32."""
    module = AddRandomState()(recurrent_module())
    mixed = MixedPrecision("main")(module)
    check_well_formed(mixed)
    dtypes = set()

    def look(function: Function) -> None:
        for binding in function.bindings:
            if isinstance(binding.value, Call) and getattr(binding.value.op, "short", "") == "matmul":
                dtypes.add(binding.value.args[0].struct_info.dtype)
            for _, region in regions(binding.value):
                look(region)

    look(mixed["main"])
    assert dtypes == {"bfloat16"}
    arguments = [*recurrent_arguments(), np.array([1, 1], np.uint64)]
    for a, b in zip(evaluate(module, "main", arguments), evaluate(mixed, "main", arguments), strict=True):
        np.testing.assert_allclose(a, b, atol=0.05)


def test_legalized_regions():
    module = AddRandomState()(recurrent_module())
    arguments = [*recurrent_arguments(), np.array([1, 1], np.uint64)]
    lowered = LegalizeOps()(module)
    check_well_formed(lowered)
    assert "matmul" in lowered.functions
    for a, b in zip(evaluate(module, "main", arguments), evaluate(lowered, "main", arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_what_is_built_outside_is_computed_outside():
    """A Python function may use what was built before it ran, named or not: that is bound where it was built."""
    x = single("x", 64)

    def body(x):
        mask = R.dropout(R.ones((64,), "float32"), p=0.5)  # drawn once, the same in all steps
        scale = R.exp(x)

        def inner(t):
            return (R.cond(R.sum(t) > 0.0, lambda: t * mask * scale, lambda: t * mask),), (R.dropout(mask, p=0.1),)

        (last,), (rows,) = R.scan(inner, (x,), (), length=3)
        return (last, rows, mask)

    module = build([x], body)
    check_well_formed(module)
    assert [b.value.op.short for b in module["main"].bindings if isinstance(b.value, Call)].count("exp") == 1
    closed = AddRandomState()(module)
    check_well_formed(closed)
    data = np.linspace(-0.5, 1, 64, dtype=np.float32)
    last, rows, mask = evaluate(closed, "main", [data, np.array([5, 2], np.uint64)])
    np.testing.assert_allclose(last, data * mask**3 * np.exp(data) ** 3, rtol=1e-5)
    assert all(not np.any(row[mask == 0]) for row in rows)
    assert len({tuple(row != 0) for row in rows}) == 3
