"""FoldScale: what is left of scales after products, whose values stay those of the program before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.ir import IRModule, structural_equal
from pullback.relax import Tuple, const
from pullback.relax.expr import Constant, Function, SeqExpr
from pullback.relax.interpreter import evaluate
from pullback.relax.op.namespace import ops
from pullback.relax.transform import DecomposeOpsForInference, FoldConstant, FoldScale
from tests.relax.transform.test_exact_passes import calls, module_of


def numbers(*shape: int, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    """Of either sign, none near 0."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape)).astype(dtype)


def folded(f: Callable[..., Any], *values: np.ndarray) -> list[str]:
    """The calls after the pass, whose results are those before it."""
    before = FoldConstant()(module_of(f, *values))
    after = FoldScale()(before)
    old, new = (evaluate(m, "main", list(values)) for m in (before, after))
    tolerance = 1e-12 if old.dtype == np.float64 else 2e-5
    np.testing.assert_allclose(new, old, rtol=tolerance, atol=tolerance)
    assert new.dtype == old.dtype
    return calls(after)


CONVOLUTIONS: list[tuple[str, tuple[int, ...], tuple[int, ...], int, dict[str, Any]]] = [
    ("conv1d", (2, 3, 7), (4, 3, 3), 1, {}),
    ("conv1d", (2, 7, 4), (3, 2, 6), 2, {"groups": 2, "data_layout": "NWC", "kernel_layout": "WIO"}),
    ("conv2d", (2, 3, 6, 5), (4, 3, 3, 3), 1, {"padding": 1}),
    ("conv2d", (2, 4, 6, 5), (6, 2, 3, 3), 1, {"groups": 2, "strides": 2}),
    ("conv2d", (2, 3, 5, 5), (3, 1, 3, 3), 1, {"groups": 3}),
    ("conv2d", (2, 2, 4, 5), (4, 3, 3, 2), 3, {"kernel_layout": "OHWI", "out_layout": "NHWC"}),
    ("conv3d", (1, 2, 4, 4, 4), (3, 2, 2, 2, 2), 1, {}),
    ("conv1d_transpose", (2, 3, 7), (3, 4, 3), 1, {"strides": 2}),
    ("conv2d_transpose", (2, 4, 3, 5), (4, 3, 3, 3), 1, {"groups": 2}),
    ("conv2d_transpose", (2, 3, 5, 6), (2, 2, 2, 6), 3,
     {"groups": 3, "data_layout": "NHWC", "kernel_layout": "HWOI", "out_layout": "NHWC"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "data", "weight", "axis", "attrs"), CONVOLUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_norm_after_a_convolution(
    name: str, data: tuple[int, ...], weight: tuple[int, ...], axis: int, attrs: dict[str, Any], dtype: str
) -> None:
    x, w = numbers(*data, dtype=dtype), const(numbers(*weight, dtype=dtype))
    shape = getattr(ops.nn, name)(const(x), w, **attrs).struct_info.sizes
    channels = shape[axis]
    gamma, beta, mean = (const(numbers(channels, dtype=dtype, seed=k)) for k in (1, 2, 3))
    variance = const(np.abs(numbers(channels, dtype=dtype, seed=4)))
    bias = const(numbers(channels, *(1,) * (len(shape) - 1 - axis), dtype=dtype, seed=5))

    def network(x: Any) -> Any:
        y = getattr(ops.nn, name)(x, w, **attrs)
        return ops.nn.batch_norm(y + bias, gamma, beta, mean, variance, axis=axis, training=False)[0]

    before = FoldConstant()(DecomposeOpsForInference()(module_of(network, x)))
    after = FoldScale()(before)
    assert [c for c in calls(before) if c != f"nn.{name}"] == ["add", "ewise_fma"]
    assert calls(after) == [f"nn.{name}", "add"]
    old, new = (evaluate(m, "main", [x]) for m in (before, after))
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(new, old, rtol=tolerance, atol=tolerance)


W, ROW = numbers(4, 5), numbers(5, seed=1)
PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "matmul": (lambda x: ops.matmul(x, const(W)), (3, 4), (5,)),
    "matmul of a batch": (lambda x: ops.matmul(x, const(numbers(2, 4, 5))), (2, 3, 4), (1, 5)),
    "matmul of a vector": (lambda x: ops.matmul(x, const(W)), (4,), (5,)),
    "matmul by a constant on the left": (lambda x: ops.matmul(const(W), x), (5, 3), (4, 1)),
    "linear": (lambda x: ops.linear(x, const(numbers(5, 4))), (2, 3, 4), (5,)),
    "linear with bias": (lambda x: ops.linear(x, const(numbers(5, 4)), const(ROW)), (3, 4), (1, 5)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_scales_and_terms_of_products(name: str) -> None:
    product, shape, channels = PRODUCTS[name]
    x, first = numbers(*shape), calls(module_of(product, numbers(*shape)))
    a, b = (const(numbers(*channels, seed=k)) for k in (2, 3))
    assert folded(lambda x: product(x) * a, x) == first
    assert folded(lambda x: a * product(x), x) == first
    assert folded(lambda x: product(x) / a, x) == first
    assert folded(lambda x: product(x) * const(2.0, "float64"), x) == first
    assert folded(lambda x: product(x) + a, x) == [*first, "add"]
    assert folded(lambda x: product(x) - a, x) == [*first, "subtract"]
    assert folded(lambda x: b + (product(x) + a), x) == [*first, "add"]
    assert folded(lambda x: (product(x) - a) - b, x) == [*first, "add"]
    assert folded(lambda x: (product(x) - a) * b, x) == [*first, "add"]
    assert folded(lambda x: ops.ewise_fma(a, product(x) + b, b), x) == [*first, "add"]
    assert folded(lambda x: ((product(x) * a + b) * b - a) / const(3.0, "float64"), x) == [*first, "add"]


def test_what_comes_before_a_product_stays() -> None:
    x = numbers(3, 4)
    assert folded(lambda x: ops.matmul(x * const(numbers(4)), const(W)) * const(ROW), x) == ["multiply", "matmul"]


def test_one_product_after_the_other() -> None:
    def network(x: Any) -> Any:
        h = ops.nn.relu(ops.matmul(x, const(W)) * const(ROW) + const(ROW))
        return ops.matmul(h, const(numbers(5, 2))) / const(numbers(2))

    assert folded(network, numbers(3, 4)) == ["matmul", "add", "nn.relu", "matmul"]


LEFT = {
    "a difference on the left": lambda y, w: const(ROW) - y,
    "a quotient on the left": lambda y, w: const(ROW) / y,
    "along another axis": lambda y, w: y * const(numbers(3, 1)),
    "along both axes": lambda y, w: y * const(numbers(3, 5)),
    "with another shape": lambda y, w: y * const(numbers(2, 1, 5)),
    "of what is no constant": lambda y, w: y * w,
    "as a multiply-add of one": lambda y, w: ops.ewise_fma(y, const(ROW), w),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_scales_stay(name: str) -> None:
    def network(x: Any, w: Any) -> Any:
        return LEFT[name](ops.matmul(x, const(W)), w)

    module = FoldConstant()(module_of(network, numbers(3, 4), ROW))
    assert structural_equal(FoldScale()(module), module)


def test_a_product_that_something_else_reads_stays() -> None:
    function = module_of(lambda x: ops.matmul(x, const(W)) * const(ROW), numbers(3, 4))["main"]
    product = next(iter(function.bindings)).var
    body = SeqExpr(function.body.blocks, Tuple((function.body.body, product)))
    module = IRModule({"main": Function(function.params, body)})
    assert structural_equal(FoldScale()(module), module)


def test_a_weight_that_is_trained_stays() -> None:
    assert folded(lambda x, w: ops.matmul(x, w) * const(ROW), numbers(3, 4), W) == ["matmul", "multiply"]


def test_half_precision_stays() -> None:
    x, w = numbers(3, 4).astype("float16"), const(W.astype("float16"))
    module = module_of(lambda x: ops.matmul(x, w) * const(ROW.astype("float16")), x)
    assert structural_equal(FoldScale()(module), module)
    wide = module_of(lambda x: ops.matmul(x, w, out_dtype="float32") * const(ROW.astype("float32")), x)
    assert structural_equal(FoldScale()(wide), wide)


@pytest.mark.parametrize("scale", [3e38, np.inf, np.nan])
def test_a_weight_stays_finite(scale: float) -> None:
    w = const(np.full((4, 5), 2.0, np.float32))
    row = np.array([1, 1, scale, 1, 1], np.float32)
    module = module_of(lambda x: ops.matmul(x, w) * const(row), numbers(3, 4, dtype="float32"))
    assert structural_equal(FoldScale()(module), module)


def test_a_divisor_of_zero_stays() -> None:
    row = np.array([1, 1, 0, 1, 1], np.float32)
    w = const(W.astype("float32"))
    module = module_of(lambda x: ops.matmul(x, w) / const(row), numbers(3, 4, dtype="float32"))
    assert structural_equal(FoldScale()(module), module)


def test_the_weight_is_rounded_once() -> None:
    """Three scales in float32, one after the other, are one in float64."""
    x, w = np.eye(4, dtype=np.float32), W.astype(np.float32)
    rows = [numbers(5, dtype="float32", seed=k) for k in range(3)]
    module = module_of(lambda x: ((ops.matmul(x, const(w)) * const(rows[0])) * const(rows[1])) / const(rows[2]), x)
    result = FoldScale()(module)
    assert calls(result) == ["matmul"]
    weight = next(iter(result["main"].bindings)).value.args[1]
    assert isinstance(weight, Constant)
    factors = [r.astype(np.float64) for r in rows]
    expected = (w.astype(np.float64) * (factors[0] * factors[1] * (1.0 / factors[2]))).astype(np.float32)
    np.testing.assert_array_equal(weight.data, expected)
