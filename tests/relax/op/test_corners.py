"""Elementwise ops at the corners of their types: machine code, loops and the interpreter agree bit for bit there, on
signs of zeros, infinities and NaN too."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from pullback.ir.op import Op
from pullback.relax.op.family import DTYPE_CLASSES
from pullback.relax.op.sample import Domain
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import DTYPES
from tests.relax.op.backends import BACKENDS
from tests.samples import Case, all_ops

ULPS = 8  # of functions; everything else is exact
WITH_ZEROS = ("lgamma", "digamma")  # whose terms cancel there: as near as the terms are
NUMBERS = (
    *(0.0, 0.25, 1 / 3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, math.pi, 7.0, 20.0, 88.0, 100.0, 1e10, 1e30),
    *(math.inf, math.nan),
)


def corners(dtype: str) -> np.ndarray:
    """Zeros, ones, halves, the ends of the range, and what is no number."""
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        ends = (limits.min, limits.min + 1, limits.max - 1, limits.max)
        given = (*range(-8, 9), 15, 16, 31, 32, 63, 64, 100, *ends)
        return np.array([n for n in given if limits.min <= n <= limits.max], kind)
    limits = ml_dtypes.finfo(kind)
    ends = [float(limits.max), float(limits.tiny), float(limits.eps)]
    if dtype != "bfloat16":  # whose subnormal numbers x86 rounds to 0
        ends += [float(limits.smallest_subnormal), float(limits.tiny) / 2]
    with np.errstate(over="ignore"):
        one_sign = np.array([*NUMBERS, *ends], np.float64)
        return np.concatenate([one_sign, -one_sign]).astype(kind)


def pairs(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(m.ravel().copy() for m in np.meshgrid(x, y))


def differ(found: np.ndarray, expected: np.ndarray, size: float = 0.0) -> np.ndarray:
    """Where the results are not the same, signs of zeros counted. ``size``: of terms that cancel."""
    if found.dtype.kind in "iub":
        return found != expected
    x, y, limits = found.astype(np.float64), expected.astype(np.float64), ml_dtypes.finfo(found.dtype)
    least = float(limits.tiny if found.dtype == ml_dtypes.bfloat16 else limits.smallest_subnormal)
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= ULPS * np.maximum(np.maximum(np.abs(y), size) * float(limits.eps), least)
    near &= np.isfinite(x) & np.isfinite(y) & ((x != 0) | (y != 0))
    same = (x == y) & ((x != 0) | (np.signbit(x) == np.signbit(y)))
    return ~(near | same | (np.isnan(x) & np.isnan(y)))


def check(case: Case) -> None:
    with np.errstate(all="ignore"):
        expected = BACKENDS["interpreter"]([case])[0]
        for backend in ("legalized", "native"):
            found = BACKENDS[backend]([case])[0]
            wrong = np.flatnonzero(differ(found, expected, float(case.op.short in WITH_ZEROS)))[:5]
            listed = [(*(a[k] for a in case.args), found[k], expected[k]) for k in wrong]
            assert not listed, f"{case.id}, {backend}: (arguments…, found, expected) {listed}"


def elementwise() -> list[Op]:
    return [op for op in all_ops() if isinstance(op.samples, Domain)]


@pytest.mark.parametrize("op", elementwise(), ids=lambda op: op.short)
def test_backends_agree_at_corners(op: Op) -> None:
    for dtype in DTYPE_CLASSES[op.samples.dtypes]:
        values = corners(dtype)
        arguments = (values,) if op.samples.family == "unary" else pairs(values, values)
        check(Case(op, dtype, arguments, dict(op.signature.attrs)))


@pytest.mark.parametrize("source", DTYPES)
def test_casts_agree_at_corners(source: str) -> None:
    for dtype in DTYPES:
        check(Case(Op.get("astype"), f"{source} to {dtype}", (corners(source),), {"dtype": dtype}))


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("clip", {"min": 0.0, "max": 6.0}), ("clip", {"min": -0.0, "max": 0.5}), ("nan_to_num", {"nan": 0.0}),
        ("nn.threshold", {"threshold": 0.0, "value": 0.0}), ("nn.hardtanh", {"min_val": 0.0, "max_val": 1.0}),
    ],
)  # fmt: skip
def test_ops_with_numbers_agree_at_corners(name: str, attrs: dict[str, float]) -> None:
    op = Op.get(name)
    for dtype in DTYPE_CLASSES["float"]:
        check(Case(op, dtype, (corners(dtype),), {k: attrs.get(k, d) for k, d in op.signature.attrs.items()}))


def test_zeros_and_infinities_are_those_of_ieee_and_numpy() -> None:
    f = np.float32
    values = {
        ("sign", f(-0.0)): 0.0,
        ("power", f(-np.inf), f(0.5)): np.inf,
        ("power", f(-0.0), f(0.5)): 0.0,
        ("hypot", f(np.nan), f(-np.inf)): np.inf,
        ("maximum", f(-0.0), f(0.0)): -0.0,
        ("minimum", f(0.0), f(-0.0)): 0.0,
        ("lgamma", f(2.0)): 0.0,
        ("nn.elu", f(-0.0)): -0.0,
        ("nn.relu6", f(-0.0)): -0.0,
    }
    for (name, *arguments), expected in values.items():
        op = Op.get(name)
        for size in (1, 19):
            case = Case(op, "exact", tuple(np.full((size,), a) for a in arguments), dict(op.signature.attrs))
            for backend in ("interpreter", "legalized", "native"):
                found = BACKENDS[backend]([case])[0]
                assert np.all(found == expected), (name, backend, found)
                assert np.all(np.signbit(found) == np.signbit(expected)), (name, backend, found)
