"""Numbers of ours in half precision: counts of elements, eps, scales. None becomes 0 or an infinity, nor is it rounded
before it is used; what users write and the type does not hold is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pullback
from pullback import te, tir
from pullback.ir import DTypeError
from pullback.ir.op import Op
from pullback.relax import BlockBuilder, TupleStructInfo, Var, const, constants
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Domain
from pullback.relax.transform import FoldConstant, Gradient, MixedPrecision
from pullback.runtime.dtype import numpy_dtype
from tests.relax.op.backends import call_of
from tests.samples import all_ops, cases, dtypes_of

HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}

# -- what users write


@pytest.mark.parametrize(
    ("number", "dtype", "becomes"),
    [
        (1e6, "float16", "an infinity"), (65520.0, "float16", "an infinity"), (70000, "float16", "an infinity"),
        (1e-8, "float16", "0"), (-(2.0**-25), "float16", "0"), (3.4e38, "bfloat16", "an infinity"),
        (1e-41, "bfloat16", "0"), (1e39, "float32", "an infinity"), (-1e-46, "float32", "0"),
    ],
)  # fmt: skip
def test_numbers_that_a_type_does_not_hold(number: float, dtype: str, becomes: str) -> None:
    message = re.escape(f"the number {number!r} would be {becomes} in {dtype}")
    for make in (const, tir.const, lambda n, d: const(np.array([1.0, n]), d)):
        with pytest.raises(DTypeError, match="float" if make not in (const, tir.const) else message) as error:
            make(number, dtype)
        assert "compute in a wider type" in (error.value.hint or "")
    if dtype in HALVES:
        x = Var("x", value_info(np.ones(3, HALVES[dtype])))
        for f in (lambda: x * number, lambda: number + x, lambda: x > number, lambda: ops.maximum(x, number)):
            with pytest.raises(DTypeError, match=message):
                f()


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (math.inf, "float16"), (-math.inf, "bfloat16"), (math.nan, "float16"), (0.0, "float16"), (-0.0, "float16"),
        (65519.0, "float16"), (2.0**-24, "float16"), (3.1e-8, "float16"), (1e-8, "bfloat16"), (1e30, "bfloat16"),
        (1e-45, "float32"), (5e-324, "float64"), (1e308, "float64"),
    ],
)  # fmt: skip
def test_numbers_that_a_type_holds(number: float, dtype: str) -> None:
    found = float(const(number, dtype).data)
    assert found == float(numpy_dtype(dtype).type(number)) or (math.isnan(found) and math.isnan(number))
    assert (found == 0) == (number == 0) and math.isfinite(found) == math.isfinite(number)
    tir.const(number, dtype)


X16 = Var("x", value_info(np.ones((2, 3), np.float16)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ops.full((2,), 1e6, "float16"), "full: fill_value=1000000.0 would be an infinity in float16"),
        (lambda: ops.full_like(X16, 1e-9), "the number 1e-09 would be 0 in float16"),
        (lambda: ops.full_like(X16, 1e-9, "bfloat16"), None),
        (lambda: ops.nn.pad(X16, (0, 0, 1, 1), pad_value=-1e9), "nn.pad: pad_value=-1000000000.0 would be"),
        (lambda: ops.nn.dilate(X16, (2, 1), 1e9), "nn.dilate: value=1000000000.0 would be"),
        (lambda: ops.nn.threshold(X16, 0.0, 1e9), "nn.threshold: value=1000000000.0 would be"),
        (lambda: ops.nan_to_num(X16, posinf=1e9), "nan_to_num: posinf=1000000000.0 would be"),
        (lambda: ops.one_hot(const([1]), 1e-9, 0.0, 3, dtype="float16"), "one_hot: on_value=1e-09 would be 0"),
        (lambda: ops.where(X16 > 0.0, X16, -1e9), "the number -1000000000.0 would be an infinity"),
    ],
)
def test_attributes_that_a_type_does_not_hold(make: Callable[[], Any], message: str | None) -> None:
    if message is None:
        make()
        return
    with pytest.raises(DTypeError, match=re.escape(message)):
        make()


# -- what we write


@pytest.fixture
def inexact(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Numbers that were made constants of half precision, and rounded."""
    found: list[float] = []

    def holds(dtype: str, number: float) -> bool:
        with np.errstate(over="ignore", under="ignore"):
            if dtype in HALVES and math.isfinite(number) and float(HALVES[dtype](number)) != number:
                found.append(number)
        return True

    def lost(given: np.ndarray, cast: np.ndarray) -> np.ndarray:
        if cast.dtype.name in HALVES and given.dtype.kind in "iuf":
            wide = cast.astype(np.float64)
            found.extend(given[np.isfinite(given) & (wide != given)].tolist())
        return np.zeros(0)

    monkeypatch.setattr(tir.expr, "holds", holds)
    monkeypatch.setattr(constants, "lost_numbers", lost)
    yield found


