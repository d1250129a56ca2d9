"""Each op's result: the NumPy meaning against the struct info, and every backend against the NumPy meaning."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pullback.ir.op import Op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from tests.relax.op.backends import BACKENDS, as_list, call_of
from tests.samples import Case, all_ops, cases, dtypes_of

# Ops that round once for an element: 4 ulp. Others: 64 of the largest result.
ELEMENTWISE = (
    *("unary", "binary", "astype", "where", "permute", "reshape", "join", "split", "slice", "pad", "repeat", "take"),
    *("create", "one_hot", "triangle"),
)
# 1 + erf(x) of a negative x, x - tanh(x) near 0, and what crosses 0 where its terms do not: relative to 1, not to the
# result
CANCELLING = ("nn.gelu", "nn.tanhshrink", "logaddexp", "lgamma", "digamma", "polygamma", "logit")


def epsilon(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def assert_close(case: Case, got: np.ndarray, expected: np.ndarray) -> None:
    """Equal; or of floats, within 4 ulp for ops that round once an element, within 64 of the largest for others."""
    assert got.shape == expected.shape and got.dtype == expected.dtype
    if expected.dtype.kind in "iub" or expected.size == 0:
        np.testing.assert_array_equal(got, expected)
        return
    eps = epsilon(expected.dtype)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    if case.op.family in ELEMENTWISE and case.op.short not in CANCELLING:
        np.testing.assert_allclose(a, b, rtol=4 * eps, atol=eps / 16)
    else:
        finite = np.abs(b[np.isfinite(b)])
        np.testing.assert_allclose(a, b, rtol=64 * eps, atol=64 * eps * max(finite.max(initial=0), 1))


@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_meaning_has_the_type_that_struct_info_promises(op: Op) -> None:
    for dtype in dtypes_of(op):
        for case in cases(op, dtype):
            info = call_of(case)[1].struct_info
            infos = info.fields if isinstance(info, TupleStructInfo) else (info,)
            with np.errstate(all="ignore"):
                values = as_list(op.numpy(*case.args, **case.attrs))  # type: ignore[misc]
            assert len(values) == len(infos)
            for value, expected in zip(values, infos, strict=True):
                assert isinstance(expected, TensorStructInfo)
                found = (np.shape(value), np.asarray(value).dtype.name)
                assert found == (expected.shape, expected.dtype), case.id


@pytest.mark.allowance(40)  # every op with some backend
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.short)
def test_backend_agrees_with_the_meaning(op: Op, backend: str) -> None:
    for dtype in dtypes_of(op) if backend != "legalized" else dtypes_of(op)[-2:]:
        samples = list(cases(op, dtype))
        for case, result in zip(samples, BACKENDS[backend](samples), strict=True):
            with np.errstate(all="ignore"):
                expected = as_list(op.numpy(*case.args, **case.attrs))  # type: ignore[misc]
            for g, e in zip(as_list(result), expected, strict=True):
                try:
                    assert_close(case, g, np.asarray(e))
                except AssertionError as error:
                    raise AssertionError(f"{case.id}: {error}") from None


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_a_number_to_fill_with_has_the_dtype_that_is_asked_for(dtype: str) -> None:
    """Not that of the tensor whose shape is taken: 0.1 is not rounded to float32 first, nor is it refused."""
    given = np.zeros((2, 3), dtype)
    builder = BlockBuilder()
    x = Var("x", value_info(given))
    with builder.function("main", [x]):
        builder.emit_func_output(ops.full_like(x, 0.1, dtype="float64"))
    np.testing.assert_array_equal(evaluate(builder.get(), "main", [given]), np.full((2, 3), 0.1))
