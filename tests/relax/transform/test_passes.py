"""The smaller passes, by Before and Expected."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax, tir
from pullback.ir import IRModule, Op, ShapeError, UserError, assert_structural_equal, structural_equal
from pullback.relax import BlockBuilder, Call, Function, TensorStructInfo, Var, op
from pullback.relax.op.call.call_tir import call_tir
from pullback.relax.transform import (
    BindParams,
    BindSizes,
    CanonicalizeBindings,
    DeadCodeElimination,
    DecomposeOpsForInference,
    DecomposeOpsForTraining,
    EliminateCommonSubexpr,
    FoldConstant,
    InlineFunctions,
    LegalizeOps,
    RaiseOps,
    RebatchInputs,
    RepeatBroadcasts,
    Simplify,
)
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from tests.helpers import round_trip
from tests.samples import all_ops, cases, dtypes_of


def check(step, before, expected) -> None:
    after = step(before)
    assert_structural_equal(after, expected)
    round_trip(after)


def test_dead_code_elimination():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, x)  # noqa: F841  (dead)
                c = R.add(x, x)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                c = R.add(x, x)
                R.output(c)
            return c

    check(DeadCodeElimination(), Before, Expected)


def test_common_subexpressions():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(x)
                c = R.add(a, b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                c = R.add(a, a)
                R.output(c)
            return c

    check(EliminateCommonSubexpr(), Before, Expected)


def test_fold_constant_keeps_what_would_grow():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.add(R.const(1.0, "float32"), R.const(2.0, "float32"))
                b = R.broadcast_to(a, (3,))
                c = R.add(x, b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                b = R.broadcast_to(R.const(3.0, "float32"), (3,))
                c = R.add(x, b)
                R.output(c)
            return c

    check(FoldConstant(), Before, Expected)


def test_simplify_is_exact():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                one = R.ones((3,), "float32")
                a = R.multiply(one, x)
                b = R.reshape(a, (3,))
                c = R.add(b, R.zeros((3,), "float32"))
                R.output(c)
            return c

    @I.ir_module
    class Expected:  # x + 0 stays: it would turn -0.0 into 0.0
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                zero = R.zeros((3,), "float32")
                c = R.add(x, zero)
                R.output(c)
            return c

    check(Simplify(), Before, Expected)


def test_simplify_slices_from_where_a_value_came():
    """All slices of a slice of 7 rows, with strides: the elements are NumPy's, and one slice is left, or none."""
    rng, steps = np.random.default_rng(0), (None, 1, 2, 3)
    x = np.arange(7 * 3, dtype=np.float32).reshape(7, 3)
    for _ in range(40):
        (a, b, c, d), (s, t) = rng.integers(-8, 9, 4).tolist(), (steps[k] for k in rng.integers(0, 4, 2))
        var, builder = Var("x", TensorStructInfo((7, 3))), BlockBuilder()
        with builder.function("main", [var]):
            with builder.dataflow():
                first = builder.emit(op.strided_slice(var, [0], [a], [b], None if s is None else [s]))
                second = op.strided_slice(first, [0, 1], [c, 0], [d, 2], None if t is None else [t, 1])
                out = builder.emit_output(op.strided_slice(builder.emit(second), [1], [0], [2]))
            builder.emit_func_output(out)
        simple = Simplify()(builder.get())
        calls = [v.value for v in simple["main"].bindings if isinstance(v.value, Call)]
        assert len(calls) <= 1 and all(c.args[0] is simple["main"].params[0] for c in calls)
        result = pullback.compile(simple, "debug").function("main")(x)
        np.testing.assert_array_equal(result.numpy(), x[a:b:s][c:d:t, :2])