@pytest.mark.parametrize("dtype", HALVES)
def test_no_op_rounds_a_number_of_its_own(dtype: str, inexact: list[float]) -> None:
    """Neither in its tensor expression, nor where it is decomposed, nor in its gradient; samples have such attributes
    as half precision holds exactly, where these are numbers."""
    wrong = {}
    for op in all_ops():
        of_floats = not isinstance(op.samples, Domain) or op.samples.dtypes in ("float", "number", "any")
        if dtype not in dtypes_of(op) or not of_floats or op.short in ("full", "full_like", "one_hot"):
            continue
        for case in cases(op, dtype):
            if not any(a.dtype == HALVES[dtype] for a in case.args):
                continue
            params, call = call_of(case)
            if op.te is not None:
                inputs = [te.placeholder(p.shape, p.dtype, f"p{k}") for k, p in enumerate(params)]
                op.te(*inputs, **case.attrs)
            draws = "state" in op.signature.tensors
            if op.decompose is not None and not draws:
                trains = {"training": True} if "training" not in case.attrs else {}
                op.decompose(*params, **trains, **case.attrs)
            info = call.struct_info
            if op.gradient is not None and not draws:
                of_tuple = isinstance(info, TupleStructInfo)
                dy = [Var("dy", f) for f in info.fields] if of_tuple else Var("dy", info)
                op.gradient(dy, Var("y", info), *params, **case.attrs)
            if inexact:
                wrong[case.id] = list(inexact)
                inexact.clear()
    assert not wrong


N = 70_000


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape)


