"""MixedPrecision: what is cast, what stays as it is, and that values and gradients are those of float32, rounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pullback
from pullback import te
from pullback.ir import ArgumentError, InternalError, IRModule, assert_structural_equal
from pullback.ir.op import Op, define
from pullback.relax import BlockBuilder, Call, Constant, Function, TensorStructInfo, Tuple, Var, op
from pullback.relax.analysis import check_well_formed
from pullback.relax.op import register_op
from pullback.relax.struct_info import same_info
from pullback.relax.transform import Gradient, LegalizeOps, MixedPrecision, RebatchInputs, ToMixedPrecision
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T
from tests.helpers import round_trip
from tests.samples import all_ops, cases, dtypes_of

BF16 = ml_dtypes.bfloat16
EPS = 2.0**-8  # half the distance of neighbours, relative to them
RNG = np.random.default_rng(4)


@I.ir_module
class Perceptron:
    @R.function
    def main(x: R.Tensor((8, 16), "float32"), w: R.Tensor((16, 4), "float32"), b: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y + b) * 2.0
            u = R.matmul(z, R.permute_dims(w))
            s = R.sum(R.tanh(u * 0.5))
            R.output(s)
        return s


def test_products_are_low_elementwise_ops_follow_and_sums_are_full() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((8, 16), "float32"), w: R.Tensor((16, 4), "float32"), b: R.Tensor((4,), "float32")):
            with R.dataflow():
                x_bf16 = R.astype(x, "bfloat16")
                w_bf16 = R.astype(w, "bfloat16")
                y = R.matmul(x_bf16, w_bf16)
                b_bf16 = R.astype(b, "bfloat16")
                lv = R.add(y, b_bf16)
                lv1 = R.nn.relu(lv)
                z = R.multiply(lv1, R.const(2.0, "bfloat16"))
                lv2 = R.permute_dims(w)
                lv2_bf16 = R.astype(lv2, "bfloat16")
                u = R.matmul(z, lv2_bf16)
                u_f32 = R.astype(u, "float32")
                lv3 = R.multiply(u_f32, R.const(0.5, "float32"))
                lv4 = R.tanh(lv3)
                s = R.sum(lv4)
                R.output(s)
            return s

    mixed = MixedPrecision("main")(Perceptron)
    assert_structural_equal(mixed, Expected)
    assert_structural_equal(MixedPrecision()(Perceptron), Expected)
    assert_structural_equal(MixedPrecision(Perceptron.get_global_var("main"))(Perceptron), Expected)
    assert_structural_equal(MixedPrecision("main")(mixed), mixed)
    round_trip(mixed)


def function(build: Callable[..., Any], *infos: Any, dtype: str = "float32") -> IRModule:
    """A module whose ``main`` is ``build(emit, *arguments)``; an info is a shape of ``dtype``, or a struct info."""
    infos = tuple(TensorStructInfo(i, dtype) if isinstance(i, tuple) else i for i in infos)
    params = [Var(f"x{k}", info) for k, info in enumerate(infos)]
    builder = BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = build(builder.emit, *params)
            fields = result if isinstance(result, tuple) else (result,)
            outputs = [builder.emit_output(f) for f in fields]
        builder.emit_func_output(Tuple(tuple(outputs)) if isinstance(result, tuple) else outputs[0])
    return builder.get()


def calls(module: IRModule, name: str = "main") -> list[Call]:
    return [b.value for b in module[name].bindings if isinstance(b.value, Call)]


def dtypes(module: IRModule, of: str) -> list[list[str]]:
    """The dtypes of the arguments, then that of the (first) result, of each call of an op."""
    found = [c for c in calls(module) if c.op.short == of]
    infos = [(*(a.struct_info for a in c.args), getattr(c.struct_info, "fields", [c.struct_info])[0]) for c in found]
    return [[i.dtype for i in each] for each in infos]


def test_each_value_is_cast_once() -> None:
    module = function(lambda emit, x, w: emit(x @ w) + emit(x @ op.exp(w)) @ w, (4, 4), (4, 4))
    casts = [c.args[0].name for c in calls(MixedPrecision("main")(module)) if c.op.short == "astype"]
    assert len(set(casts)) == len(casts) and casts.count("x0") == casts.count("x1") == 1


def test_a_bias_takes_the_type_of_what_it_is_added_to_and_equals_the_widest() -> None:
    module = function(lambda emit, x, w, b: (emit(x @ w) + b) @ w, (4, 4), (4, 4), (4,))
    assert dtypes(MixedPrecision("main")(module), "add") == [["bfloat16"] * 3]
    module = function(lambda emit, x, w: (x + emit(x @ w)) @ w, (4, 4), (4, 4))
    assert dtypes(MixedPrecision("main")(module), "add") == [["float32"] * 3], "two large ones"
    module = function(lambda emit, x, y: op.multiply(x, emit(y @ y)) @ y, (4, 1), (1, 1))
    assert dtypes(MixedPrecision("main")(module), "multiply") == [["float32"] * 3], "none is as large: the widest"
    module = function(lambda emit, x, w: op.concat([x, emit(x @ w)], 0) @ w, (4, 4), (4, 4))
    assert dtypes(MixedPrecision("main")(module), "concat") == [["float32"] * 3]


def test_what_nobody_wants_in_half_precision_is_computed_in_float32() -> None:
    """The bias before a residual of float32, and before a loss; not that before a product, though another reader is."""
    module = function(lambda emit, x, w, b: x + (emit(x @ w) + b), (4, 4), (4, 4), (4,))
    assert dtypes(MixedPrecision("main")(module), "add") == [["float32"] * 3] * 2
    module = function(lambda emit, x, w, b: op.exp(op.reshape(emit(x @ w) + b, (16,))), (4, 4), (4, 4), (4,))
    mixed = MixedPrecision("main")(module)
    assert dtypes(mixed, "add") == [["float32"] * 3] and dtypes(mixed, "reshape") == [["float32"] * 2]

    def both(emit: Any, x: Var, w: Var, b: Var) -> tuple[Any, Any]:
        h = emit(op.nn.relu(emit(x @ w) + b))
        parts = emit(op.split(h, 2, 1))
        return op.sum(h), emit(parts[0]) @ emit(parts[1])

    mixed = MixedPrecision("main")(function(both, (2, 4), (4, 4), (4,)))
    assert dtypes(mixed, "nn.relu") == [["bfloat16"] * 2] and dtypes(mixed, "add") == [["bfloat16"] * 3]
    norm = function(lambda emit, x, w, g: op.nn.relu(op.nn.rms_norm(emit(x @ w) * 2.0, g)), (4, 4), (4, 4), (4,))
    mixed = MixedPrecision("main")(norm)
    assert dtypes(mixed, "nn.rms_norm") == [["bfloat16", "float32", "bfloat16"]]
    assert dtypes(mixed, "multiply") == [["bfloat16"] * 3] and dtypes(mixed, "nn.relu") == [["float32"] * 2]


def test_other_dtypes_are_left_alone() -> None:
    for dtype in ("float64", "bfloat16", "float16"):
        module = function(lambda emit, x, w: op.sum(op.exp(emit(x @ w))), (4, 4), (4, 4), dtype=dtype)
        assert_structural_equal(MixedPrecision("main")(module), module)
    ints = function(lambda emit, x: op.sum(op.matmul(x, x)), (4, 4), dtype="int32")
    assert_structural_equal(MixedPrecision("main")(ints), ints)


def test_an_explicit_cast_is_kept() -> None:
    module = function(lambda emit, x: op.nn.relu(op.astype(emit(x @ x), "float64")), (4, 4))
    assert dtypes(MixedPrecision("main")(module), "astype")[-1] == ["bfloat16", "float64"]
    module = function(lambda emit, x: op.matmul(x, x, "float32") * 2.0, (4, 4))
    assert dtypes(MixedPrecision("main")(module), "multiply") == [["float32"] * 3]


def test_results_keep_their_types_and_are_used_in_half_precision_within() -> None:
    def build(emit: Any, x: Var, w: Var) -> tuple[Any, ...]:
        y = emit(x @ w)
        parts = emit(op.split(y, 2, 1))
        return y, op.nn.relu(y) @ w, op.sum(y), parts[0], parts[1]

    module = function(build, (4, 4), (4, 4))
    mixed = MixedPrecision("main")(module)
    assert same_info(mixed["main"].ret_struct_info, module["main"].ret_struct_info)
    assert dtypes(mixed, "nn.relu") == [["bfloat16"] * 2] and dtypes(mixed, "sum") == [["float32"] * 2]


def test_tuples_as_results_and_bindings_outside_of_dataflow_blocks() -> None:
    @I.ir_module
    class Loose:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")):
            y = R.matmul(x, x)
            z = R.nn.relu(y)
            parts = R.split(R.matmul(z, x), 2, axis=1)
            return (z, parts)

    mixed = MixedPrecision("main")(Loose)
    assert same_info(mixed["main"].ret_struct_info, Loose["main"].ret_struct_info)
    x = RNG.standard_normal((4, 4)).astype("float32")
    for target in ("debug", "llvm"):
        z, parts = pullback.compile(mixed, target).function("main")(x)
        expected = np.maximum(x.astype(BF16).astype("float32") @ x.astype(BF16).astype("float32"), 0)
        np.testing.assert_allclose(z.numpy(), expected, rtol=EPS, atol=1e-6)
        assert len(parts) == 2 and parts[0].dtype == "float32"


def test_calls_are_inlined_and_kernels_get_what_they_were_written_for() -> None:
    legalized = LegalizeOps()(Perceptron)
    mixed = MixedPrecision("main")(legalized)
    assert_structural_equal(mixed["main"], legalized["main"])

    @I.ir_module
    class Two:
        @R.function(private=True)
        def layer(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                y = R.nn.relu(R.matmul(x, w))
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
            cls = Two
            with R.dataflow():
                h = cls.layer(x, w)
                out = cls.layer(h, w)
                R.output(out)
            return out

    mixed = MixedPrecision()(Two)
    assert dtypes(mixed, "matmul") == [["bfloat16"] * 3] * 2
    assert [c.op.short for c in calls(mixed)].count("astype") == 3  # x, w, out
    assert_structural_equal(mixed["layer"], Two["layer"])


def test_symbolic_sizes_and_match_cast() -> None:
    @I.ir_module
    class Symbolic:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32"), b: R.Tensor((4,), "float32")):
            n = T.int64()
            with R.dataflow():
                y = R.matmul(x, w)
                z = R.match_cast(y, R.Tensor((n, 4), "float32"))
                out = R.matmul(z, w) + b
                R.output(out)
            return out

    mixed = MixedPrecision("main")(Symbolic)
    assert dtypes(mixed, "add") == [["float32"] * 3]
    x, w, b = (RNG.standard_normal(s).astype("float32") for s in ((3, 4), (4, 4), (4,)))
    found = [pullback.compile(mixed, t).function("main")(x, w, b).numpy() for t in ("debug", "llvm")]
    np.testing.assert_allclose(found[0], x @ w @ w + b, rtol=8 * EPS, atol=8 * EPS * np.abs(x @ w @ w).max())
    np.testing.assert_allclose(found[1], found[0], rtol=2 * EPS, atol=2 * EPS)
    rebatched = RebatchInputs(5, "main", input_num=1)(
        MixedPrecision("main")(function(lambda e, x, w: x @ w, (3, 4), (4, 4)))
    )
    assert rebatched["main"].ret_struct_info.shape == (5, 4)


def test_the_reference_systems_name() -> None:
    mixed = ToMixedPrecision()(Perceptron)
    assert_structural_equal(mixed, MixedPrecision(dtype="float16")(Perceptron))
    assert dtypes(mixed, "matmul") == [["float16"] * 3] * 2
    with pytest.raises(ArgumentError, match="out_dtype='float16' is not supported"):
        ToMixedPrecision(out_dtype="float16")
    with pytest.raises(ArgumentError, match="fp16_input_names is not supported"):
        ToMixedPrecision(fp16_input_names=["w"])


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="dtype must be 'bfloat16' or 'float16', got 'float32'"):
        MixedPrecision("main", "float32")
    with pytest.raises(ArgumentError, match="dtype must be 'bfloat16' or 'float16'"):
        MixedPrecision("main", np.dtype("float16"))  # type: ignore[arg-type]
    kernel = next(n for n, f in LegalizeOps()(Perceptron).items() if not isinstance(f, Function))
    with pytest.raises(ArgumentError, match="is a kernel of the loop IR"):
        MixedPrecision(kernel)(LegalizeOps()(Perceptron))
    with pytest.raises(InternalError, match="precision must be one of"):
        define("some_op", "x", infer=lambda x: x, precision="half")
    with pytest.raises(ArgumentError, match="precision must be one of 'low', 'same', 'data', 'full', got 'half'"):
        register_op("own.some_op", precision="half")


# ---- norms: float32 parameters and statistics of half-precision data -------------------------------------------------

NORMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "layer": (lambda x, g, b: op.nn.layer_norm(x, g, b), [(6, 16), (16,), (16,)]),
    "rms": (lambda x, w: op.nn.rms_norm(x, w), [(6, 16), (16,)]),
    "group": (lambda x, g, b: op.nn.group_norm(x, g, b, 2, 1, [2]), [(3, 4, 8), (4,), (4,)]),
    "instance": (lambda x, g, b: op.nn.instance_norm(x, g, b, 1, [2]), [(3, 4, 8), (4,), (4,)]),
    "batch": (lambda *args: op.nn.batch_norm(*args)[0], [(9, 4, 3), (4,), (4,), (4,), (4,)]),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_take_half_precision_data_and_float32_parameters(name: str, dtype: str) -> None:
    """Values and gradients of float32, rounded; those of parameters are float32."""
    norm, shapes = NORMS[name]
    weights = RNG.standard_normal(shapes[0]).astype("float32")

    def loss(emit: Any, *args: Var) -> Any:
        return op.sum(op.astype(norm(*args), "float32") * Constant(weights))

    first = TensorStructInfo(shapes[0], dtype)
    half = Gradient("main")(function(loss, first, *shapes[1:]))
    single = Gradient("main")(function(loss, *shapes))
    x = RNG.standard_normal(shapes[0]).astype(dtype if dtype == "float16" else BF16)
    rest = [RNG.uniform(0.5, 2, s).astype("float32") for s in shapes[1:]]
    _, expected = pullback.compile(single, "debug").function("main_adjoint")(x.astype("float32"), *rest)
    eps = EPS if dtype == "bfloat16" else 2.0**-11
    for target in ("debug", "llvm"):
        _, found = pullback.compile(half, target).function("main_adjoint")(x, *rest)
        assert [f.dtype for f in found] == [dtype, *["float32"] * len(rest)]
        for a, b in zip(found, expected, strict=True):
            exact = b.numpy().astype("float64")
            np.testing.assert_allclose(a.numpy().astype("float64"), exact, rtol=eps, atol=4 * eps * np.abs(exact).max())


def test_moving_statistics_stay_float32() -> None:
    shapes = NORMS["batch"][1]

    def build(emit: Any, x: Var, w: Var, *rest: Var) -> tuple[Any, ...]:
        n = emit(op.nn.batch_norm(emit(op.nn.conv1d(x, w)), *rest))
        return n[0], n[1], n[2]

    module = function(build, (9, 4, 3), (4, 4, 1), *shapes[1:])
    mixed = MixedPrecision("main")(module)
    assert dtypes(mixed, "nn.batch_norm") == [["bfloat16", *["float32"] * 4, "bfloat16"]]
    arrays = [RNG.uniform(0.5, 2, p.struct_info.shape).astype("float32") for p in module["main"].params]
    expected = [v.numpy() for v in pullback.compile(module, "debug").function("main")(*arrays)]
    for target in ("debug", "llvm"):
        found = [v.numpy() for v in pullback.compile(mixed, target).function("main")(*arrays)]
        assert {f.dtype.name for f in found} == {"float32"}
        np.testing.assert_allclose(found[0], expected[0], atol=0.1)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-2)
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-2)


def test_norms_refuse_other_mixtures() -> None:
    x, g = Var("x", TensorStructInfo((3, 4), "bfloat16")), Var("g", TensorStructInfo((4,), "float16"))
    with pytest.raises(pullback.ir.DTypeError, match="the operands must have the same dtype, got bfloat16 and float16"):
        op.nn.layer_norm(x, g, g)


# ---- values ----------------------------------------------------------------------------------------------------------


def attention_block(emit: Any, x: Var, w: Var, g: Var, b: Var, v: Var) -> Any:
    """A transformer block with a classifier's loss."""
    n = emit(op.nn.layer_norm(x, g, b))
    q, k, u = (emit(op.reshape(n @ w * s, (2, 6, 2, 4))) for s in (1.0, 0.5, 2.0))
    h = emit(x + op.reshape(op.nn.attention(q, k, u, causal_mask="TopLeft"), (2, 6, 8)))
    h = emit(h + op.nn.gelu(op.nn.layer_norm(h, g, b) @ w) @ op.permute_dims(w))
    return op.mean(op.square(op.nn.softmax(h @ v) - 0.1))