def test_simplify_leaves_slices_that_go_backwards():
    """A slice that turns rows round is no identity, though its type is its argument's."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((7,), "float32")):
            y = R.strided_slice(x, axes=[0], begin=[-1], end=[-100], strides=[-1])
            z = R.strided_slice(y, axes=[0], begin=[0], end=[7])
            return z

    x = np.arange(7, dtype=np.float32)
    simple = Simplify()(Before)
    assert [b.value.op.short for b in simple["main"].bindings if isinstance(b.value, Call)] == ["strided_slice"]
    np.testing.assert_array_equal(pullback.compile(simple, "debug").function("main")(x).numpy(), x[::-1])


def test_simplify_takes_away_permutations_that_cancel():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 5), "float32")):
            with R.dataflow():
                turned = R.permute_dims(x, axes=(1, 2, 0))
                back = R.permute_dims(turned, axes=(2, 0, 1))
                other = R.permute_dims(turned, axes=(1, 2, 0))
                twice = R.permute_dims(R.permute_dims(x))
                R.output(back, other, twice)
            return (back, other, twice)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3, 5), "float32")):
            with R.dataflow():
                turned = R.permute_dims(x, axes=(1, 2, 0))
                back = x
                other = R.permute_dims(turned, axes=(1, 2, 0))
                twice = x
                R.output(back, other, twice)
            return (back, other, twice)

    pullback.ir.assert_structural_equal(Simplify()(Before), Expected)


def test_simplify_casts_from_where_a_value_came():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32"), h: R.Tensor((3,), "bfloat16")):
            with R.dataflow():
                wide = R.astype(h, "float32")
                same = R.astype(wide, "bfloat16")
                wider = R.astype(wide, "float64")
                other = R.astype(wide, "float16")
                narrow = R.astype(x, "bfloat16")
                rounded = R.astype(narrow, "float32")
                whole = R.astype(R.astype(h, "int32"), "float32")
                R.output(same, wider, other, rounded, whole)
            return (same, wider, other, rounded, whole)

    @I.ir_module
    class Expected:  # a cast to fewer bits stays: it rounds
        @R.function
        def main(x: R.Tensor((3,), "float32"), h: R.Tensor((3,), "bfloat16")):
            with R.dataflow():
                same = h
                wider = R.astype(h, "float64")
                other = R.astype(h, "float16")
                narrow = R.astype(x, "bfloat16")
                rounded = R.astype(narrow, "float32")
                lv = R.astype(h, "int32")
                whole = R.astype(lv, "float32")
                R.output(same, wider, other, rounded, whole)
            return (same, wider, other, rounded, whole)

    check(Simplify(), Before, Expected)


def test_canonicalize_bindings():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
            with R.dataflow():
                t = (x, y)
                a = t[1]
                b = a
                c = R.exp(b)
                R.output(c)
            d = (c, c)
            e = d[0]
            return e

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
            with R.dataflow():
                c = R.exp(y)
                R.output(c)
            return c

    check(CanonicalizeBindings(), Before, Expected)


def test_inline_functions():
    @I.ir_module
    class Before:
        @R.function(private=True)
        def twice(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            with R.dataflow():
                y = R.add(x, x)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((3,), "float32")):
            cls = Before
            y = cls.twice(x)
            z = cls.twice(y)
            return z

    inlined = InlineFunctions()(Before)["main"]
    assert [b.value.op.short for b in inlined.bindings if hasattr(b.value, "op")] == ["add", "add"]


def test_recursion_without_end_is_refused():
    @I.ir_module
    class Loop:
        @R.function
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            cls = Loop
            y = cls.main(x)
            return y

    with pytest.raises(UserError, match="main calls itself without end"):
        pullback.compile(Loop)["main"](np.zeros(3, "float32"))


@I.ir_module
class Model:
    I.module_attrs({"note": 1})

    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 5), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.softmax(y)
            s = R.sum(z, axis=0)
            R.output(s)
        return s


def test_legalize_then_raise_gives_the_same_module():
    legal = LegalizeOps()(Model)
    assert not any(getattr(b.value, "op", None) and b.value.op.short != "call_tir" for b in legal["main"].bindings)
    round_trip(legal)
    assert structural_equal(RaiseOps()(legal), Model)


def test_an_edited_kernel_is_not_raised():
    """What the text says counts, for compiled code as for the interpreter, though it says too what it came from."""

    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 2), "float32")):
            with R.dataflow():
                y = R.matmul(x, w)
                z = R.add(y, y)
                R.output(z)
            return z

    text = LegalizeOps()(Model).script()
    assert structural_equal(RaiseOps()(from_source(text)), Model)
    edited = from_source(text.replace("T.float32(0.0)", "T.float32(5.0)"))
    assert [name for name, f in RaiseOps()(edited).items() if not isinstance(f, Function)] == ["matmul"]
    x, w = np.ones((2, 3), "float32"), np.ones((3, 2), "float32")
    for target in ("llvm", "debug"):
        found = pullback.compile(edited, target).function("main")(x, w)
        np.testing.assert_array_equal(found, np.full((2, 2), 16.0))


def test_another_origin_is_not_believed():
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                y = R.sum(x, axis=1)
                R.output(y)
            return y

    text = LegalizeOps()(Model).script()
    module = from_source(text.replace('"axis": 1', '"axis": 0').replace("'axis': 1", "'axis': 0"))
    assert '"axis": 0' in module.script()
    for target in ("llvm", "debug"):
        found = pullback.compile(module, target).function("main")(np.array([[1, 2], [3, 4]], "float32"))
        np.testing.assert_array_equal(found, [3, 7])


@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_an_origin_of_other_tensors_is_an_error_or_not_believed(op: Op):
    """Any op, said to be the origin of a kernel that computes something else from one, two or three vectors."""
    attrs = next((case.attrs for dtype in dtypes_of(op) for case in cases(op, dtype)), {})
    vector = TensorStructInfo((3,), "float32")
    for count in (1, 2, 3):
        params = [Var(f"x{k}", vector) for k in range(count)]
        buffers = [tir.Buffer(name, (3,), "float32") for name in [*(v.name for v in params), "out"]]
        body = tir.loop("i", 3, lambda i, out=buffers[-1]: tir.BufferStore(out, tir.const(7.5, "float32"), (i,)))
        module = IRModule({"other": tir.PrimFunc("other", tuple(buffers), body)})
        origin = {"op": op.name, "attrs": dict(attrs)}
        builder = BlockBuilder(module)
        with builder.function("main", params):
            call = call_tir(module.get_global_var("other"), params, (vector,), origin=origin)
            builder.emit_func_output(builder.emit(call))
        module = builder.get()
        try:
            raised = RaiseOps()(module)
        except UserError as error:
            assert error.hint and op.short in str(error)
        else:
            assert structural_equal(raised, module)


def test_legalized_functions_share_kernels_of_the_same_types():
    """Symbolic sizes are the same where they have the same name: each function has variables of its own."""

    def function(dtype: str, *shape: object) -> Function:
        x = Var("x", TensorStructInfo(shape, dtype))
        builder = BlockBuilder()
        with builder.function("main", [x]), builder.dataflow():
            builder.emit_func_output(builder.emit_output(relax.op.exp(x)))
        return builder.get()["main"]

    batches = [tir.Var("n"), tir.Var("n"), tir.Var("m")]
    functions = [function("float32", n, 4) for n in batches]
    functions += [function(dtype, 5, 4) for dtype in ("float32", "float64", "float32")]
    legal = LegalizeOps()(IRModule({f"f{k}": f for k, f in enumerate(functions)}))
    called = [next(iter(legal[f"f{k}"].bindings)).value.args[0].name for k in range(len(functions))]
    assert called[0] == called[1] and called[3] == called[5]
    assert len(set(called)) == 4
    for k, n in enumerate((3, 4, 5, 5, 5, 5)):
        x = np.linspace(-1, 1, 4 * n, dtype="float64" if k == 4 else "float32").reshape(n, 4)
        np.testing.assert_allclose(pullback.compile(legal, "debug")[f"f{k}"](x).numpy(), np.exp(x), rtol=1e-6)


def test_legalized_kernels_mean_the_same():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4)).astype("float32"), rng.standard_normal((4, 5)).astype("float32")
    bound = BindSizes({"n": 3})(Model)
    plain = pullback.compile(bound, "debug")["main"](x, w).numpy()
    np.testing.assert_allclose(pullback.compile(LegalizeOps()(bound), "debug")["main"](x, w).numpy(), plain, rtol=1e-5)
    native = [pullback.compile(m)["main"](x, w).numpy() for m in (bound, Model, LegalizeOps()(Model))]
    assert native[0].tobytes() == native[1].tobytes() == native[2].tobytes()


def test_bind_params():
    w = np.ones((4, 5), "float32")
    bound = BindParams("main", {"w": w})(Model)
    assert [p.name for p in bound["main"].params] == ["x"]
    with pytest.raises(ShapeError, match=r"parameter w is Tensor\(\(4, 5\), float32\), got Tensor\(\(4,\), float32\)"):
        BindParams("main", {"w": w[:, 0]})(Model)


def test_rebatch():
    bound = BindSizes({"n": 3})(Model)
    assert RebatchInputs(7, "main")(bound)["main"].params[0].struct_info.shape == (7, 4)

    @I.ir_module
    class Fixed:
        @R.function
        def backbone(x: R.Tensor((4, 6), "float32")):
            with R.dataflow():
                y = R.reshape(x, (4, 2, 3))
                R.output(y)
            return y

    with pytest.raises(ShapeError, match="backbone cannot run on batches of 3 rows") as caught:
        RebatchInputs(3)(Fixed)
    assert 'make the batch dimension symbolic: x: R.Tensor(("n", …), …)' in str(caught.value)


def test_inlining_binds_the_callees_sizes():
    @I.ir_module
    class Sizes:
        @R.function(private=True)
        def twice(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n * 2", "m"), "float32"):
            with R.dataflow():
                y = R.concat((x, x), axis=0)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((3, "k"), "float32")):
            cls = Sizes
            y = cls.twice(x)
            z = cls.twice(y)
            return z

    x = np.arange(6, dtype="float32").reshape(3, 2)
    for target in ("debug", "llvm"):
        np.testing.assert_array_equal(pullback.compile(Sizes, target)["main"](x).numpy(), np.concatenate([x] * 4))


def test_passes_want_modules():
    with pytest.raises(UserError, match="LegalizeOps works on an IRModule, not on Function") as caught:
        LegalizeOps()(Model["main"])
    assert "IRModule.from_expr(function)" in str(caught.value)


def test_decompose_ops() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((4, 3), "float32"), g: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32"),
            m: R.Tensor((3,), "float32"), v: R.Tensor((3,), "float32"),
        ):  # fmt: skip
            y = R.nn.batch_norm(x, g, b, m, v)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((4, 3), "float32"), g: R.Tensor((3,), "float32"), b: R.Tensor((3,), "float32"),
            m: R.Tensor((3,), "float32"), v: R.Tensor((3,), "float32"),
        ):  # fmt: skip
            shifted = R.add(v, R.const(1e-5, "float32"))
            inverse = R.rsqrt(shifted)
            a = R.multiply(g, inverse)
            moved = R.multiply(m, a)
            c = R.subtract(b, moved)
            out = R.ewise_fma(x, a, c)
            y = (out, m, v)
            return y

    assert_structural_equal(DecomposeOpsForInference()(Before), Expected)
    assert_structural_equal(DecomposeOpsForInference("main")(Before), Expected)
    trained = DecomposeOpsForTraining()(Before)
    assert "R.mean(" in trained.script() and "batch_norm" not in trained.script()


def test_repeat_broadcasts() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 3), "float32"), m: R.Tensor((4, 1), "float32"), s: R.Tensor((4, 3), "float32")):
            with R.dataflow():
                c = R.subtract(x, m)
                e = R.exp(c)
                d = R.multiply(c, s)
                y = R.add(d, e)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4, 3), "float32"), m: R.Tensor((4, 1), "float32"), s: R.Tensor((4, 3), "float32")):
            with R.dataflow():
                c = R.subtract(x, m)
                e = R.exp(c)
                c_1 = R.subtract(x, m)
                d = R.multiply(c_1, s)
                y = R.add(d, e)
                R.output(y)
            return y

    assert_structural_equal(RepeatBroadcasts()(Before), Expected)
    assert_structural_equal(RepeatBroadcasts()(Expected), Expected)


def test_products_of_matrices_share_what_others_repeat():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 8), "float32"), g: R.Tensor((8,), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                y = R.multiply(x, g)
                a = R.matmul(y, w)
                b = R.matmul(w, y)
                c = R.nn.relu(y)
                R.output(a, b, c)
            return (a, b, c)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((8, 8), "float32"), g: R.Tensor((8,), "float32"), w: R.Tensor((8, 8), "float32")):
            with R.dataflow():
                y = R.multiply(x, g)
                a = R.matmul(y, w)
                b = R.matmul(w, y)
                y_1 = R.multiply(x, g)
                c = R.nn.relu(y_1)
                R.output(a, b, c)
            return (a, b, c)

    assert_structural_equal(RepeatBroadcasts()(Before), Expected)


def test_dead_code_keeps_what_is_checked_at_run_time():
    """A match_cast that nobody reads still says what the value must be; a call that nobody reads is removed."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            with R.dataflow():
                y = R.match_cast(x, R.Tensor((3,), "float32"))
                z = R.exp(y)  # noqa: F841
                R.output()
            return x

    cleaned = DeadCodeElimination()(Before)
    assert [b.var.name for b in cleaned["main"].bindings] == ["y"]
    for module in (Before, cleaned):
        run = pullback.compile(module, "debug")["main"]
        assert run(np.ones(3, "float32")).shape == (3,)
        with pytest.raises(UserError, match="match_cast expected"):
            run(np.ones(2, "float32"))