def spread(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 1.5, shape)


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "mean": (ops.mean, (ones(N),)),
    "mean of columns": (lambda x: ops.sum(ops.mean(x, 0)), (spread(N, 2),)),
    "variance": (ops.variance, (spread(N),)),
    "std": (ops.std, (spread(N),)),
    "max of ties": (ops.max, (ones(N),)),
    "min of ties": (lambda x: ops.sum(ops.min(x, 0)), (ones(N, 2),)),
    "norm of ties": (lambda x: ops.norm(x, math.inf), (ones(N),)),
    "norm": (ops.norm, (spread(N),)),
    "logsumexp": (ops.logsumexp, (spread(N),)),
    "softmax": (lambda x: ops.max(ops.nn.softmax(x)), (np.linspace(-9, 9, N),)),
    "log_softmax": (lambda x: ops.mean(ops.nn.log_softmax(x)), (np.linspace(-9, 9, N),)),
    "global average": (lambda x: ops.sum(ops.nn.global_avg_pool2d(x)), (spread(1, 1, 250, 280),)),
    "average pool": (lambda x: ops.sum(ops.nn.avg_pool1d(x, N, N)), (spread(1, 1, N),)),
    "adaptive pool": (lambda x: ops.sum(ops.nn.adaptive_avg_pool1d(x, 1)), (spread(1, 1, N),)),
    "mse_loss": (ops.nn.mse_loss, (spread(N), 2 * ones(N))),
    "l1_loss": (ops.nn.l1_loss, (spread(N), 2 * ones(N))),
    "bce": (ops.nn.binary_cross_entropy, (0.25 * ones(N), 0.5 * ones(N))),
    "nll_loss": (lambda x: ops.nn.nll_loss(x, const(np.zeros(N, np.int64))), (-spread(N, 2),)),
    "weighted nll_loss": (
        lambda x, w: ops.nn.nll_loss(x, const(np.arange(N) % 2), w), (-spread(N, 2) * [1.0, 3.0], ones(2))
    ),
    "cross_entropy": (lambda x: ops.nn.cross_entropy(x, const(np.zeros(N, np.int64))), (spread(N, 2),)),
    "smoothed": (
        lambda x: ops.nn.cross_entropy(x, const(np.zeros(1, np.int64)), label_smoothing=0.5), (spread(1, N),)
    ),
    "with logits": (ops.nn.cross_entropy_with_logits, (-spread(N, 2), 0.5 * ones(N, 2))),
    "layer_norm": (lambda x, g, b: ops.max(ops.nn.layer_norm(x, g, b)), (spread(1, N), ones(N), ones(N))),
    "rms_norm": (lambda x, w: ops.max(ops.nn.rms_norm(x, w)), (spread(1, N), ones(N))),
    "batch_norm": (
        lambda x, g, b: ops.sum(
            ops.strided_slice(
                ops.nn.batch_norm(x, g, b, const(np.zeros(2), x.dtype), const(ones(2), x.dtype))[0], [0], [0], [9]
            )
        ),
        (spread(N, 2), ones(2), ones(2)),
    ),
    "mean of updates": (
        lambda x, u: ops.sum(ops.scatter_elements(x, const(np.zeros(N, np.int64)), u, 0, "mean")), (ones(2), ones(N))
    ),
    "max of updates": (
        lambda x, u: ops.sum(ops.scatter_elements(x, const(np.zeros(N, np.int64)), u, 0, "max")), (ones(2), ones(N))
    ),
    "max of segments": (
        lambda x: ops.sum(ops.segment_reduce(x, const(np.zeros(N, np.int64)), 1, "max")), (ones(N),)
    ),
    "cosine similarity": (lambda x, y: ops.nn.cosine_similarity(x, y, 0), (spread(N), ones(N))),
    "eps of a norm": (
        lambda x, g, b: ops.max(ops.nn.layer_norm(x, g, b, epsilon=1e-12)), (spread(2, 64), ones(64), ones(64))
    ),
    "slope": (lambda x: ops.sum(ops.nn.leakyrelu(x, 1e-8)), (-1e4 * ones(3),)),
    "bounds": (lambda x: ops.sum(ops.clip(x, -1e9, 1e9)), (spread(3),)),
    "products": (ops.prod, (np.array([400.0, 300.0, 1 / 512, 1 / 256]),)),
    "angle": (lambda x, y: ops.sum(ops.atan2(x, y)), (np.array([300.0, 0.0]), np.array([400.0, 0.0]))),
    "large quotient": (lambda x, y: ops.sum(x / y), (np.array([300.0, 500.0]), np.array([0.25, 200.0]))),
    "lp_pool": (lambda x: ops.sum(ops.nn.lp_pool1d(x, 2)), (300.0 * ones(1, 1, 2),)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_values_and_adjoints_are_those_of_float64(name: str, dtype: str) -> None:
    f, arguments = CASES[name]
    rounded = [a.astype(HALVES[dtype]) for a in arguments]

    def module_of(values: list[np.ndarray]) -> Any:
        params = [Var(f"x{k}", value_info(v)) for k, v in enumerate(values)]
        builder = BlockBuilder()
        with builder.function("main", params):
            builder.emit_func_output(builder.emit(f(*params)))
        return Gradient("main")(builder.get())

    wide = [r.astype(np.float64) for r in rounded]
    value, adjoints = evaluate(module_of(wide), "main_adjoint", wide)
    module = module_of(rounded)
    interpreted = evaluate(module, "main_adjoint", rounded)
    native = pullback.compile(module).function("main_adjoint")(*rounded)
    least = float(ml_dtypes.finfo(HALVES[dtype]).smallest_subnormal if dtype == "float16" else 1e-37)
    for mine in ((interpreted[0], interpreted[1]), (native[0].numpy(), [a.numpy() for a in native[1]])):
        for found, expected in zip([mine[0], *mine[1]], [value, *adjoints], strict=True):
            size = 4 * ROUNDING[dtype] * max(1e-30, float(np.max(np.abs(expected), initial=0)))
            np.testing.assert_allclose(
                np.asarray(found, np.float64), np.asarray(expected), rtol=4 * ROUNDING[dtype], atol=max(least, size)
            )


def test_mixed_precision_leaves_what_it_does_not_hold() -> None:
    """1e-8 stays, and so does 1e6; a number that float16 holds does not."""
    x, w = np.full((2, 3), 1e-3, np.float32), np.ones((3, 3), np.float32)

    def module_of(number: float) -> Any:
        params = [Var("x", value_info(x)), Var("w", value_info(w))]
        builder = BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                first = builder.emit(ops.matmul(*params))
                second = builder.emit(ops.multiply(first, const(np.float32(number))))
                out = builder.emit_output(ops.matmul(second, params[1]))
            builder.emit_func_output(out)
        return MixedPrecision(dtype="float16")(builder.get())

    for number, dtype in ((1e-8, "float32"), (1e6, "float32"), (3.0, "float16")):
        (call,) = (b.value for b in module_of(number)["main"].bindings if getattr(b.value, "op", None) is ops.multiply)
        assert call.struct_info.dtype == dtype
    found = evaluate(module_of(1e6), "main", [x, w])
    np.testing.assert_allclose(found, x @ w * 1e6 @ w, rtol=1e-2)


def test_what_the_program_casts_itself_is_rounded() -> None:
    """A cast of the user's gives 0 and infinities, when it is folded too."""
    builder = BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            out = builder.emit_output(ops.astype(const(np.float32([1e-9, 1e9])), "float16"))
        builder.emit_func_output(out)
    module = builder.get()
    for found in (evaluate(module, "main", []), evaluate(FoldConstant()(module), "main", [])):
        np.testing.assert_array_equal(found, np.float16([0.0, np.inf]))


def test_gradient_rules_of_half_precision_are_written_in_it_where_they_round_once() -> None:
    x = Var("x", value_info(np.ones(3, np.float16)))
    y, dy = (Var(n, x.struct_info) for n in ("y", "dy"))
    (dx,) = Op.get("exp").gradient(dy, y, x)
    assert dx.op is ops.multiply and dx.args == (dy, y)
    (dx,) = Op.get("tanh").gradient(dy, y, x)
    assert dx.op is ops.astype and dx.args[0].struct_info.dtype == "float32"