def convolutions(emit: Any, x: Var, w: Var, g: Var, b: Var, v: Var) -> Any:
    """Convolutions, a batch norm that takes part in the loss, pooling, and a tail of elementwise ops."""
    y = emit(op.nn.conv2d(x, w, padding=1))
    n = emit(op.nn.batch_norm(y, g, b, b, g))
    h = emit(op.nn.max_pool2d(op.nn.relu(n[0]), (2, 2), (2, 2)))
    t = emit(op.sigmoid(op.mean(op.nn.conv2d(h, w, padding=1), [2, 3])) * op.tanh(op.mean(h, [2, 3])))
    return op.sum(op.square(t @ v)) + op.sum(n[1])


GRAPHS = {
    "perceptron": (lambda emit, x, w, b: op.mean(op.square(op.nn.relu(x @ w + b) @ w)), [(8, 16), (16, 16), (16,)]),
    "transformer": (attention_block, [(2, 6, 8), (8, 8), (8,), (8,), (8, 5)]),
    "convolutions": (convolutions, [(3, 4, 6, 6), (4, 4, 3, 3), (4,), (4,), (4, 5)]),
    "einsum": (lambda emit, x, w: op.sum(op.tanh(Op.get("einsum")([x, w], "bik,kj->bij"))), [(2, 3, 5), (5, 4)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_gradients_are_float32_and_those_of_float32_rounded(name: str) -> None:
    """They are about as far away as those of the float32 function of rounded arguments."""
    build, shapes = GRAPHS[name]
    module = function(build, *shapes)
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(0.2, 1, s) * (1 if len(s) == 1 else rng.choice([-1, 1], s)) for s in shapes]
    arrays = [a.astype("float32") for a in arrays]
    single = pullback.compile(Gradient("main")(module), "debug").function("main_adjoint")
    loss, gradients = single(*arrays)
    _, rounded = single(*(a.astype(BF16).astype("float32") for a in arrays))
    mixed = Gradient("main")(MixedPrecision("main")(module))
    results = [pullback.compile(mixed, t).function("main_adjoint")(*arrays) for t in ("debug", "llvm")]
    for found, adjoints in results:
        np.testing.assert_allclose(found.numpy(), loss.numpy(), rtol=8 * EPS)
        for a, b, near in zip(adjoints, gradients, rounded, strict=True):
            assert a.dtype == "float32"
            assert distance(a, b) < 4 * distance(near, b) + 4 * EPS
    for a, b in zip(results[0][1], results[1][1], strict=True):
        assert distance(a, b) < 4 * EPS, "interpreter and native"


def distance(found: Any, expected: Any) -> float:
    """The norm of the difference, relative."""
    return float(np.linalg.norm(found.numpy() - expected.numpy()) / np.linalg.norm(expected.numpy()))


def test_second_order() -> None:
    """The gradient of a sum of squared gradients, through both casts."""
    build, shapes = GRAPHS["perceptron"]

    def twice(module: IRModule) -> np.ndarray:
        module = Gradient("main", require_grads=["x1"])(module)
        first = module["main_adjoint"]
        builder = BlockBuilder(module)
        params = [Var(p.name, p.struct_info) for p in first.params]
        with builder.function("penalty", params):
            with builder.dataflow():
                result = builder.emit(builder.get().get_global_var("main_adjoint")(*params))
                gradients = builder.emit(result[1])
                out = builder.emit_output(op.sum(op.square(builder.emit(gradients[0]))))
            builder.emit_func_output(out)
        whole = Gradient("penalty", require_grads=["x1"])(builder.get())
        return pullback.compile(whole, "llvm").function("penalty_adjoint")(*arrays)[1][0].numpy()

    arrays = [np.random.default_rng(1).uniform(0.2, 1, s).astype("float32") for s in shapes]
    module = function(build, *shapes)
    exact, found = twice(module), twice(MixedPrecision("main")(module))
    assert np.linalg.norm(found - exact) < 32 * EPS * np.linalg.norm(exact)


@pytest.mark.parametrize("name", ["nn.gelu", "nn.silu", "tanh", "sigmoid", "nn.elu", "nn.mish", "erf"])
def test_derivatives_of_activations_round_once(name: str) -> None:
    """In half precision the formula of the derivative is computed in float32, and its value rounded."""
    x = np.linspace(-4, 4, 333).astype(BF16)

    def build(emit: Any, x: Var) -> Any:
        function: Any = op
        for part in name.split("."):
            function = getattr(function, part)
        return op.sum(op.astype(function(x), "float32"))

    half = Gradient("main")(function(build, TensorStructInfo(x.shape, "bfloat16")))
    single = Gradient("main")(function(build, x.shape))
    exact = pullback.compile(single, "debug").function("main_adjoint")(x.astype("float32"))[1][0].numpy()
    for target in ("debug", "llvm"):
        found = pullback.compile(half, target).function("main_adjoint")(x)[1][0].numpy().astype("float32")
        # Rules that use the result, as y·(1 - y), see it rounded once.
        np.testing.assert_allclose(found, exact, rtol=EPS, atol=2 * EPS)


# ---- every op --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rounded() -> Iterator[Op]:
    """An op that gives its argument, rounded to half precision: what is computed from it has low operands."""
    yield register_op("test.rounded", precision="low")(lambda x: te.compute(x.shape, lambda *i: x[i]))
    del Op.registry["relax.test.rounded"]


FLOAT_OPS = [op for op in all_ops() if "float32" in dtypes_of(op)]


@pytest.mark.parametrize("op", FLOAT_OPS, ids=lambda op: op.short)
def test_every_op_takes_what_it_says(op: Op, rounded: Op) -> None:
    """Of operands that were computed in half precision, an op gives what it gives of the same numbers in float32,
    rounded a few times at the most, in the type it had."""
    for case in list(cases(op, "float32"))[:4]:
        infos = [TensorStructInfo(a.shape, a.dtype.name) for a in case.args]

        def build(emit: Any, *args: Var, case: Any = case) -> Any:
            low = [emit(rounded(a)) if a.dtype == "float32" else a for a in args]
            result = emit(Call(case.op, tuple(low), dict(case.attrs)))
            fields = getattr(result.struct_info, "fields", None)
            parts = [emit(result[i]) for i in range(len(fields))] if fields else [result]
            wanted = [emit(rounded(p)) if p.dtype == "float32" else p for p in parts]
            return (*parts, *wanted)

        module = function(build, *infos)
        mixed = MixedPrecision("main")(module)
        assert same_info(mixed["main"].ret_struct_info, module["main"].ret_struct_info)
        is_mixed = any(getattr(a.struct_info, "dtype", "") == "bfloat16" for c in calls(mixed) for a in c.args)
        assert is_mixed or not any(i.dtype == "float32" for i in infos)
        near = [a.astype(BF16).astype("float32") if a.dtype == np.float32 else a for a in case.args]
        found, expected = (results(pullback.compile(m, "debug").function("main")(*near)) for m in (mixed, module))
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            if b.dtype != np.float32 or (op.precision == "full" and k < len(found) // 2):
                np.testing.assert_array_equal(a, b)
                continue
            size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
            np.testing.assert_allclose(a, b, rtol=4 * EPS, atol=4 * EPS * size)


def results(value: Any) -> list[np.ndarray]:
    return [v.numpy() for v in (value if isinstance(value, tuple) else (value,))]


def test_parameters_of_a_norm_stay_in_float32_wherever_they_come_from() -> None:
    """Of batch norm the data are in half precision; a scale that a product made is cast back."""
    x, w = Var("x", TensorStructInfo((8, 4), "float32")), Var("w", TensorStructInfo((4, 4), "float32"))
    kept = [Var(name, TensorStructInfo((4,), "float32")) for name in ("a", "beta", "mean", "variance")]
    builder = BlockBuilder()
    with builder.function("main", [x, w, *kept]):
        with builder.dataflow():
            gamma = builder.emit(op.matmul(kept[0], w), "gamma")
            data = builder.emit(op.matmul(x, w), "data")
            out = builder.emit_output(op.nn.batch_norm(data, gamma, *kept[1:], 1)[0])
        builder.emit_func_output(out)
    mixed = MixedPrecision("main")(builder.get())
    calls = [b.value for b in mixed["main"].bindings if isinstance(b.value, Call)]
    (norm,) = (c for c in calls if c.op is Op.get("nn.batch_norm"))
    assert [a.struct_info.dtype for a in norm.args] == ["bfloat16", *["float32"] * 4]


def test_each_dataflow_block_casts_for_itself() -> None:
    """A value that was cast in one block is not seen in the next."""
    x, w = Var("x", TensorStructInfo((4, 4), "float32")), Var("w", TensorStructInfo((4, 4), "float32"))
    builder = BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            first = builder.emit_output(op.matmul(x, w))
        with builder.dataflow():
            second = builder.emit_output(op.matmul(w, x))
        builder.emit_func_output((first, second))
    mixed = MixedPrecision("main")(builder.get())
    check_well_formed(mixed)
    calls = [b.value for b in mixed["main"].bindings if isinstance(b.value, Call)]
    casts = [c.args[0].name for c in calls if c.op is Op.get("astype")]
    assert sorted(casts)[-4:] == ["w", "w", "x", "x"]
