"""VMap: all ops against calls one by one, loops and branches that end by themselves, kernels, derivatives of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import te
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax import BlockBuilder, Call, Var
from pullback.relax.analysis import check_well_formed
from pullback.relax.control import loop
from pullback.relax.interpreter import evaluate
from pullback.relax.op.register import register_te_gradient
from pullback.relax.regions import regions
from pullback.relax.transform import JVP, AddRandomState, Gradient, InlineFunctions, VMap
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T
from tests.relax.op.backends import call_of
from tests.relax.op.test_gradients import outputs
from tests.relax.test_control import CASES, flat, half
from tests.relax.transform.test_jvp import SCALAR, STEP_INFO, build, region, tensor
from tests.samples import Case, all_ops, cases, dtypes_of

SIZE = 3
ORDERED = ("searchsorted", "bucketize", "nn.attention_var_len")  # of which some argument ascends


def one_by_one(module: IRModule, values: Sequence[Any], mask: Sequence[bool], size: int, name: str = "main"):
    """What a function gives for each element of a batch, stacked."""
    singles = [
        flat(evaluate(module, name, [v[k] if has else v for v, has in zip(values, mask, strict=True)]))
        for k in range(size)
    ]
    return [np.stack(parts) for parts in zip(*singles, strict=True)]


def elements(case: Case, values: np.ndarray) -> list[np.ndarray]:
    """Other values for the elements of a batch: those of the sample in another order."""
    if case.op.short in ORDERED:
        return [values] * SIZE
    return [np.roll(values.reshape(-1), k).reshape(values.shape) for k in range(SIZE)]


def masks(count: int) -> Iterator[tuple[bool, ...]]:
    """Which arguments have the axis: all ways to choose of two, else all of them and each by itself."""
    if count <= 2:
        yield from (m for m in itertools.product((True, False), repeat=count) if any(m))
    else:
        yield (True,) * count
        yield from (tuple(i == k for i in range(count)) for k in range(count))


def over_batch(case: Case, mask: Sequence[bool]) -> tuple[IRModule, list[np.ndarray], list[np.ndarray]] | None:
    """A module with a call and the same over a batch, arguments, and what is expected; where the op refuses elements
    with values in another order, all are alike."""
    params, call = call_of(case)
    module = build(params, lambda *_: call)
    expected: Any = None
    for choose in (lambda a: elements(case, a), lambda a: [a] * SIZE):
        values = [np.stack(choose(a)) if has else a for a, has in zip(case.args, mask, strict=True)]
        try:
            expected = one_by_one(module, values, mask, SIZE)
            break
        except UserError:
            continue
    assert expected is not None, case.id
    axes = [0 if has else None for has in mask]
    return VMap("main", in_axes=axes, axis_size=SIZE)(module), values, expected


def assert_same(got: Sequence[np.ndarray], expected: Sequence[np.ndarray], what: str, tolerance: float = 1e-9) -> None:
    for found, wanted in zip(got, expected, strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), what
        a, b = (np.asarray(v).astype(np.float64) for v in (found, wanted))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)


def samples_of(op: Op) -> list[Case]:
    """A case for each kind of arguments that the op is tried with."""
    known = dtypes_of(op)
    found: dict[Any, Case] = {}
    for case in cases(op, "float64" if "float64" in known else known[-1]):
        found.setdefault((tuple((a.shape, a.dtype) for a in case.args), repr(case.attrs)), case)
    return [case for case in found.values() if case.args]


@pytest.mark.allowance(30)
@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_all_ops(op: Op) -> None:
    for case in samples_of(op):
        for mask in masks(len(case.args)):
            module, values, expected = over_batch(case, mask)
            assert_same(flat(evaluate(module, "main_vmap", values)), expected, f"{case.id} {mask}")


@pytest.mark.allowance(30)
@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_all_ops_in_native_code(op: Op) -> None:
    for case in samples_of(op)[:3]:
        module, values, expected = over_batch(case, [True] * len(case.args))
        results = pullback.compile(module).function("main_vmap")(*values)
        got = [r.numpy() for r in flat(results)] if isinstance(results, tuple) else [results.numpy()]
        single = any(a.dtype == np.float32 for a in got)
        assert_same(got, expected, case.id, 2e-5 if single else 1e-7)


FLOAT_OPS = [
    op for op in all_ops() if op.gradient is not None and any(c.args and c.smooth for c in samples_of(op))
]  # fmt: skip


@pytest.mark.allowance(30)
@pytest.mark.parametrize("op", FLOAT_OPS, ids=lambda op: op.short)
def test_gradients_of_each_element(op: Op) -> None:
    """The gradient of a sum over a batch is that of each element; of what elements have in common, their sum."""
    for case in [c for c in samples_of(op) if c.smooth and all(a.size for a in c.args)][:3]:
        params, call = call_of(case)
        floats = [k for k, p in enumerate(params) if p.dtype == "float64"]
        fields = outputs(call)
        if not floats or not fields:
            continue
        for mask in itertools.islice(masks(len(params)), 2):
            weights = [np.cos(np.arange(int(np.prod(f.shape)), dtype=np.float64)).reshape(f.shape) for f in fields]

            def total(*_: Var, fields=fields, weights=weights):
                terms = [R.sum(f * R.const(w)) for f, w in zip(fields, weights, strict=True)]
                return sum(terms[1:], terms[0])

            module = build(params, total)
            single = Gradient("main", [params[k] for k in floats])(module)
            axes = [0 if has else None for has in mask]
            values = [np.stack(elements(case, a)) if has else a for a, has in zip(case.args, mask, strict=True)]
            try:
                expected = one_by_one(single, values, mask, SIZE, "main_adjoint")[1:]
            except UserError:
                continue
            whole = VMap("main", in_axes=axes, axis_size=SIZE)(module)
            builder = BlockBuilder(whole)
            outer = [Var(p.name, p.struct_info) for p in whole["main_vmap"].params]
            with builder.function("summed", outer):
                builder.emit_func_output(R.sum(builder.emit(whole.get_global_var("main_vmap")(*outer))))
            reverse = Gradient("summed", [outer[k] for k in floats])(builder.get())
            got = flat(evaluate(reverse, "summed_adjoint", values))[1:]
            wanted = [e if mask[k] else e.sum(axis=0) for k, e in zip(floats, expected, strict=True)]
            assert_same(got, wanted, f"{case.id} {mask}", 1e-7)


@pytest.mark.allowance(20)
@pytest.mark.parametrize("op", FLOAT_OPS, ids=lambda op: op.short)
def test_tangents_of_each_element(op: Op) -> None:
    """The tangent of a batch is the batch of tangents."""
    for case in [c for c in samples_of(op) if c.smooth and all(a.size for a in c.args)][:2]:
        params, call = call_of(case)
        fields = outputs(call)
        if not fields or not any(p.dtype == "float64" for p in params):
            continue
        module = build(params, lambda *_, fields=fields: R.tuple(*fields))
        rng = np.random.default_rng(0)
        values = [np.stack(elements(case, a)) for a in case.args]
        values += [rng.standard_normal((SIZE, *a.shape)) for a in case.args if a.dtype == np.float64]
        single = JVP("main")(module)
        whole = JVP("main_vmap")(VMap("main", axis_size=SIZE)(module))
        try:
            expected = one_by_one(single, values, [True] * len(values), SIZE, "main_jvp")
        except UserError:
            continue
        assert_same(flat(evaluate(whole, "main_vmap_jvp", values)), expected, case.id, 1e-7)
        other = VMap("main_jvp", axis_size=SIZE)(single)
        assert_same(flat(evaluate(other, "main_jvp_vmap", values)), expected, case.id, 1e-7)


# -- axes


def affine(x, w):
    return R.tanh(x @ w), R.sum(x)


@pytest.mark.parametrize("x_axis", [0, 1, 2, -1])
@pytest.mark.parametrize("out_axis", [0, 1, 2, -1])
def test_axes_of_parameters_and_results(x_axis, out_axis):
    module = build([tensor("x", 4, 3), tensor("w", 3, 2)], affine)
    x, w = np.random.default_rng(0).standard_normal((5, 4, 3)), np.linspace(-1, 1, 6).reshape(3, 2)
    result = VMap("main", in_axes=(x_axis, None), out_axes=(out_axis, 0))(module)
    check_well_formed(result)
    y, total = evaluate(result, "main_vmap", [np.moveaxis(x, 0, x_axis), w])
    np.testing.assert_allclose(y, np.moveaxis(np.tanh(x @ w), 0, out_axis))
    np.testing.assert_allclose(total, x.sum(axis=(1, 2)))


def test_any_size_of_the_batch_and_a_result_that_is_the_same_for_all():
    module = VMap("main")(build([tensor("x", 4)], lambda x: (R.nn.softmax(x), half(2.0))))
    compiled = pullback.compile(module).function("main_vmap")
    for size in (1, 3, 6):
        x = np.random.default_rng(size).standard_normal((size, 4))
        y, two = compiled(x)
        np.testing.assert_allclose(y.numpy().sum(axis=1), np.ones(size))
        np.testing.assert_array_equal(two.numpy(), np.full(size, 2.0))


def test_a_batch_of_batches():
    module = VMap("main_vmap", in_axes=(1, 0))(
        VMap("main", in_axes=(0, None))(build([tensor("x", 4, 3), tensor("w", 3, 2)], affine))
    )
    x, w = np.random.default_rng(0).standard_normal((5, 7, 4, 3)), np.random.default_rng(1).standard_normal((7, 3, 2))
    y, total = evaluate(module, "main_vmap_vmap", [x, w])
    np.testing.assert_allclose(y, np.tanh(np.einsum("bakl,alm->abkm", x, w)))
    np.testing.assert_allclose(total, x.sum(axis=(2, 3)).T)


def test_natural_forms_stay_what_they_are():
    def main(x, w, image, filters):
        h = R.nn.relu(R.nn.layer_norm(x @ w, R.ones((2,), "float64"), R.zeros((2,), "float64")))
        return R.sum(h, axis=0), R.nn.conv2d(image, filters), R.cumsum(R.permute_dims(x), axis=-1)

    params = [tensor("x", 4, 3), tensor("w", 3, 2), tensor("image", 1, 2, 5, 5), tensor("filters", 3, 2, 3, 3)]
    module = VMap("main", in_axes=(0, None, 0, None), axis_size=2)(build(params, main))
    names = [b.value.op.short for b in module["main_vmap"].bindings if isinstance(b.value, Call)]
    assert not [n for n in names if n.startswith("batch.")]
    assert {"matmul", "nn.layer_norm", "nn.conv2d", "cumsum", "permute_dims"} <= set(names)


def test_the_text_can_be_read():
    module = VMap("main")(build([tensor("x", 4)], lambda x: R.roll(x, 1, 0)))
    assert "R.batch.op(" in str(module)
    again = from_source(str(module))
    x = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(evaluate(again, "main_vmap", [x]), np.roll(x, 1, axis=1))


def test_what_draws_without_a_state_draws_for_each_element():
    def main(x, fixed):
        return R.random.uniform((4,)), R.nn.dropout(x)[0], R.nn.dropout(fixed)[0]

    params = [tensor("x", 4, dtype="float32"), tensor("fixed", 4, dtype="float32")]
    module = VMap("main", in_axes=(0, None), axis_size=50)(build(params, main))
    module = AddRandomState("main_vmap")(module)
    values = [np.ones((50, 4), "float32"), np.ones(4, "float32")]
    for drawn in evaluate(module, "main_vmap", [*values, np.array([3, 4], "uint64")]):
        assert drawn.shape == (50, 4)
        assert len({row.tobytes() for row in drawn}) > 10
    with pytest.raises(UserError, match="permutation has no form for a batch"):
        VMap("main")(build([tensor("x", 4)], lambda x: (x, R.random.permutation(n=4))))


def test_errors():
    module = build([tensor("x", 4), tensor("k", dtype="int64")], lambda x, k: x)
    with pytest.raises(ArgumentError, match="in_axes has 3 entries for 2 parameters"):
        VMap("main", in_axes=(0, 0, 0))(module)
    with pytest.raises(ArgumentError, match="says axis 2, and with the axis of the batch"):
        VMap("main", in_axes=(2, None))(module)
    with pytest.raises(ArgumentError, match="no parameter of main has the axis"):
        VMap("main", in_axes=None)(module)
    with pytest.raises(ArgumentError, match="results have the axis"):
        VMap("main", out_axes=None)(module)
    with pytest.raises(ArgumentError, match="got 'x'"):
        VMap("main", in_axes=("x", None))(module)
    with pytest.raises(ArgumentError, match="kernel of the loop IR"):
        VMap("double")(Kernels)


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_a_check_of_values_says_what_the_op_says(target):
    def main(x, k):
        return R.gather_elements(x, k, axis=0)

    module = VMap("main")(build([tensor("x", 4), tensor("k", 2, dtype="int64")], main))
    compiled = pullback.compile(module, target).function("main_vmap")
    x = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(compiled(x, np.array([[0, 3], [1, 1]])).numpy(), [[0.0, 3.0], [5.0, 5.0]])
    with pytest.raises(ArgumentError, match="an index is outside its axis"):
        compiled(x, np.array([[0, 3], [1, 4]]))


# -- kernels


@I.ir_module
class Kernels:
    @T.prim_func
    def double(x: T.Buffer((4,), "float64"), w: T.Buffer((1,), "float64"), y: T.Buffer((4,), "float64")):
        for i in T.parallel(4):
            y[i] = x[i] * w[0] + x[3 - i]

    @R.function
    def main(x: R.Tensor((4,), "float64"), w: R.Tensor((1,), "float64")) -> R.Tensor((4,), "float64"):
        cls = Kernels
        y = R.call_tir(cls.double, (x, w), R.Tensor((4,), "float64"))
        return y


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("mask", [(True, False), (False, True), (True, True)])
def test_a_kernel_of_the_users(mask, size):
    module = VMap("main", in_axes=[0 if has else None for has in mask], axis_size=size)(Kernels)
    check_well_formed(module)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal((3, 4) if mask[0] else 4), rng.standard_normal((3, 1) if mask[1] else 1)]
    expected = one_by_one(Kernels, values, mask, 3)
    for target in ("debug", "llvm"):
        got = pullback.compile(module, target).function("main_vmap")(*values)
        assert_same([got.numpy()], expected, target)


def test_a_kernel_with_a_gradient_of_the_users_keeps_it():
    register_te_gradient(
        "vmap_test_double",
        lambda dy, x, w: [
            te.compute(x.shape, lambda i: dy[i] * 100.0),
            te.compute(w.shape, lambda i: dy[i] * 0.0),
        ],
    )

    def main(x, w):
        kernel = Kernels.get_global_var("double")
        return R.sum(R.call_tir_with_grad(kernel, (x, w), R.Tensor((4,), "float64"), te_grad_name="vmap_test_double"))

    builder = BlockBuilder(Kernels)
    params = [tensor("x", 4), tensor("w", 1)]
    with builder.function("other", params):
        builder.emit_func_output(builder.emit(main(*params)))
    module = builder.get()
    values = [np.random.default_rng(0).standard_normal((3, 4)), np.array([2.0])]
    whole = VMap("other", in_axes=(0, None))(module)
    assert_same(
        flat((evaluate(whole, "other_vmap", values),)), one_by_one(module, values, (True, False), 3, "other"), ""
    )
    per_element = VMap("other_adjoint", in_axes=(0, None))(Gradient("other", "x")(module))
    _, (dx,) = evaluate(per_element, "other_adjoint_vmap", values)
    np.testing.assert_array_equal(dx, np.full((3, 4), 100.0))


# -- control flow


STARTS = np.array([0.35, 1.7, 4.0, 0.9])


@pytest.mark.parametrize("name", CASES)
def test_branches_and_loops_of_each_element(name):
    body, plain = CASES[name]
    module = build([tensor("a")], body)
    expected = [np.stack(parts) for parts in zip(*[flat(plain(a)) for a in STARTS], strict=True)]
    for given in (module, InlineFunctions()(module)):
        whole = VMap("main", axis_size=4)(given)
        check_well_formed(whole)
        for found, wanted in zip(flat(evaluate(whole, "main_vmap", [STARTS])), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_no_variable_is_bound_in_two_functions(name):
    """Regions, and the function that it came from, have their own."""
    module = VMap("main")(build([tensor("a")], CASES[name][0]))
    module = JVP("main_vmap")(module)
    seen: dict[Var, str] = {}

    def look(function, where):
        for var in (*function.params, *(b.var for b in function.bindings)):
            assert seen.setdefault(var, where) == where, var.name
        for number, binding in enumerate(function.bindings):
            for key, inner in regions(binding.value):
                look(inner, f"{where} {number} {key}")

    for key in ("main_vmap", "main_vmap_jvp"):
        look(module[key], key)


@pytest.mark.parametrize("name", CASES)
def test_tangents_before_or_after(name):
    module = build([tensor("a")], CASES[name][0])
    directions = np.array([1.0, -2.0, 0.5, 1.3])
    after = flat(evaluate(JVP("main_vmap")(VMap("main")(module)), "main_vmap_jvp", [STARTS, directions]))
    before = flat(evaluate(VMap("main_jvp")(JVP("main")(module)), "main_jvp_vmap", [STARTS, directions]))
    for a, b in zip(after, before, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("mask", [m for m in itertools.product((True, False), repeat=4) if any(m)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["count", "condition"])
def test_a_loop_with_everything(kind, reverse, mask):
    """Counts, carries, rows and invariants, of which some have the axis; elements that end at different steps keep
    their carries, and have zeros in the rows of steps that they did not take."""

    def step(k, c, n, x, w):
        carries, ys = (c * w + x, n + k), (c + R.astype(k, "float64"), k)
        return R.tuple(R.tuple(*carries), R.tuple(*ys))

    def asked(k, c, n, w):
        inside = R.greater(k, R.const(1)) if reverse else R.less(k, R.const(4))
        return R.logical_and(inside, c < half(2.0))

    body = region(step, STEP_INFO, SCALAR, STEP_INFO, SCALAR, SCALAR)
    condition = region(asked, STEP_INFO, SCALAR, STEP_INFO, SCALAR) if kind == "condition" else None

    def main(count, c, x, w):
        return loop(count if condition is None else None, (c, R.const(0)), (x,), (w,), body, condition, 5, reverse)

    module = build([tensor("count", dtype="int64"), tensor("c"), tensor("x", 5), tensor("w")], main)
    rng = np.random.default_rng(7)
    whole = [np.array([3, 0, 5, 4]), rng.standard_normal(4), rng.standard_normal((4, 5)), rng.uniform(0.5, 3, 4)]
    values = [v if has else v[0] for v, has in zip(whole, mask, strict=True)]
    result = VMap("main", in_axes=[0 if has else None for has in mask])(module)
    check_well_formed(result)
    got = flat(evaluate(result, "main_vmap", values))
    assert_same(got, one_by_one(module, values, mask, 4), f"{mask}")


def test_a_condition_that_is_the_same_for_all_stays_a_branch():
    def main(c, x):
        return R.cond(c > half(0.0), lambda: R.exp(x), lambda: x)

    module = VMap("main", in_axes=(None, 0))(build([tensor("c"), tensor("x", 3)], main))
    ops = [b.value.op.short for b in module["main_vmap"].bindings if isinstance(b.value, Call)]
    assert "branch" in ops and "where" not in ops
    x = np.random.default_rng(0).standard_normal((2, 3))
    for c, expected in ((1.0, np.exp(x)), (-1.0, x)):
        np.testing.assert_allclose(evaluate(module, "main_vmap", [np.array(c), x]), expected)
